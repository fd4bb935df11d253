/**
 * The state of one run, and what every operation of `ctx` does with it: take a name, hand out a promise, append an entry.
 *
 * operation 1: A promise that we hand out never becomes an unhandled rejection: a client chooses its answers, and must not
 * choose whether the process lives. Promises that an author derives from it are the author's (decision 0012).
 * operation 2: A handler that returns while an unobserved operation is open or has failed ends with an error that names it.
 * operation 3: An operation inside a step, an effect or a deferred function is refused at once: the outer one would wait
 * for the inner one, which cannot begin before the outer one has settled.
 * operation 4: No effect begins before something has observed every question that the handler asked before it. A promise is
 * true, so a forgotten `await` would turn a No into a Yes.
 */

import { detailOf, misuse, RondoError } from '../errors.ts'
import type { AskEntryKind, Entry, EntryKind, Journal, JournalRecord } from '../journal/journal.ts'
import type { ClientCapabilities, InputRequest } from '../protocol/wire.ts'
import type { Question } from '../tool/context.ts'
import type { ReplayInput, Scope, Undoable } from './input.ts'
import type { Turn } from './turn.ts'

/** A question that the client cannot show, and the capability that it lacks. */
export interface Unasked {
  readonly request: InputRequest
  /** The arguments that make the question unnecessary. */
  readonly instead?: Question['orArgument']
  readonly missing: ClientCapabilities
}

/** Something open that ends by itself. */
export interface Wait {
  readonly kind: 'sleep' | 'question' | 'hook'
  readonly due: number
  /** This request cannot wait for it, and the next one can. */
  readonly elsewhere?: true
  end(at: number): void
}

/** The one bag of a run: its input, and everything that changes while the handler runs. */
export interface RunState extends ReplayInput {
  readonly turn: Turn
  readonly record: JournalRecord
  /** When this round began: the time of every answer that came with it. */
  readonly roundAt: number
  readonly names: Map<string, EntryKind>
  /** The operations of this run; undefined if nobody looks at them. */
  readonly operations: Operation[] | undefined
  readonly floating: Set<Handed>
  /** The questions whose outcome the handler does not have yet, or has not observed. */
  readonly unread: Set<Handed>
  readonly tally: Tally
  /** The input that the client sent and that the handler has received so far (R7). */
  readonly received: Map<string, { readonly answer: unknown; digest?: string }>
  /** Functions passed to `ctx.defer`. */
  readonly deferred: Deferred[]
  /** The last answer that is being read; answers of one request are read in the order of their questions. */
  reading?: Promise<void>
  /** The events and answers that arrive while the handler runs. Most runs end before: `arrivingOf` creates it. */
  arriving?: Arriving
  /** The handler has returned or thrown, and the run ended with that: what it still calls comes too late. */
  left?: 'unreported' | 'reported'
  /** Open operations that end by themselves, by key. */
  waits?: Map<string, Wait>
  /** Questions that the client cannot show. */
  unasked?: readonly Unasked[]
  /** The undo functions of the effects that the handler has called, by key. */
  undoable?: Map<string, Undoable>
  /** Keys of the effects that `ctx.undo()` has been called for in this run. */
  undone?: Set<string>
  /** The labels that the handler has set, the latest last. */
  labels?: ReadonlyMap<string, string>
  /** The labels, while they have not been passed to the carrier. */
  newLabels?: ReadonlyMap<string, string>
  /** Cancels the timer for the next deadline. */
  alarm?: () => void
  /** Cancels the timer of a request that only sleeps. */
  resting?: () => void
  signal(): AbortSignal
}

export type Deferred = () => void | Promise<void>

interface Arriving {
  /** Events from outside, by the key of their hook. */
  readonly events: Map<string, unknown>
  /** Answers by key, with the digest of the question that was shown. */
  readonly answers: Map<string, { readonly answer: unknown; readonly digest: string }>
  /** Called when something arrives that the handler waits for, by name. */
  readonly wakers: Map<string, () => void>
}

