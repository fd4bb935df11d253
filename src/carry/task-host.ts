/**
 * What carriers need for tasks, and how their content is kept: sealed with the key ring, each piece for its own task and
 * its own place, so that whoever can write to the database cannot put one piece in the place of another.
 *
 * What passes between a task and its owner is sealed for that owner as well, and a question and its answer for their key: an
 * answer counts for the question it was given to, and a row that is given another owner opens for nobody. The head says who
 * the owner is.
 */

import { RondoError } from '../errors.ts'
import type { FlowCall, Principal } from '../protocol/call.ts'
import { followsTasks } from '../protocol/task.ts'
import { principalTag } from '../seal/binding.ts'
import { openEnvelope, sealEnvelope } from '../seal/envelope.ts'
import type { TaskHead, TaskOwner } from '../store/task-engine.ts'
import type { Target } from '../tool/target.ts'
import type { FlowHost, TaskHost } from './flow-host.ts'

/** The place of a piece within its task; questions and answers have one for each key. */
export type Piece =
  | 'head'
  | 'record'
  | 'message'
  | 'result'
  | 'error'
  | `input ${string}`
  | `answer ${string}`

/** Whose piece it is. */
export type PieceOf = Pick<TaskHead, 'id' | 'owner'>

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

function placeOf({ audience }: FlowHost, { id, owner }: PieceOf, piece: Piece): string {
  const place = ['task', id, piece, audience]
  return JSON.stringify(piece === 'head' || piece === 'record' ? place : [...place, owner.principal])
}

/** Where earlier releases sealed it. What they left opens as it did then; nothing is sealed in this way any more. */
function formerPlaceOf({ audience }: FlowHost, { id }: PieceOf, piece: Piece): string {
  return JSON.stringify(['task', id, piece.split(' ')[0], audience])
}

/** Refuses what `openPiece` would refuse: a piece that is kept must open again. */
export function sealPiece(host: FlowHost, of: PieceOf, piece: Piece, value: unknown): string {
  const { token } = sealEnvelope(host.keys.ring, placeOf(host, of, piece), JSON.stringify(value))
  const limit = host.tasks?.maxPieceBytes ?? Number.POSITIVE_INFINITY
  if (token.length <= limit) return token
  const detail = `The ${piece} of a task has ${token.length} bytes, sealed; ${limit} are allowed (tasks.maxPieceBytes).`
  throw new RondoError('LIMIT_STATE_BYTES', detail)
}

/** Throws if the piece was not sealed by us for this place. */
export function openPiece<T>(host: FlowHost, tasks: TaskHost, of: PieceOf, piece: Piece, sealed: string): T {
  const open = (place: string) => openEnvelope(host.keys.ring, place, sealed, tasks.maxPieceBytes)
  const opened = open(placeOf(host, of, piece))
  if (opened.kind === 'open') return JSON.parse(opened.plaintext.toString('utf8'))
  const former = open(formerPlaceOf(host, of, piece))
  if (former.kind === 'open') return JSON.parse(former.plaintext.toString('utf8'))
  const message = `The ${piece} of the task ${of.id} does not open: ${opened.reason}`
  host.log({ event: 'warning', message })
  throw new RondoError('SERVER_INTERNAL', message)
}
