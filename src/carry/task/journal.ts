/**
 * A task's journal in the database: one record per entry, and one each time it stops. Folding them yields the journal
 * that replay runs against, and what was asked last.
 *
 * A wire key is used once in the life of a task, so a question that is asked again goes out under a new one.
 */

import { RondoError } from '../../errors.ts'
import type { Entry, Journal, Reask } from '../../journal/journal.ts'
import type { FlowCall, Principal } from '../../protocol/call.ts'
import type { Incoming, OpenQuestion } from '../../replay/run-state.ts'
import { openEnvelope, sealEnvelope } from '../../seal/envelope.ts'
import { principalTag } from '../../seal/state.ts'
import type { TaskHead, TaskOwner } from '../../store/task-engine.ts'
import type { FlowHost, TaskHost } from '../host.ts'

export interface Parked {
  /** What was asked, by wire key: the author's key, and the digest of the question. */
  readonly asked: Readonly<Record<string, { readonly key: string; readonly digest: string }>>
  readonly reasks: Readonly<Record<string, Reask>>
  /** Keys whose recorded answer no longer counts. */
  readonly struck?: readonly string[]
  /** The manual form's own state. */
  readonly manual?: string
}

/** `rested`: a turn came as far as it could and ended there without a question; what it said need not be said again. */
export type TaskRecord = { readonly entry: Entry } | { readonly parked: Parked } | { readonly rested: true }

export interface Folded {
  readonly entries: readonly Entry[]
  readonly parked: Parked
  /** How often it parked, or was to be run again. */
  readonly parks: number
  /** Nothing was recorded since a turn came as far as it could. */
  readonly resting: boolean
}

/** What was noted of a flow in rounds, before it became a task. */
export type Noted = Pick<Parked, 'reasks' | 'manual'>

export function foldRecords(records: readonly TaskRecord[], noted: Noted = { reasks: {} }): Folded {
  const entries = new Map<string, Entry>()
  let parked: Parked = { asked: {}, ...noted }
  let parks = 0
  let resting = false
  for (const record of records) {
    resting = !('entry' in record)
    if ('entry' in record) entries.set(record.entry.key, record.entry)
    else if ('parked' in record) {
      parked = record.parked
      parks += 1
      for (const key of parked.struck ?? []) entries.delete(key)
    }
  }
  return { entries: [...entries.values()], parked, parks, resting }
}

/** Answers that have come for what was asked last, under the author's keys, with the digests of the questions. */
export function freshAnswers(
  { asked }: Parked,
  answers: ReadonlyMap<string, unknown>,
): { answers: Record<string, unknown>; asked: Record<string, string> } {
  const fresh = { answers: Object.create(null), asked: Object.create(null) }
  for (const [wireKey, { key, digest }] of Object.entries(asked)) {
    if (!answers.has(wireKey)) continue
    fresh.answers[key] = answers.get(wireKey)
    fresh.asked[key] = digest
  }
  return fresh
}

function freeKey(key: string, taken: { has(key: string): boolean }): string {
  if (!taken.has(key)) return key
  let n = 2
  while (taken.has(`${key}~${n}`)) n += 1
  return `${key}~${n}`
}

/** The open questions under keys this task has not used, and the record that says so. */
export function park(
  questions: readonly (readonly [string, Pick<OpenQuestion, 'request' | 'digest'>])[],
  journal: Pick<Journal, 'reasks' | 'entries' | 'manual'>,
  before: readonly Entry[],
  taken: { has(key: string): boolean },
): { inputs: ReadonlyMap<string, OpenQuestion['request']>; record: TaskRecord } {
  const inputs = new Map<string, OpenQuestion['request']>()
  const asked: Record<string, { key: string; digest: string }> = {}
  for (const [key, { request, digest }] of questions) {
    const wireKey = freeKey(key, { has: (name) => taken.has(name) || inputs.has(name) })
    inputs.set(wireKey, request)
    asked[wireKey] = { key, digest }
  }
  const kept = new Set(journal.entries.map((entry) => entry.key))
  const struck = before.map((entry) => entry.key).filter((key) => !kept.has(key))
  const record: TaskRecord = {
    parked: {
      asked,
      reasks: journal.reasks,
      ...(struck.length > 0 ? { struck } : {}),
      ...(journal.manual === undefined ? {} : { manual: journal.manual }),
    },
  }
  return { inputs, record }
}

/*
 * What carriers need for tasks, and how their content is kept: sealed with the key ring, each piece for its own task and
 * its own place, so that whoever can write to the database cannot put one piece in the place of another.
 *
 * What passes between a task and its owner is sealed for that owner as well, and a question and its answer for their key: an
 * answer counts for the question it was given to, and a row that is given another owner opens for nobody. The head says who
 * the owner is.
 */

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

/*
 * What a task is begun with: the call, who made it, and the flow it belongs to. Kept sealed as the head of the task.
 */

export interface TaskPlan {
  readonly flow: string
  readonly seed: string
  readonly startedAt: number
  /** The round in which the flow became a task. */
  readonly round: number
  readonly toolVersion?: string
  /** The life of the store under which the task began, for effects of single use. */
  readonly epoch?: string
  readonly principal?: Principal
  /** What was noted in rounds before. */
  readonly noted?: Noted
  /** Answers that came with the request that made the task. */
  readonly brought?: Pick<Incoming, 'answers' | 'asked' | 'unasked'>
  readonly call: Pick<
    FlowCall,
    'method' | 'target' | 'args' | 'protocolVersion' | 'capabilities' | 'clientInfo'
  >
}

/** The request as a worker sees it; there is nobody on the line. */
export function toFlowCall({ call }: TaskPlan, id: string): FlowCall {
  return { kind: 'flow', id, ...call }
}
