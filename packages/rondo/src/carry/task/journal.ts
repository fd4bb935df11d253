/**
 * A task in the database: its head, which says what it began with, its journal, and what passes between it and its owner.
 * The journal has one record per entry and one for each stop; folding them yields what replay runs against.
 *
 * Keys: a wire key is used once in the life of a task, so a question that is asked again gets a new one.
 * Pieces: each piece is sealed for its own task and place, so that nobody who can write to the database can swap two of
 * them. What passes between a task and its owner is sealed for the owner too, and a question and its answer for their key:
 * an answer counts only for its question, and a row that is moved to another owner does not open.
 */

import { RondoError } from '../../errors.ts'
import type { BegunEffect, Entry, Journal, Reask } from '../../journal/journal.ts'
import { isRecord } from '../../lib/json.ts'
import type { LogPlace } from '../../log/event.ts'
import type { FlowCall, Principal } from '../../protocol/call.ts'
import type { InputRequest } from '../../protocol/wire.ts'
import type { Incoming } from '../../replay/input.ts'
import type { OpenQuestion } from '../../replay/run-state.ts'
import { openEnvelope, sealEnvelope } from '../../seal/envelope.ts'
import { principalTag } from '../../seal/state.ts'
import type { InputSlot } from '../../store/input-slots.ts'
import type { TaskHead, TaskOwner } from '../../store/task-engine.ts'
import type { FlowHost, TaskHost } from '../host.ts'

/** Questions that the client was shown. */
export interface ShownQuestions {
  /** The open questions, by wire key: the author's key, and the digest of the question. */
  readonly asked: Readonly<Record<string, { readonly key: string; readonly digest: string }>>
  readonly reasks: Readonly<Record<string, Reask>>
}

export interface Parked extends ShownQuestions {
  /** When the questions were asked, ms since the epoch. */
  readonly at?: number
  /** Answers to earlier questions that no turn has reached. */
  readonly kept?: Journal['kept']
  /** Keys whose recorded answer no longer counts. */
  readonly struck?: readonly string[]
  /** The manual form's own state. */
  readonly manual?: string
}

/** `rested`: a turn came as far as it could and ended without a question; the next one does not report the same again. */
/** `opened`: questions that were shown while the turn went on. */
export type TaskRecord =
  | { readonly entry: Entry }
  | { readonly parked: Parked }
  | { readonly opened: ShownQuestions }
  | { readonly rested: true }
  /** When an open operation ends by itself. Written when it is opened, so that no restart starts the clock again. */
  | { readonly deadline: { readonly key: string; readonly due: number } }
  /** An effect that can be undone begins. */
  | { readonly begun: BegunEffect; readonly lineage: string | undefined }
  /** An attempt of a step or an effect failed; the next one is due then. */
  | { readonly attempt: { readonly key: string; readonly count: number; readonly due: number } }

export interface Folded {
  readonly entries: readonly Entry[]
  readonly parked: Parked
  /** The number of times that the task has parked. */
  readonly parks: number
  /** True if nothing was recorded since the last turn ended. */
  readonly resting: boolean
  /** When what is open ends by itself, by key. */
  readonly deadlines: Readonly<Record<string, number>>
  /** Failed attempts of what will be retried, by key. */
  readonly attempts: Readonly<Record<string, number>>
  /** Effects that can be undone, in the order in which they began. */
  readonly begun: readonly BegunEffect[]
  readonly lineage: string | undefined
}

/** Notes from the rounds of a flow before it became a task. */
export type Noted = Pick<Parked, 'reasks' | 'manual' | 'kept'> &
  Pick<Journal, 'deadlines' | 'attempts' | 'begun' | 'lineage'>