export function arrivingOf(run: RunState): Arriving {
  run.arriving ??= { events: new Map(run.incoming.events), answers: new Map(), wakers: new Map() }
  return run.arriving
}

/** The name under which a run waits for the answer to a question. No event has it: theirs end with ".received". */
export function arrivalName(key: string): string {
  return `${key}.answer`
}

/** An answer to a published question has arrived. Returns false if the run is over. */
export function answerArrived(
  run: RunState,
  key: string,
  { answer, digest }: { readonly answer: unknown; readonly digest: string },
): boolean {
  if (run.turn.ended()) return false
  // Only the owner of a task can answer, and names the task to do so.
  run.turn.anchor()
  const { answers, wakers } = arrivingOf(run)
  answers.set(key, { answer, digest })
  if (!run.names.has(key)) run.record.keep(key, { question: digest, answer })
  wakers.get(arrivalName(key))?.()
  return true
}

/** An operation whose promise the handler was handed. */
export interface Handed {
  readonly label: string
  readonly question: QuestionMark | undefined
  /** The operations of its run that nothing has observed. */
  readonly floating: Set<Handed>
  /** True once something has subscribed to the promise of the operation. */
  observed: boolean
  /** True once the promise of the operation has settled. */
  settled: boolean
  failed: { readonly error: unknown } | undefined
}

/** The kind of answer that an operation asks for: anything, or a yes. */
type QuestionMark = 'question' | 'confirmation'

interface Tally {
  replayed: number
  executed: number
  drawn: number
  progress: number
  /** Recorded results that were not delivered yet. While there are any, an earlier run has been here before. */
  past: number
}

/** The work that is running where an operation is called. */
export interface Mark {
  readonly run: RunState
  readonly label: string
}

export interface OpenQuestion {
  readonly kind: AskEntryKind
  /** The request that goes out; after an invalid answer its message names the problem. */
  readonly request: InputRequest
  /** Digest of the question as the author wrote it. */
  readonly digest: string
  /** When the question closes by itself, ms since the epoch. */
  readonly due?: number
  /** An offer: the handler may return without its answer. */
  readonly standing?: true
}

/** Why a call continues elsewhere: before an effect (R6), or because this instance wants to release it. */
export type MoveReason = 'effect' | 'drain' | 'shed' | 'time'

/** The end of a run. Waiting for input is an outcome, not an error (R8). */
export type Ending =
  | { readonly kind: 'returned'; readonly value: unknown }
  | { readonly kind: 'threw'; readonly error: unknown }
  /** `events`: names of events from outside that the handler waits for. `wakeAt`: when to continue without any answer. */
  | {
      readonly kind: 'asking'
      readonly questions: ReadonlyMap<string, OpenQuestion>
      readonly events: ReadonlySet<string>
      readonly wakeAt?: number
    }
  /** Only sleeps are left; the call continues at `wakeAt`. */
  | { readonly kind: 'sleeping'; readonly wakeAt: number }
  | { readonly kind: 'moved'; readonly reason: MoveReason }
  /** The handler asked to continue as a task, and can. */
  | { readonly kind: 'background' }
  /** The call cannot continue. The handler's `catch` never sees this. */
  | { readonly kind: 'refused'; readonly error: RondoError }

/** One operation of the handler; development mode compares their sequence. */
export interface Operation {
  readonly kind: string
  readonly key: string
  readonly question?: string
  /** The schema of the question, as the author passed it. */
  readonly schema?: object
}

export interface RunReport {
  readonly ending: Ending
  readonly journal: Journal
  readonly operations: readonly Operation[]
  readonly replayed: number
  readonly executed: number
  /** The undo functions that this run reached. */
  readonly undoable: readonly Undoable[]
  /** The labels that the handler has set, the latest last. */
  readonly labels?: ReadonlyMap<string, string>
}

