/**
 * What carriers need for tasks, and how their content is kept: sealed with the key ring, each piece for its own task and
 * its own place, so that whoever can write to the database cannot put one piece in the place of another.
 */

import { RondoError } from '../errors.ts'
import type { FlowCall, Principal } from '../protocol/call.ts'
import { followsTasks } from '../protocol/task.ts'
import { principalTag } from '../seal/binding.ts'
import { openEnvelope, sealEnvelope } from '../seal/envelope.ts'
import type { TaskOwner } from '../store/task-engine.ts'
import type { Target } from '../tool/target.ts'
import type { FlowHost, TaskHost } from './flow-host.ts'

/** The place of a piece within its task. */
export type Piece = 'head' | 'record' | 'message' | 'input' | 'answer' | 'result' | 'error'

interface Callable {
  readonly host: FlowHost
  readonly call: FlowCall
  readonly target: Target
}

/** Where this call can go on as a task: its client can follow one, its tool may be one, and there is a store. */
export function taskHostFor({ host, call, target }: Callable): TaskHost | undefined {
  if (target.task.mode === 'never') return undefined
  const follows = call.task !== undefined || followsTasks(call.capabilities)
  return call.method === 'tools/call' && follows ? host.tasks : undefined
}

export function ownerOf({ audience }: FlowHost, principal: Principal | undefined): TaskOwner {
  return { tenant: audience, principal: principalTag(principal) }
}

function placeOf({ audience }: FlowHost, id: string, piece: Piece): string {
  return JSON.stringify(['task', id, piece, audience])
}

/** Refuses what `openPiece` would refuse: a piece that is kept must open again. */
export function sealPiece(host: FlowHost, id: string, piece: Piece, value: unknown): string {
  const { token } = sealEnvelope(host.keys.ring, placeOf(host, id, piece), JSON.stringify(value))
  const limit = host.tasks?.maxPieceBytes ?? Number.POSITIVE_INFINITY
  if (token.length <= limit) return token
  const detail = `The ${piece} of a task has ${token.length} bytes, sealed; ${limit} are allowed (tasks.maxPieceBytes).`
  throw new RondoError('LIMIT_STATE_BYTES', detail)
}

/** Throws if the piece was not sealed by us for this place. */
export function openPiece<T>(host: FlowHost, tasks: TaskHost, id: string, piece: Piece, sealed: string): T {
  const opened = openEnvelope(host.keys.ring, placeOf(host, id, piece), sealed, tasks.maxPieceBytes)
  if (opened.kind === 'open') return JSON.parse(opened.plaintext.toString('utf8'))
  const message = `The ${piece} of the task ${id} does not open: ${opened.reason}`
  host.log({ event: 'warning', message })
  throw new RondoError('SERVER_INTERNAL', message)
}