/** The beginning of a task: the call, its caller, and its flow. Stored sealed as the head of the task. */
export interface TaskPlan {
  /** The task is the alarm of a call that can be undone: which line of the call's history, and when the call expires. */
  readonly undo?: { readonly lineage: string; readonly expires: number }
  readonly flow: string
  readonly seed: string
  readonly startedAt: number
  /** The round in which the flow became a task. */
  readonly round: number
  readonly toolVersion?: string
  /** The lifetime of the task, unless it waits for longer. */
  readonly ttlMs?: number
  /** Names of the spans of the flow's first round and of the one that began the task. */
  readonly spans?: Journal['spans']
  /** The epoch of the store in which the task began, for effects of single use. */
  readonly epoch?: string
  /** Set by an operator who continued the task from an earlier step: a new branch, with new keys. */
  readonly rerun?: string
  readonly principal?: Principal
  /** Notes from the rounds before. */
  readonly noted?: Noted
  /** Answers that came with the request that began the task. */
  readonly brought?: Pick<Incoming, 'answers' | 'asked' | 'unasked'>
  readonly call: Pick<
    FlowCall,
    'method' | 'target' | 'args' | 'protocolVersion' | 'capabilities' | 'clientInfo' | 'relatedTaskIds'
  >
}

export function foldRecords(
  records: readonly TaskRecord[],
  { deadlines: before = {}, attempts: tried = {}, begun: first = [], lineage: name, ...noted }: Noted = {
    reasks: {},
  },
): Folded {
  const entries = new Map<string, Entry>()
  const deadlines = new Map(Object.entries(before))
  const attempts = new Map(Object.entries(tried))
  const begun = [...first]
  let lineage = name
  let parked: Parked = { asked: {}, ...noted }
  let parks = 0
  let resting = false
  for (const record of records) {
    if ('deadline' in record) {
      deadlines.set(record.deadline.key, record.deadline.due)
      continue
    }
    if ('attempt' in record) {
      deadlines.set(record.attempt.key, record.attempt.due)
      attempts.set(record.attempt.key, record.attempt.count)
      continue
    }
    if ('begun' in record) {
      begun.push(record.begun)
      lineage = record.lineage
      continue
    }
    resting = !('entry' in record || 'opened' in record)
    if ('entry' in record) {
      entries.set(record.entry.key, record.entry)
      deadlines.delete(record.entry.key)
      attempts.delete(record.entry.key)
    } else if ('opened' in record) {
      parked = withOpened(parked, record.opened)
      // A question that is shown has no answer that counts: the recorded one was for other words.
      for (const { key } of Object.values(record.opened.asked)) entries.delete(key)
    } else if ('parked' in record) {
      parked = record.parked
      parks += 1
      for (const key of parked.struck ?? []) entries.delete(key)
    }
  }
  return {
    entries: [...entries.values()],
    parked,
    parks,
    resting,
    deadlines: Object.fromEntries(deadlines),
    attempts: Object.fromEntries(attempts),
    begun,
    lineage,
  }
}

/** Adds the questions that were shown since to those that were asked. A question that is shown again has spent the answer that was kept for it. */
export function withOpened(parked: Parked, { asked, reasks }: ShownQuestions): Parked {
  const shown = new Set(Object.values(asked).map(({ key }) => key))
  const kept =
    parked.kept && Object.fromEntries(Object.entries(parked.kept).filter(([key]) => !shown.has(key)))
  return { ...parked, asked: { ...parked.asked, ...asked }, reasks, kept }
}

/** The answers to what was asked last, under the author's keys, with the digests of the questions. */
export function freshAnswers(
  { asked }: Parked,
  answers: ReadonlyMap<string, unknown>,
): { answers: Record<string, unknown>; asked: Record<string, string> } {
  const fresh = { answers: Object.create(null), asked: Object.create(null) }
  // A question that was asked again has a later wire key; the answer to the earlier one is spent.
  const latest = new Map(Object.entries(asked).map(([wireKey, { key }]) => [key, wireKey]))
  for (const [wireKey, { key, digest }] of Object.entries(asked)) {
    if (!answers.has(wireKey) || latest.get(key) !== wireKey) continue
    fresh.answers[key] = answers.get(wireKey)
    fresh.asked[key] = digest
  }
  return fresh
}

