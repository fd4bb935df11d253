/**
 * What clients do with tasks: look, answer, cancel. Unknown, foreign and expired tasks are all the same to them.
 */

import { RondoError } from '../errors.ts'
import type { Principal, TaskCall } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import type { TaskState } from '../protocol/task.ts'
import type { ClientCapabilities } from '../protocol/wire.ts'
import type { FlowHost, TaskHost } from './flow-host.ts'
import { ownerOf, sealPiece } from './task-host.ts'
import { readableState, toTaskState, visibleTo } from './task-view.ts'

const ACKNOWLEDGED: Reply = { kind: 'complete', result: {} }
const UNKNOWN: Reply = { kind: 'error', error: new RondoError('PEER_TASK') }

export async function answerTask(
  host: FlowHost,
  tasks: TaskHost,
  call: TaskCall,
  principal: Principal | undefined,
): Promise<Reply> {
  await host.keys.ready()
  const owner = ownerOf(host, principal)
  const { taskId } = call
  switch (call.action) {
    case 'get': {
      const view = await tasks.engine.get(taskId, owner)
      if (!view) return UNKNOWN
      return { kind: 'task', task: visibleTo(call.capabilities, toTaskState(host, tasks, owner, view)) }
    }
    case 'update': {
      const sealed = Object.entries(call.inputResponses ?? {}).map(
        ([key, answer]) => [key, sealPiece(host, { id: taskId, owner }, `answer ${key}`, answer)] as const,
      )
      const delivery = await tasks.engine.deliver(taskId, owner, new Map(sealed))
      return delivery === 'unknown' ? UNKNOWN : ACKNOWLEDGED
    }
    case 'result':
    case 'respond':
      return { kind: 'error', error: new RondoError('PEER_METHOD') }
    case 'cancel':
      return (await tasks.engine.cancel(taskId, owner)) === 'unknown' ? UNKNOWN : ACKNOWLEDGED
  }
}

/** Tells of the caller's own tasks as they change; ids that are nobody's, or somebody else's, are never heard of. */
export function watchTasks(
  host: FlowHost,
  tasks: TaskHost,
): (
  ids: readonly string[],
  principal: Principal | undefined,
  capabilities: ClientCapabilities,
  listener: (task: TaskState) => void,
) => Promise<() => void> {
  return async (ids, principal, capabilities, listener) => {
    await host.keys.ready()
    const owner = ownerOf(host, principal)
    return tasks.engine.watch(ids, owner, (_id, view) => {
      const state = view && readableState(host, tasks, owner, view)
      if (state) listener(visibleTo(capabilities, state))
    })
  }
}
