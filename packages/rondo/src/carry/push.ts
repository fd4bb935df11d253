/**
 * The push carrier, for clients without rounds: questions go out as requests on the call's own stream, and the handler runs
 * again when all of them are answered. Meanwhile only the journal is held, in memory.
 *
 * R6 Without a store, the flow's id never leaves this process, so an effect runs at once. Every attempt within the call has
 * the same key (R7), even if the stream is lost and resumed. If the process dies, the call is lost, and a client that calls
 * again begins a new flow with new keys. An effect that must not happen twice needs a key that the author derives from the
 * arguments.
 *
 * In a session with a store, a call is kept there before its first effect, before the first that can be undone, and before its
 * questions go out (`AskingLine.keep`, `AskOptions.kept`). If the process dies from then on, another continues the call under the
 * same keys when the client resumes its stream (R7).
 *
 * A client that echoes `state` gets the sealed journal with each question, so that any instance can continue from the
 * answer. Such questions are asked one at a time: the answers to two could reach two instances, and the call would fork.
 * With `once` no state goes out, because an answer that returns to this process leaves no trace in the store.
 *
 * The client sees one call over many runs, so its progress never falls.
 */

import { RondoError } from '../errors.ts'
import type { FlowCall, Line } from '../protocol/call.ts'
import { withoutMethods } from '../protocol/common/request.ts'
import type { Reply } from '../protocol/reply.ts'
import type { ClientCapabilities, InputRequests } from '../protocol/wire.ts'
import { type Background, CAN_LEAVE, FOREGROUND, type ReplayInput } from '../replay/input.ts'
import type { Claims } from '../seal/state.ts'
import {
  type Beginning,
  type Carrier,
  type Pause,
  type Round,
  type RoundRequest,
  taskHostFor,
  whyNoTask,
} from './carrier.ts'
import type { FlowHost } from './host.ts'
import { leavePermit } from './permit.ts'
import { concludeRefused, logRound, runOnce } from './round.ts'
import { effectOnce, epochOf } from './single-use.ts'
import { beginAtOnce, continueAsTask, queueAsTask } from './task/begin.ts'
import { claimsOf, firstRound } from './token.ts'
import { undoGone, undoingIn } from './undo.ts'

export interface AskOptions {
  /** The time to wait for the answers. */
  readonly timeoutMs: number
  /** The task that asks. */
  readonly task?: string
  /** Trace context that goes with the questions: the span of the round that asks. */
  readonly trace?: Readonly<Record<string, string>>
  /** The questions whose answers any instance can accept, by key. */
  readonly handed?: Readonly<Record<string, PortableQuestion>>
  /** Fires when the time of a question is up: asking then ends with the answers that are there, and the rest is withdrawn. */
  readonly enough?: AbortSignal
  /** Fires when no answer is needed any more; asking then ends as refused. */
  readonly signal?: AbortSignal
  /** The call as another instance needs it, should this one die. */
  readonly kept?: StoredCall
}

/** A call as it waits. */
export interface StoredCall {
  readonly claims: Claims
  /** The last progress that was reported. */
  readonly progress?: number
  /** When the first of the questions closes by itself, ms since the epoch. */
  readonly due?: number
}

export type Asked =
  | { readonly kind: 'answers'; readonly answers: Readonly<Record<string, unknown>> }
  /** No answers will come, or the client cannot be asked now. `unable`: the key of a question whose method it does not know. */
  | { readonly kind: 'refused'; readonly error: RondoError; readonly unable?: string }
  /** The client has cancelled the call or disconnected. */
  | { readonly kind: 'gone' }
  /** Another instance continues the call. */
  | { readonly kind: 'left' }

/** A question that goes out with a sealed journal, so that any instance can continue from its answer. */
export interface PortableQuestion {
  /** The id of the request. */
  readonly id: string
  /** Adds the state to the request. */
  attach(json: string): string
  /** False if the response echoes another state. */
  accepts(state: unknown): boolean
}

/** Seals the journal together with the questions. Returns nothing if it is too large for a state. */
export type MakePortable = (
  round: Round,
  claims: Claims,
  questions: InputRequests,
  progress: number | undefined,
) => Promise<Readonly<Record<string, PortableQuestion>> | undefined>

/** The line to a client that can be asked while its call waits. */
export interface AskingLine extends Line {
  /** True while the call waits for an answer or a task. */
  readonly waiting?: boolean
  /** True if every instance knows the session, so that answers may reach any of them. */
  readonly portable?: boolean
  /** True if a call that waits is kept in a store, where another instance finds it. */
  readonly durable?: boolean
  /** Sends all questions at once; resolves when all of them are answered. Never rejects. */
  ask(questions: InputRequests, options: AskOptions): Promise<Asked>
  /** Keeps a call before an effect, so that another instance can continue it. Rejects if it cannot be kept. */
  keep?(kept: StoredCall): Promise<void>
  /** Begins a wait for something other than an answer. Returns a function that ends it. */
  rest(resting: Resting): () => void
}

