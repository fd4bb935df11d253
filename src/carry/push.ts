/**
 * The push carrier, for clients that know no rounds: the questions go out as requests on the call's own stream, the
 * journal waits here in memory, and the handler runs again when all of them are answered. While it waits nothing of
 * the handler is held, only its journal.
 *
 * R6 under push. The flow's id never leaves this process, so there is nothing to put into the client's hands first and
 * an effect runs at once. Within the call every attempt has the same key (R7), also over a lost and resumed stream.
 * When the process dies, the call is lost with it: a client that calls again begins a new flow with new keys. An effect
 * that must not double over two calls needs a key of the author's own, from the arguments.
 *
 * A client that echoes `state` gets the sealed journal with each question, and then any instance can take the answer and
 * go on from there. Such questions are asked one after the other: two that are open at once could be answered to two
 * instances, and the call would fork. Where an answer must count only once (`once`), no state goes out, since the answer
 * that comes back to this process leaves no trace in the store.
 */

import { RondoError } from '../errors.ts'
import type { FlowCall, Line } from '../protocol/call.ts'
import { withoutMethods } from '../protocol/common/request.ts'
import type { Reply } from '../protocol/reply.ts'
import type { ClientCapabilities, InputRequests } from '../protocol/wire.ts'
import { FOREGROUND } from '../replay/context.ts'
import type { ReplayInput } from '../replay/replay.ts'
import type { Claims } from '../seal/state.ts'
import type { Carrier, Pause } from './carrier.ts'
import type { FlowHost } from './host.ts'
import { type Beginning, concludeRefused, logRound, type Round, type RoundRequest, runOnce } from './round.ts'
import { effectOnce } from './single-use.ts'
import { beginAtOnce } from './task/begin.ts'
import { claimsOf, firstRound } from './token.ts'

export interface AskOptions {
  /** How long to wait for the answers. */
  readonly timeoutMs: number
  /** Called now and then while it waits. */
  alive(): void
  /** The task whose questions these are. */
  readonly task?: string
  /** Under which ids and with which states the questions go out, where any instance can take their answers. */
  readonly handed?: Readonly<Record<string, Handed>>
  /** Fires when no answer is needed any more; the waiting then ends as refused. */
  readonly signal?: AbortSignal
}

export type Asked =
  | { readonly kind: 'answers'; readonly answers: Readonly<Record<string, unknown>> }
  /** No answers will come, or the client must not be asked now. `unable`: the key of a question whose method it does not know. */
  | { readonly kind: 'refused'; readonly error: RondoError; readonly unable?: string }
  /** The client has cancelled or is gone: nobody reads the result of the call. */
  | { readonly kind: 'gone' }

/** A question in the client's hands, with all that is needed to go on from its answer. */
export interface Handed {
  /** The id of the request. */
  readonly id: string
  /** The request, with what its response is to bring back. */
  attach(json: string): string
  /** False if the response brought something else back. */
  accepts(state: unknown): boolean
}

/** Seals what happened so far together with the questions. Nothing where it is too large for a state. */
export type Hand = (
  round: Round,
  claims: Claims,
  questions: InputRequests,
  told: number | undefined,
) => Promise<Readonly<Record<string, Handed>> | undefined>

/** The line to a client that can be asked while its call waits. */
export interface AskingLine extends Line {
  /** True while it waits, for an answer or for a task. */
  readonly waiting?: boolean
  /** Answers may reach any instance: the session is known to all of them. */
  readonly portable?: boolean
  /** Sends all questions at once; resolves when every one is answered. Never rejects. */
  ask(questions: InputRequests, options: AskOptions): Promise<Asked>
  /** For a call that waits for something else than an answer: what to do meanwhile. Gives the function that ends it. */
  rest(resting: Resting): () => void
}

export interface Resting {
  /** Called now and then. */
  alive(): void
  /** The server ends and waits no longer. */
  refuse(error: RondoError): void
}

/** What the next run starts from, or how the call ends. */
type Next = NextRun | { readonly kind: 'end'; readonly reply: Reply }

interface NextRun {
  readonly kind: 'run'
  readonly beginning: Beginning
  readonly answers?: FlowCall['inputResponses']
  /** What the client can do, as far as is known by now. */
  readonly capabilities: ClientCapabilities
}

const GONE: Reply = { kind: 'error', error: new RondoError('PEER_REQUEST', 'The call was cancelled') }

export interface PushOptions {
  readonly hand?: Hand
  /** Where the call continues, if another instance began it. */
  readonly from?: {
    readonly beginning: Beginning
    readonly answers: FlowCall['inputResponses']
    readonly told?: number
  }
}

/** A call and how its questions reach the client. */
interface Pushed {
  readonly request: RoundRequest & { readonly line: AskingLine }
  readonly steady: SteadyLine
  readonly hand?: Hand
}

interface PushedRound extends Round {
  readonly pushed: Pushed
  readonly isFirst: boolean
}

const pushCarrier: Carrier<{ pushed: Pushed; next: NextRun; isFirst: boolean }, Next, PushedRound> = {
  open({ pushed, next, isFirst }) {
    const { request, steady: line } = pushed
    const { beginning, answers: inputResponses, capabilities } = next
    const call = { ...request.call, capabilities, inputResponses, requestState: undefined }
    return { ...request, call, line, beginning, pushed, isFirst, began: request.host.platform.now() }
  },
  keep,
  end: (_round, reply) => ({ kind: 'end', reply }),
  begin: (round) => (round.isFirst ? beginAtOnce(round, false) : undefined) ?? refuseTooMany(round),
  // The journal is in this process and nowhere else: there is no other instance to move the call to.
  adapt: (round, input) => ({
    ...input,
    scene: { ...input.scene, background: FOREGROUND, once: onceHere(round) },
    mayMove: () => undefined,
  }),
}