/** Takes a name for one use in this run (R4). Returns false if that ended the run. */
export function takeName(
  run: RunState,
  key: string,
  kind: EntryKind,
  question?: string,
  schema?: object,
): boolean {
  assertName(key)
  if (run.turn.ended()) return false
  run.operations?.push({ kind, key, question, schema })
  const before = run.names.get(key) ?? (kind === 'undo' ? undefined : reservedFor(run, key))
  if (before !== undefined) {
    const detail =
      `The name "${key}" is used twice in one run (${before}, then ${kind}). ` +
      `Use a different name for each; in a loop, include the item, like \`${key}:\${id}\`.`
    run.turn.refuse(new RondoError('REPLAY_NAME_REUSED', detail))
    return false
  }
  run.names.set(key, kind)
  run.trace?.called(key, kind)
  const recorded = run.record.find(key)?.entry.kind
  if (recorded !== undefined && recorded !== kind) {
    const detail =
      `"${key}" was recorded as ${recorded} and is now used as ${kind}. ` +
      'If a new version of a tool changes the kind of an operation, it must change its name too.'
    run.turn.refuse(new RondoError('REPLAY_KIND_CHANGED', detail))
    return false
  }
  return true
}

/** The name of an effect's undo is taken from the moment the effect is called. */
function reservedFor({ undoable }: RunState, key: string): EntryKind | undefined {
  for (const effect of undoable?.keys() ?? []) if (undoName(effect) === key) return 'undo'
  return undefined
}

/** The name of the entry that records the undo of an effect. */
export function undoName(key: string): string {
  return `${key}.undo`
}

const MAX_NAME = 128
const FORBIDDEN = new Set(['__proto__', 'constructor', 'prototype'])

function assertName(key: unknown): asserts key is string {
  const isTooLong = typeof key === 'string' && key.length > MAX_NAME
  if (typeof key === 'string' && key !== '' && !isTooLong && !FORBIDDEN.has(key)) return
  const given = typeof key === 'string' ? JSON.stringify(key.slice(0, MAX_NAME)) : typeof key
  const rest = isTooLong ? `…, which has ${key.length}` : ''
  const wanted = `a string of 1 to ${MAX_NAME} characters, other than ${[...FORBIDDEN].join(', ')}`
  throw misuse(
    `The name of an ask or a step must be ${wanted}; got ${given}${rest}. ` +
      'The next round finds answers and results by their names.',
  )
}

/** Notes an answer that the handler has received: keys of later effects depend on it (R7). */
export function noteReceived({ received }: RunState, key: string, answer: unknown): void {
  received.set(`answer:${key}`, { answer })
}

/** Shows questions while the run goes on, which does not end before that is durable. */
export function publishQuestions(run: RunState, questions: ReadonlyMap<string, OpenQuestion>): void {
  if (!run.frozen) continueDuring(run, run.publish?.(questions, run.record.toJournal()))
}

/** Closes an offer that was shown. */
export function withdrawOffer(run: RunState, key: string): void {
  if (!run.frozen) continueDuring(run, run.withdraw?.(key))
}

/** The handler does not wait for this write, but the run does not end before it is durable. */
export function continueDuring(run: RunState, written: Promise<void> | undefined): Promise<void> | undefined {
  if (!written) return undefined
  const settled = run.turn.busy()
  return written.catch((error: unknown) => run.turn.refuse(toRefusal(error))).finally(settled)
}

/** Says which entry was too large to be made durable. */
function named(error: RondoError, { kind, key }: Entry): RondoError {
  if (error.code !== 'LIMIT_STATE_BYTES') return error
  const detail = `The ${kind} "${key}" cannot be recorded: ${detailOf(error)} Return less from steps: an id instead of a document.`
  return new RondoError(error.code, detail, { cause: error })
}

export function toRefusal(error: unknown): RondoError {
  return error instanceof RondoError ? error : new RondoError('SERVER_INTERNAL', undefined, { cause: error })
}