export interface Resting {
  /** Called when the server shuts down. */
  refuse(error: RondoError): void
  /** The task that the call waits for. With a store, another instance can continue the wait. */
  readonly task?: string
}

/** The next run, the questions to ask before it, or the end of the call. */
type Next = NextRun | Parked | { readonly kind: 'end'; readonly reply: Reply }

/** A call that waits for answers. It does not refer to the arguments, which may be large, nor to the run that asks. */
interface Parked extends AskedFor {
  readonly kind: 'parked'
  /** The round that asks, without its arguments. */
  readonly round: PushedRound
  readonly questions: InputRequests
  readonly options: AskOptions
  readonly limit: TimeLimit | undefined
}

interface NextRun {
  readonly kind: 'run'
  readonly beginning: Beginning
  readonly answers?: FlowCall['inputResponses']
  /** When the answers arrived, if not now. */
  readonly arrivedAt?: number
  /** The client's capabilities, without those that it turned out to lack. */
  readonly capabilities: ClientCapabilities
}

const GONE: Reply = { kind: 'error', error: new RondoError('PEER_REQUEST', 'The call was cancelled') }

export interface PushOptions {
  readonly hand?: MakePortable
  /** Where the call continues, if another instance began it. */
  readonly from?: {
    readonly beginning: Beginning
    readonly answers: FlowCall['inputResponses']
    readonly progress?: number
    /** Waits for the answers that are missing. */
    readonly pending?: () => Promise<Asked>
    /** The methods of the questions, by key. */
    readonly methods?: AskedFor['methods']
  }
}

/** A call and how its questions reach the client. */
interface Pushed {
  readonly request: RoundRequest & { readonly line: AskingLine }
  readonly steady: SteadyLine
  readonly hand?: MakePortable
}

interface PushedRound extends Round {
  readonly pushed: Pushed
  readonly isFirst: boolean
  readonly arrivedAt?: number
}

const pushCarrier: Carrier<{ pushed: Pushed; next: NextRun; isFirst: boolean }, Next, PushedRound> = {
  open({ pushed, next, isFirst }) {
    const { request, steady: line } = pushed
    const { host, target, principal } = request
    const { beginning, answers: inputResponses, capabilities, arrivedAt } = next
    const call = { ...request.call, capabilities, inputResponses, requestState: undefined }
    const began = host.platform.now()
    // Member by member, as in `token.ts`: a spread that is followed by new members costs more than the rest.
    return { host, target, principal, call, line, beginning, pushed, isFirst, arrivedAt, began }
  },
  keep,
  end: (_round, reply) => ({ kind: 'end', reply }),
  leave: queueAsTask,
  begin: (round) => (round.isFirst ? beginAtOnce(round, false) : undefined) ?? refuseTooMany(round),
  // There is no other instance to move the call to, unless one has taken it.
  adapt: (round, input) => ({
    ...input,
    incoming: { arrivedAt: round.arrivedAt, ...input.incoming },
    background: backgroundOf(round),
    once: onceHere(round),
    undoing: undoingIn(round, round.beginning.journal.lineage !== undefined || isOnlyHere(round.pushed)),
    mayMove: () => (round.line.left ? 'drain' : undefined),
  }),
}

/** A client of this era asks for a task with its request, or not at all; only through tools can it reach a later one. */
function backgroundOf(round: Round): Background {
  return round.host.tasks?.tools && taskHostFor(round)
    ? CAN_LEAVE
    : { whyNot: (what) => whyNoTask(round, what), ...FOREGROUND }
}

/** Runs a call to its end. Rejects only with a `RondoError`. */
export async function runPushed(
  request: Pushed['request'],
  { hand, from }: PushOptions = {},
): Promise<Reply> {
  const { host, target, call, line } = request
  const steady = new SteadyLine(line, from?.progress)
  const mayHand = line.portable && !(target.once && host.store)
  const pushed: Pushed = { request, steady, hand: mayHand ? hand : undefined }
  const { capabilities } = call
  let next: Next = from
    ? { kind: 'run', beginning: from.beginning, answers: from.answers, capabilities }
    : { kind: 'run', beginning: { ...firstRound(host), anchored: !isStoredFirst(pushed) }, capabilities }
  if (from?.pending) {
    const round = withoutArguments(await pushCarrier.open({ pushed, next, isFirst: false }))
    const answered = await from.pending()
    next = await afterAsking(round, answered, { beginning: from.beginning, methods: from.methods ?? {} })
  }
  for (let isFirst = true; next.kind !== 'end'; isFirst = false) {
    next = next.kind === 'parked' ? await askParked(next) : await runNext(pushed, next, isFirst)
  }
  return next.reply
}