export function freeKey(key: string, taken: { has(key: string): boolean }): string {
  if (!taken.has(key)) return key
  let n = 2
  while (taken.has(`${key}~${n}`)) n += 1
  return `${key}~${n}`
}

/** The wire key under which this question is open already. */
export function shownAs(
  { asked }: Parked,
  slots: readonly InputSlot[],
  key: string,
  digest: string,
): string | undefined {
  const found = slots.find((slot) => {
    const shown = Object.hasOwn(asked, slot.key) ? asked[slot.key] : undefined
    return slot.kind === 'open' && shown?.key === key && shown.digest === digest
  })
  return found?.key
}

interface Parking {
  readonly inputs: ReadonlyMap<string, InputRequest>
  /** When inputs stop taking answers. */
  readonly until: ReadonlyMap<string, number>
  readonly close: readonly InputSlot[]
  readonly record: TaskRecord
}

/** Assigns the open questions wire keys that this task has not used, and returns the record that says so. */
export function park(
  questions: readonly (readonly [string, Pick<OpenQuestion, 'request' | 'digest'>])[],
  journal: Pick<Journal, 'reasks' | 'entries' | 'manual' | 'deadlines' | 'kept'>,
  { entries: before, parked }: Folded,
  slots: readonly InputSlot[],
): Parking {
  const until = new Map<string, number>()
  const inputs = new Map<string, InputRequest>()
  const asked: Record<string, { key: string; digest: string }> = {}
  const mine = slots.filter((slot) => slot.role !== 'hook')
  const taken = new Set(mine.map((slot) => slot.key))
  for (const [key, { request, digest }] of questions) {
    const shown = shownAs(parked, mine, key, digest)
    const wireKey = shown ?? freeKey(key, { has: (name) => taken.has(name) || inputs.has(name) })
    if (shown === undefined) inputs.set(wireKey, request)
    asked[wireKey] = { key, digest }
    const due = journal.deadlines?.[key]
    if (due !== undefined) until.set(wireKey, due)
  }
  // Questions that the handler no longer asks: their time was up, or the program changed.
  const close = mine.filter(
    (slot) => slot.kind === 'open' && slot.role === undefined && !Object.hasOwn(asked, slot.key),
  )
  const kept = new Set(journal.entries.map((entry) => entry.key))
  const struck = before.map((entry) => entry.key).filter((key) => !kept.has(key))
  const record: TaskRecord = {
    parked: {
      asked,
      reasks: journal.reasks,
      ...(struck.length > 0 ? { struck } : {}),
      kept: journal.kept,
      manual: journal.manual,
    },
  }
  return { inputs, until, close, record }
}

/** The member of an answer's `_meta` that names the span of the request that brought it. */
const SPAN = 'rondo/span'

/** Adds the name of a span to an answer that is about to be sealed. A name that the client sent itself is replaced. */
export function markAnswer(answer: unknown, span: string | undefined): unknown {
  if (span === undefined || !isRecord(answer)) return answer
  return { ...answer, _meta: { ...(isRecord(answer._meta) ? answer._meta : {}), [SPAN]: span } }
}

/** Removes the span's name that `markAnswer` added. A handler never sees the name, since the keys of effects depend on answers (R7). */
export function unmarkAnswer(sealed: unknown): { readonly answer: unknown; readonly span?: string } {
  if (!isRecord(sealed) || !isRecord(sealed._meta) || !Object.hasOwn(sealed._meta, SPAN))
    return { answer: sealed }
  const { _meta, ...answer } = sealed
  const { [SPAN]: span, ...others } = _meta as Record<string, unknown>
  const rest = Object.keys(others).length > 0 ? { ...answer, _meta: others } : answer
  return { answer: rest, ...(typeof span === 'string' && { span }) }
}

/** The place of a piece in its task; questions and answers have one per key. */
export type Piece =
  | 'head'
  | 'record'
  | 'message'
  | 'labels'
  | 'result'
  | 'error'
  | `input ${string}`
  | `answer ${string}`
  | `hook ${string}`
  | `event ${string}`