/**
 * Appends to the journal within its limit (R9), durably if the run can persist, and then calls `then` with the index. An undo does
 * not count: a call that ends because its journal is full is undone, and has at most one for each of its effects. Nor does what a
 * run adds in which nothing new may happen: nobody keeps it, and the run has to reach all of these effects.
 */
export function append(run: RunState, entry: Entry, then: (index: number) => void): void {
  const isBounded = entry.kind !== 'undo' && !run.frozen
  if (isBounded && run.record.size() >= run.limits.maxEntries) {
    const detail = `The journal is full: "${entry.key}" would exceed its ${run.limits.maxEntries} entries (limits.maxEntries).`
    return run.turn.refuse(new RondoError('LIMIT_ENTRIES', detail))
  }
  const index = run.record.append(entry)
  run.trace?.recorded?.(entry)
  if (!run.persist) return then(index)
  const settled = run.turn.busy()
  const release = run.turn.hold(index)
  const failed = (error: unknown): void => run.turn.refuse(named(toRefusal(error), entry))
  run
    .persist(entry)
    .then(() => {
      if (!run.turn.ended()) then(index)
    }, failed)
    .finally(() => {
      release()
      settled()
    })
    .catch(failed)
}

/** A recorded result was delivered. */
export function noteReplayed(run: RunState): void {
  if (run.tally.past > 0) run.tally.past -= 1
  keepLabels(run)
}

/** From here on everything happens for the first time. */
export function noteNews(run: RunState): void {
  run.tally.past = 0
  keepLabels(run)
}

/** Passes new labels to the carrier, unless the handler repeats what an earlier run did: that run has passed them on. */
export function keepLabels(run: RunState): void {
  const { labelling, newLabels, frozen, tally, turn } = run
  if (!newLabels || frozen || tally.past > 0 || turn.ended()) return
  run.newLabels = undefined
  if (labelling && 'keep' in labelling) void continueDuring(run, labelling.keep(newLabels))
}

/**
 * Notes when it is observed: `await`, `Promise.all` and the like call `then`. Promises derived from it are ordinary ones.
 * Its members are data and not a closure: with one, V8 keeps whole requests until the next full collection.
 */
class HandedPromise<T> extends Promise<T> {
  operation: Handed | undefined

  static override get [Symbol.species](): PromiseConstructor {
    return Promise
  }

  // biome-ignore lint/suspicious/noThenProperty: a promise has one.
  override then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    if (this.operation) {
      this.operation.observed = true
      this.operation.floating.delete(this.operation)
    }
    return super.then(onFulfilled, onRejected)
  }
}

/** Returns the promise of the operation that `begin` starts. `question` says that its outcome decides what follows. */
export function operate<T>(
  run: RunState,
  label: string,
  begin: (operation: Handed) => Promise<T>,
  question?: QuestionMark,
): Promise<T> {
  const nested = nestedError(run, label)
  if (nested) run.turn.refuse(nested)
  else if (run.left === 'unreported') reportLate(run, label)
  const { floating } = run
  const operation: Handed = { label, question, floating, observed: false, settled: false, failed: undefined }
  const handed = new HandedPromise<T>((resolve, reject) =>
    nested ? reject(nested) : resolve(begin(operation)),
  )
  floating.add(operation)
  if (question) run.unread.add(operation)
  handed.then(
    () => {
      operation.settled = true
      floating.delete(operation)
    },
    (error) => {
      operation.settled = true
      operation.failed = { error }
    },
  )
  handed.operation = operation
  return handed
}

/**
 * Returns a function that says why the effect must not begin, if so (N1). It is called twice: here when the handler calls
 * the effect, which fixes the questions before it, and the returned function when the effect would begin. Between the two
 * the handler finishes its moment, so `Promise.all` with a question and an effect is accepted.
 */
