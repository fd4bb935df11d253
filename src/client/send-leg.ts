/**
 * Sends one leg of a call as the server wants it. What the server's tools say about themselves may be unknown or old: a
 * server that misses something has done nothing yet, so its tools are listed anew, and if that teaches something the leg
 * is sent once more.
 */

import type { Received } from '../protocol/received.ts'
import type { Driving, Flows } from './flow-options.ts'
import type { FlowLeg } from './operation.ts'
import type { SendOptions } from './peer.ts'
import type { PendingCall } from './pending.ts'

/** In dialects where the client asks for tasks: where the caller does, and where the tool exists only as one. */
export async function taskWish(
  flows: Flows,
  { request }: PendingCall,
  { taskTtlMs, signal }: Driving,
): Promise<Pick<FlowLeg, 'task'>> {
  const { peer, tools } = flows
  if (!asksForTasks(flows) || request.method !== 'tools/call') return {}
  const { name } = request
  // In the draft a call may become a task later, whatever its tool says. Before it what the tool says binds, so it has to
  // be known: servers in the field answer a call that should have been a task with a result that looks like the tool's.
  const must = peer.dialect.tasks === 'pushed'
  if (must && !tools.learned) await flows.refreshTools({ signal })
  const support = tools.taskSupport(name)
  if (support !== 'required' && (taskTtlMs === undefined || (must && support !== 'optional'))) return {}
  return { task: taskTtlMs === undefined ? {} : { ttlMs: taskTtlMs } }
}

function asksForTasks({ peer, tasks }: Flows): boolean {
  return tasks !== 'off' && (peer.dialect.tasks === 'asked' || peer.dialect.tasks === 'pushed')
}

const HEADER_MISMATCH = -32020
const METHOD_NOT_FOUND = -32601

export async function sendLeg(flows: Flows, leg: FlowLeg, options: SendOptions): Promise<Received> {
  const { peer, tools } = flows
  if (leg.method !== 'tools/call') return peer.send(leg, options)
  const mirrors = peer.transport.kind !== 'stdio'
  const mirrored = mirrors ? tools.mirrored(leg.target) : undefined
  const received = await peer.send(leg, { ...options, mirrored })
  if (received.kind !== 'error') return received
  if (mirrors && received.error.code === HEADER_MISMATCH) {
    await flows.refreshTools(options)
    const fresh = tools.mirrored(leg.target)
    if (fresh === undefined || JSON.stringify(fresh) === JSON.stringify(mirrored)) return received
    return peer.send(leg, { ...options, mirrored: fresh })
  }
  if (received.error.code !== METHOD_NOT_FOUND || leg.task || !asksForTasks(flows)) return received
  await flows.refreshTools(options)
  if (tools.taskSupport(leg.target) !== 'required') return received
  return peer.send({ ...leg, task: {} }, { ...options, mirrored })
}