/** Runs a call to its end. Rejects only with a `RondoError`. */
export async function runPushed(
  request: Pushed['request'],
  { hand, from }: PushOptions = {},
): Promise<Reply> {
  const { host, target, call, line } = request
  const steady = steadyLine(line, call.progressToken, from?.told)
  const mayHand = line.portable && !(target.once && host.store)
  const pushed: Pushed = { request, steady, hand: mayHand ? hand : undefined }
  const { capabilities } = call
  let next: Next = from
    ? { kind: 'run', beginning: from.beginning, answers: from.answers, capabilities }
    : { kind: 'run', beginning: { ...firstRound(host), anchored: true }, capabilities }
  for (let isFirst = true; next.kind === 'run'; isFirst = false) {
    next = await runOnce(pushCarrier, await pushCarrier.open({ pushed, next, isFirst }))
  }
  return next.reply
}

/** A flow that only this process knows belongs to the epoch that the store has now. */
function onceHere(round: Round): ReplayInput['scene']['once'] {
  const { host, beginning } = round
  const { store } = host
  if (!store) return undefined
  return async (key, branch, act) => {
    await host.keys.ready()
    const epoch = beginning.journal.epoch ?? (await store.once.epoch())
    const journal = { ...beginning.journal, epoch }
    return effectOnce({ ...round, beginning: { ...beginning, journal } }, store.once, { key, branch }, act)
  }
}

/** Keeps the journal in memory until the client has answered. */
async function keep(round: PushedRound, pause: Pause): Promise<Next> {
  const { host, beginning } = round
  const { request, steady, hand } = round.pushed
  const { capabilities } = round.call
  const { outcome, asks } = pause.facts
  logRound(round, pause.report, { outcome, asks })
  const { journal, asked, inputRequests: questions } = hand ? await readyToHand(host, pause) : pause
  const next: Beginning = { ...beginning, round: beginning.round + 1, journal, asked }
  if (questions === undefined) return { kind: 'run', beginning: next, capabilities }
  const left = beginning.flowExpires - host.platform.now()
  const isOne = Object.keys(questions).length === 1
  const handed = isOne
    ? await hand?.(round, claimsOf(round, journal, asked), questions, steady.told)
    : undefined
  const answered = await request.line.ask(questions, {
    timeoutMs: Math.min(host.limits.roundTtlMs, left),
    alive: () => steady.sign('Waiting for an answer'),
    handed,
  })
  if (answered.kind === 'answers')
    return { kind: 'run', beginning: next, answers: answered.answers, capabilities }
  if (answered.kind === 'gone') return { kind: 'end', reply: GONE }
  const unable = answered.unable === undefined ? undefined : questions[answered.unable]
  if (unable === undefined) return { kind: 'end', reply: concludeRefused(round, undefined, answered.error) }
  // It declared what it does not implement: the handler continues as for a client that cannot be asked.
  return { kind: 'run', beginning: next, capabilities: withoutMethods(capabilities, [unable.method]) }
}

/** The first question alone, unless the manual form wants all of them, and the epoch that the flow belongs to from now on. */
async function readyToHand({ store }: FlowHost, pause: Pause): Promise<Pause> {
  const { journal, asked, inputRequests = {}, report } = pause
  const epoch = journal.epoch ?? (await store?.once.epoch())
  const withEpoch = { ...pause, journal: { ...journal, epoch } }
  const [first] = Object.entries(inputRequests)
  if (report.ending.kind === 'returned' || first === undefined) return withEpoch
  const [key, question] = first
  return { ...withEpoch, asked: { [key]: asked[key] ?? '' }, inputRequests: { [key]: question } }
}

function refuseTooMany(round: Round): Reply | undefined {
  const { maxRounds } = round.host.limits
  if (round.beginning.round <= maxRounds) return undefined
  const error = new RondoError('LIMIT_ROUNDS', `The flow has had its ${maxRounds} rounds (limits.maxRounds).`)
  return concludeRefused(round, undefined, error)
}

/*
 * One request, many runs: under push the client sees a single call, and every run of its handler tells its past again.
 *
 * S1 Progress only grows over the whole call. S2 While the call waits, a sign of life is progress too: a hair more than
 * the last, so that clocks start anew and the handler's own next report still counts.
 */

export interface SteadyLine extends Line {
  /** The last progress that was told. */
  readonly told: number | undefined
  /** Progress that says no more than that the call is alive, for a client that asked for progress. */
  sign(message: string): void
}

const HAIR = 1e-6
/** Where a hair is lost in the rounding, this part of the number is not. */
const SMALLEST_PART = 1e-12

/** The smallest progress after this one that every client takes for more. */
export function justAbove(progress: number): number {
  return progress + Math.max(HAIR, Math.abs(progress) * SMALLEST_PART)
}

/** `before` is the last progress that another instance told. */
export function steadyLine(
  line: Line,
  progressToken: string | number | undefined,
  before?: number,
): SteadyLine {
  let last = before

  return {
    get told() {
      return last
    },
    get closed() {
      return line.closed
    },
    onClose: (listener) => line.onClose(listener),
    notify(method, params) {
      if (method === 'notifications/progress') {
        const progress = params.progress as number
        if (last !== undefined && !(progress > last)) return
        last = progress
      }
      line.notify(method, params)
    },
    sign(message) {
      if (progressToken === undefined) return
      last = last === undefined ? 0 : justAbove(last)
      line.notify('notifications/progress', { progressToken, progress: last, message })
    },
  }
}