export function questionsBefore(run: RunState, effect: Handed): () => RondoError | undefined {
  for (const question of run.unread) if (question.observed && question.settled) run.unread.delete(question)
  const before = [...run.unread]
  const outrun = before.find((one) => one.question === 'confirmation')
  return () => {
    const unread = before.find(({ observed, settled }) => !observed || !(settled || effect.observed))
    if (unread) return unreadQuestion(unread, effect)
    if (outrun) run.onOutrun?.(effect.label, outrun.label)
    return undefined
  }
}

function unreadQuestion(question: Handed, effect: Handed): RondoError {
  const why = question.observed
    ? `is still open, and nothing awaits the ${effect.label} either`
    : 'was never awaited, so the handler does not know its outcome'
  const detail =
    `The ${effect.label} would begin although the ${question.label} before it ${why}. The effect did not run. ` +
    `Await the ${question.label}, look at its outcome, and call the ${effect.label} after that.`
  return new RondoError('REPLAY_NOT_AWAITED', detail)
}

/** For calls that return no promise. */
export function throwIfNested(run: RunState, label: string): void {
  const error = nestedError(run, label)
  if (error) throw error
  if (run.left === 'unreported') reportLate(run, label)
}

/**
 * Reports an operation of a handler that has returned already, the first of each run. Its promise never settles: rejected, it
 * would be an unhandled rejection of the author's (R11), since nothing awaits what the handler left behind.
 */
function reportLate(run: RunState, label: string): void {
  const detail =
    `The ${label} was called after the handler had returned, so it does nothing and its promise never settles. ` +
    'Await everything that the handler starts before it returns; for work that outlives the call, declare the tool as a task.'
  run.left = 'reported'
  run.onAsideError?.(new RondoError('REPLAY_NOT_AWAITED', detail))
}

function nestedError(run: RunState, label: string): RondoError | undefined {
  const outer = run.platform.scope.storage.getStore() as Mark | undefined
  // An undo function that runs after its handler has the `ctx` of a run that is over.
  const isUndo = outer?.run.undoes !== undefined && outer.run.flow === run.flow
  if (outer?.run !== run && !isUndo) return undefined
  const detail =
    `The ${label} was called inside the ${outer.label}. The code in there runs once and is not replayed, so it cannot ` +
    `use ctx: call the ${label} in the handler itself, before or after.`
  return new RondoError('REPLAY_NESTED', detail)
}

/**
 * Runs `fn`, and refuses operations in whatever it calls. An enabled storage slows down every promise of the process, so
 * it is disabled when no work is running.
 */
export async function runMarked(mark: Mark, fn: () => unknown): Promise<unknown> {
  const { scope } = mark.run.platform
  const settled = keepMarks(scope)
  try {
    return await scope.storage.run(mark, fn)
  } finally {
    settled()
  }
}

/** Keeps the marks of work that is running until the returned function is called. */
export function keepMarks(scope: Scope): () => void {
  scope.running += 1
  return () => {
    scope.running -= 1
    if (scope.running === 0) disable(scope)
  }
}

/** Cloudflare Workers have no such method; there the storage costs nothing. */
function disable({ storage }: Scope): void {
  try {
    storage.disable()
  } catch {
    // It stays enabled.
  }
}

/** Why the handler must not return yet, if so: an operation that nothing has observed. */
export function notAwaited({ floating }: RunState): RondoError | undefined {
  const [first] = floating
  if (!first) return undefined
  const { label, failed } = first
  const what = failed ? 'had failed without being awaited' : 'was still open'
  const detail = `The handler returned while the ${label} ${what}. Await it, and everything else it starts.`
  return new RondoError('REPLAY_NOT_AWAITED', detail, { cause: failed?.error })
}

/** `instanceof` for anything an author throws: on a proxy, `instanceof` itself may throw. */
export function isA<T>(kind: new (...params: never[]) => T, thrown: unknown): thrown is T {
  try {
    return thrown instanceof kind
  } catch {
    return false
  }
}

/** Reads a member of anything an author throws; undefined if reading it throws. */
export function read(get: () => unknown): unknown {
  try {
    return get()
  } catch {
    return undefined
  }
}

export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
}