async function runNext(pushed: Pushed, next: NextRun, isFirst: boolean): Promise<Next> {
  return runOnce(pushCarrier, await pushCarrier.open({ pushed, next, isFirst }))
}

async function askParked({ round, questions, options, limit, beginning, methods }: Parked): Promise<Next> {
  const answered = await round.pushed.request.line.ask(questions, options).finally(limit?.stop)
  return afterAsking(round, answered, { beginning, methods, arrivedAt: limit?.arrivedAt() })
}

/** True if the call has to be kept before its first effect, and before the first that can be undone. */
function isStoredFirst({ request: { line }, hand }: Pushed): boolean {
  return !hand && line.durable === true && line.keep !== undefined
}

/** True if no other instance can continue the call: none has to know its line of history before an effect that can be undone. */
function isOnlyHere(pushed: Pushed): boolean {
  return !pushed.hand && !isStoredFirst(pushed)
}

/** A flow that only this process knows belongs to the store's current epoch. */
function onceHere(round: Round): ReplayInput['once'] {
  const { host, beginning } = round
  const { store } = host
  if (!store) return undefined
  return async (key, branch, act) => {
    await host.keys.ready()
    const epoch = beginning.journal.epoch ?? (await epochOf(host, true))
    const journal = { ...beginning.journal, epoch }
    const within = { ...round, beginning: { ...beginning, journal } }
    // Nobody sends the call again: it waits until the slot of an instance that died is free.
    return effectOnce(within, store.once, { key, branch }, act, 2 * host.leaseMs)
  }
}

/** Returns what has to be asked, and the journal, which is kept in memory until the client has answered. */
async function keep(round: PushedRound, pause: Pause): Promise<Next> {
  const { outcome, asks, moved } = pause.facts
  if (round.line.left) {
    logRound(round, pause.report, { outcome, asks, moved })
    return { kind: 'end', reply: GONE }
  }
  if (pause.leaves) return { kind: 'end', reply: await continueAsTask(round, pause.report) }
  const { host, beginning } = round
  const { request, steady, hand } = round.pushed
  const { capabilities } = round.call
  logRound(round, pause.report, { outcome, asks })
  const isBeforeEffect = !beginning.anchored || pause.journal.lineage !== beginning.journal.lineage
  const isDurable = isStoredFirst(round.pushed) && (pause.inputRequests !== undefined || isBeforeEffect)
  const ready = hand ? await readyToHand(host, pause) : isDurable ? await withEpoch(host, pause) : pause
  const { journal, asked, inputRequests: questions } = ready
  const askedAt = questions === undefined ? undefined : host.platform.now()
  const next: Beginning = {
    flow: beginning.flow,
    round: beginning.round + 1,
    journal,
    asked,
    flowExpires: beginning.flowExpires,
    anchored: true,
    sealedVersion: beginning.sealedVersion,
    askedAt,
  }
  if (questions === undefined) {
    if (!isDurable) return { kind: 'run', beginning: next, capabilities }
    await request.line.keep?.({ claims: claimsOf(round, journal, asked), progress: steady.progress })
    if (!request.line.closed) return { kind: 'run', beginning: next, capabilities }
    // Nothing is kept of a call whose client has gone meanwhile, so its effect must not begin.
    const kind = (await request.line.isTaken?.()) ? 'left' : 'gone'
    return afterAsking(round, { kind }, { beginning: next, methods: {} })
  }
  const left = beginning.flowExpires - host.platform.now()
  const isOne = Object.keys(questions).length === 1
  const handed =
    isOne && journal.lineage === undefined
      ? await hand?.(round, claimsOf(round, journal, asked), questions, steady.progress)
      : undefined
  const limit = timeLimit(host, pause)
  const options: AskOptions = {
    timeoutMs: Math.min(host.limits.roundTtlMs, left),
    trace: round.observed?.trace,
    handed,
    enough: limit?.signal,
    kept: isDurable
      ? { claims: claimsOf(round, journal, asked), progress: steady.progress, due: limit?.due }
      : undefined,
  }
  const methods = Object.fromEntries(Object.entries(questions).map(([key, { method }]) => [key, method]))
  return {
    kind: 'parked',
    round: withoutArguments(round),
    questions,
    options,
    limit,
    beginning: next,
    methods,
  }
}

function withoutArguments(round: PushedRound): PushedRound {
  return { ...round, call: { ...round.call, args: {}, inputResponses: undefined } }
}

interface AskedFor {
  /** The beginning of the next run. */
  readonly beginning: Beginning
  /** The methods of the questions, by key. */
  readonly methods: Readonly<Record<string, InputRequests[string]['method']>>
  readonly arrivedAt?: number
}