/** Whose piece it is. */
export interface PieceOf {
  readonly id: string
  readonly owner: TaskOwner
}

/** When a task ends at the latest, however long it waits. */
export function endOfLife({ maxTtlMs }: TaskHost, { createdAt, expiresAt }: TaskHead): number {
  return Math.max(createdAt + maxTtlMs, expiresAt)
}

export function ownerOf({ audience }: FlowHost, principal: Principal | undefined): TaskOwner {
  return { tenant: audience, principal: principalTag(principal) }
}

const placeOf = ({ audience }: FlowHost, of: PieceOf, piece: Piece): string =>
  placeOfPiece(audience, of, piece)

/** The place for which a piece is sealed. */
export function placeOfPiece(audience: string, { id, owner }: PieceOf, piece: Piece): string {
  const place = ['task', id, piece, audience]
  return JSON.stringify(piece === 'head' || piece === 'record' ? place : [...place, owner.principal])
}

/** Throws if the piece is too large for `openPiece`: a piece that is kept must open again. */
export function sealPiece(host: FlowHost, of: PieceOf, piece: Piece, value: unknown): string {
  const { token } = sealEnvelope(host.keys.ring, placeOf(host, of, piece), JSON.stringify(value))
  const limit = host.tasks?.maxPieceBytes ?? Number.POSITIVE_INFINITY
  if (token.length <= limit) return token
  const detail = `The sealed ${piece} of a task has ${token.length} bytes; at most ${limit} are allowed (tasks.maxPieceBytes).`
  throw new RondoError('LIMIT_STATE_BYTES', detail)
}

/** Returns the reason if the piece was not sealed by this service for this place. */
function readPiece(
  host: FlowHost,
  tasks: TaskHost,
  of: PieceOf,
  piece: Piece,
  sealed: string,
): { readonly value: unknown } | { readonly reason: string } {
  const opened = openEnvelope(host.keys.ring, placeOf(host, of, piece), sealed, tasks.maxPieceBytes)
  return opened.kind === 'open' ? { value: JSON.parse(opened.plaintext.toString('utf8')) } : opened
}

/** This process lacks the key of a piece. Others may have it, as while keys are rotated, so it says nothing about the task. */
export class MissingKey extends RondoError {}

/** Throws if the piece was not sealed by this service for this place; a `MissingKey` if this process cannot know. */
export function openPiece<T>(host: FlowHost, tasks: TaskHost, of: PieceOf, piece: Piece, sealed: string): T {
  const read = readPiece(host, tasks, of, piece, sealed)
  if ('value' in read) return read.value as T
  const isUnknown = read.reason === 'key'
  const advice = isUnknown ? '. All processes that share a store need the same RONDO_KEYS' : ''
  const message = `The ${piece} of the task ${of.id} does not open: ${read.reason}${advice}`
  host.log({ event: 'warning', message, task: of.id })
  throw new (isUnknown ? MissingKey : RondoError)('SERVER_INTERNAL', message)
}

/** Where a line about the task belongs, if its head opens. */
export function placeOfTask(
  host: FlowHost,
  tasks: TaskHost,
  task: TaskHead,
): Pick<LogPlace, 'flow' | 'round'> | undefined {
  const { flow, round } = planOf(host, tasks, task) ?? {}
  return flow === undefined || round === undefined ? undefined : { flow, round }
}

/** The tool of a task, if its head opens. */
export function toolOfTask(host: FlowHost, tasks: TaskHost, task: TaskHead): string | undefined {
  return planOf(host, tasks, task)?.call.target
}

function planOf(host: FlowHost, tasks: TaskHost, task: TaskHead): TaskPlan | undefined {
  if (!host.keys.isReady) return undefined
  const read = readPiece(host, tasks, task, 'head', task.head)
  return 'value' in read ? (read.value as TaskPlan) : undefined
}

/** The call as a worker runs it. */
export function toFlowCall({ call }: TaskPlan, id: string): FlowCall {
  return { kind: 'flow', id, ...call }
}