/** Returns the next run, or the end of the call, which needs its permit no more unless another instance continues it. */
async function afterAsking(round: PushedRound, answered: Asked, asked: AskedFor): Promise<Next> {
  const next = await toNext(round, answered, asked)
  if (next.kind === 'end' && answered.kind !== 'left') await leavePermit(round, asked.beginning.journal)
  return next
}

async function toNext(
  round: PushedRound,
  answered: Asked,
  { beginning, methods, arrivedAt }: AskedFor,
): Promise<Next> {
  const { capabilities } = round.call
  if (answered.kind === 'answers')
    return { kind: 'run', beginning, answers: answered.answers, arrivedAt, capabilities }
  if (answered.kind === 'left') return { kind: 'end', reply: GONE }
  if (answered.kind === 'gone') {
    await undoGone(round.host, beginning.journal)
    return { kind: 'end', reply: GONE }
  }
  const unable = answered.unable === undefined ? undefined : methods[answered.unable]
  if (unable === undefined) {
    await undoGone(round.host, beginning.journal)
    return { kind: 'end', reply: concludeRefused(round, undefined, answered.error) }
  }
  // The client does not implement what it declared: the handler continues as for a client that cannot be asked.
  return { kind: 'run', beginning, capabilities: withoutMethods(capabilities, [unable]) }
}

interface TimeLimit {
  readonly signal: AbortSignal
  readonly due: number
  stop(): void
  /** When the answers arrived, if their time was up since: what is there at that moment came in time. */
  arrivedAt(): number | undefined
}

/** The time after which the first of the questions closes by itself, if one does. */
function timeLimit({ platform }: FlowHost, { report: { ending } }: Pause): TimeLimit | undefined {
  const dues = ending.kind === 'asking' ? [...ending.questions.values()].flatMap(({ due }) => due ?? []) : []
  return dues.length === 0 ? undefined : limitAt(platform, Math.min(...dues))
}

/** Returns the time limit that ends at `due`, ms since the epoch. */
export function limitAt(platform: FlowHost['platform'], due: number): TimeLimit {
  const enough = new AbortController()
  let cancel = (): void => {}
  const arm = (): void => {
    const left = due - platform.now()
    if (left <= 0) enough.abort()
    else cancel = platform.after(left, arm)
  }
  arm()
  return {
    signal: enough.signal,
    due,
    stop: () => cancel(),
    arrivedAt: () => (enough.signal.aborted ? due - 1 : undefined),
  }
}

/** Reduces the pause to its first question, unless the manual form asks, and adds the epoch that the flow belongs to from now on. */
async function readyToHand(host: FlowHost, pause: Pause): Promise<Pause> {
  const { asked, inputRequests = {}, report } = pause
  const kept = await withEpoch(host, pause)
  const [first] = Object.entries(inputRequests)
  if (report.ending.kind === 'returned' || first === undefined) return kept
  const [key, question] = first
  return { ...kept, asked: { [key]: asked[key] ?? '' }, inputRequests: { [key]: question } }
}

/** From now on the flow belongs to an epoch of the store: its effects may run on another instance. */
async function withEpoch(host: FlowHost, pause: Pause): Promise<Pause> {
  const { journal } = pause
  return { ...pause, journal: { ...journal, epoch: journal.epoch ?? (await host.epoch()) } }
}

function refuseTooMany(round: Round): Reply | undefined {
  const { maxRounds } = round.host.limits
  if (round.beginning.round <= maxRounds) return undefined
  const error = new RondoError(
    'LIMIT_ROUNDS',
    `The flow has used all of its ${maxRounds} rounds (limits.maxRounds).`,
  )
  return concludeRefused(round, undefined, error)
}

/**
 * A line whose progress never falls, over all runs of a call. A class, because one is created for every call (see
 * `RunContext`).
 */
export class SteadyLine implements Line {
  readonly #line: Line
  /** The last progress that was reported. */
  progress: number | undefined

  /** `before` is the last progress that another instance reported. */
  constructor(line: Line, before?: number) {
    this.#line = line
    this.progress = before
  }

  get closed(): boolean {
    return this.#line.closed
  }

  get left(): boolean {
    return this.#line.left === true
  }

  async isTaken(): Promise<boolean> {
    return (await this.#line.isTaken?.()) === true
  }

  onClose(listener: () => void): () => void {
    return this.#line.onClose(listener)
  }

  notify(method: string, params: Record<string, unknown>): void {
    if (method === 'notifications/progress') {
      const progress = params.progress as number
      if (this.progress !== undefined && !(progress > this.progress)) return
      this.progress = progress
    }
    this.#line.notify(method, params)
  }
}
