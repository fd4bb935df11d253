/**
 * Drives a multi-round call over the pure steps of `operation.ts`: send, vet, let the policies look, have the questions
 * answered, send again (C6). What it holds between two steps is a pending call and nothing more.
 */

import { RondoError } from '../errors.ts'
import type { Notice, Received } from '../protocol/received.ts'
import type { LogLevel } from '../protocol/wire.ts'
import type { Answers } from './answers.ts'
import { sleep } from './clock.ts'
import { displayText } from './display-text.ts'
import type { FlowRequest, FlowResult } from './flow-request.ts'
import { fulfil } from './fulfil.ts'
import { openLeg } from './leg.ts'
import { type Limits, withLimits } from './limits.ts'
import { ask, deadlineOf, type FlowLeg, legOf, pauseOf } from './operation.ts'
import type { Peer, SendOptions } from './peer.ts'
import { PeerError } from './peer-error.ts'
import { openQuestions, type PendingCall } from './pending.ts'
import { capabilitiesFor, type QuestionKind } from './question.ts'
import { applyPolicies, type RoundPolicy } from './round-policy.ts'
import type { ToolBook } from './tool-book.ts'
import { vetRound } from './vet-round.ts'

/** What `start` and `resume` give: the result, or a call that waits for answers. */
export type Step<R extends FlowRequest = FlowRequest> =
  | { readonly status: 'complete'; readonly result: FlowResult<R>; readonly rounds: number }
  | { readonly status: 'input_required'; readonly pending: PendingCall<R> }

type CallLimits = Pick<Limits, 'maxRounds' | 'timeout' | 'deadline' | 'countHumanTime'>

export interface FlowOptions extends Partial<CallLimits> {
  /** Cancels the call, whatever it is doing. */
  readonly signal?: AbortSignal
  readonly onProgress?: (progress: Extract<Notice, { kind: 'progress' }>) => void
  readonly onLog?: (log: Extract<Notice, { kind: 'log' }>) => void
  readonly logLevel?: LogLevel
  /** Looks at every round before it is answered, after the client's own policies. */
  readonly onRound?: RoundPolicy | readonly RoundPolicy[]
  /** Sees the call whenever it changed, before anything else happens: write it down here to survive a crash. */
  readonly onPending?: (pending: PendingCall) => void | Promise<void>
  /** `traceparent` and its kin, sent with every leg. */
  readonly trace?: Readonly<Record<string, string>>
}

export interface Flows {
  readonly peer: Peer
  readonly answers: Answers
  readonly policies: readonly RoundPolicy[]
  readonly tools: ToolBook
  /** Lists the tools anew. */
  refreshTools(options: SendOptions): Promise<unknown>
}

interface Driving extends FlowOptions {
  /** What may be asked in this call. */
  readonly kinds: ReadonlySet<QuestionKind>
  /** Stop after every round, also where there is nothing to answer. */
  readonly everyRound?: boolean
}

/** Runs the call to its end, from wherever it is; handlers answer. */
export async function runFlow<R extends FlowRequest>(
  flows: Flows,
  begun: PendingCall<R>,
  options: Driving,
): Promise<Extract<Step<R>, { status: 'complete' }>> {
  let pending = begun
  for (;;) {
    if (openQuestions(pending).length > 0) pending = await answerRound(flows, pending, options)
    const step = await advance(flows, pending, options)
    if (step.status === 'complete') return step
    pending = step.pending
  }
}

/** Sends the call on until the server asks something or is done. */
export async function advance<R extends FlowRequest>(
  flows: Flows,
  begun: PendingCall<R>,
  options: Driving,
): Promise<Step<R>> {
  let pending = begun
  for (;;) {
    const step = await sendOnce(flows, pending, options)
    if (step.status === 'complete') return step
    await options.onPending?.(step.pending)
    pending = step.pending
    if (options.everyRound || openQuestions(pending).length > 0) return step
  }
}

async function answerRound<R extends FlowRequest>(
  flows: Flows,
  pending: PendingCall<R>,
  options: Driving,
): Promise<PendingCall<R>> {
  const { clock } = flows.peer
  const limits = withLimits(options, flows.peer.limits)
  const deadlineAt = limits.countHumanTime ? deadlineOf(pending, limits, clock.now()) : undefined
  const time = openLeg(clock, { timeout: Number.POSITIVE_INFINITY, deadlineAt }, options.signal)
  try {
    return await fulfil(pending, { answers: flows.answers, signal: time.signal, onAnswer: options.onPending })
  } finally {
    time.end()
  }
}

async function sendOnce<R extends FlowRequest>(
  flows: Flows,
  pending: PendingCall<R>,
  options: Driving,
): Promise<Step<R>> {
  const { peer } = flows
  const limits = withLimits(options, peer.limits)
  const startedAt = peer.clock.now()
  const deadlineAt = deadlineOf(pending, limits, startedAt)
  const leg = legOf(pending)
  const pause = pauseOf(pending)
  // A call that lay for a while need not wait; one from a machine whose clock is ahead waits no longer than others.
  const wait = Math.min(pause, pending.askedAt + pause - startedAt, deadlineAt - startedAt)
  if (wait > 0) await sleep(peer.clock, wait, options.signal)
  if (peer.clock.now() >= deadlineAt) throw new RondoError('LIMIT_CLIENT_DEADLINE')
  const received = await sendLeg(flows, leg, sendOptions(options, limits, deadlineAt))
  if (received.kind === 'error') throw new PeerError(received.error)
  if (received.kind === 'complete') {
    return { status: 'complete', result: received.result as unknown as FlowResult<R>, rounds: pending.round }
  }
  const { state } = received
  const questions = vetRound(received, limits, options.kinds)
  const now = peer.clock.now()
  const asked = ask(pending, { questions, state, now, tookMs: now - startedAt }, limits)
  const own = options.onRound === undefined ? [] : [options.onRound].flat()
  return { status: 'input_required', pending: await applyPolicies(asked, [...flows.policies, ...own]) }
}

const HEADER_MISMATCH = -32020

/**
 * Sends one leg. A server that misses a mirrored argument has done nothing yet: its tools are listed anew, and if that
 * teaches something the leg is sent once more.
 */
async function sendLeg(flows: Flows, leg: FlowLeg, options: SendOptions): Promise<Received> {
  const { peer, tools } = flows
  if (leg.method !== 'tools/call' || peer.transport.kind === 'stdio') return peer.send(leg, options)
  const mirrored = tools.mirrored(leg.target)
  const received = await peer.send(leg, { ...options, mirrored })
  if (received.kind !== 'error' || received.error.code !== HEADER_MISMATCH) return received
  await flows.refreshTools(options)
  const fresh = tools.mirrored(leg.target)
  if (fresh === undefined || JSON.stringify(fresh) === JSON.stringify(mirrored)) return received
  return peer.send(leg, { ...options, mirrored: fresh })
}

function sendOptions(options: Driving, limits: Limits, deadlineAt: number): SendOptions {
  const { onProgress, onLog, logLevel } = options
  return {
    signal: options.signal,
    timeout: limits.timeout,
    deadlineAt,
    capabilities: capabilitiesFor(options.kinds),
    progress: onProgress !== undefined,
    logLevel: logLevel ?? (onLog && 'info'),
    trace: options.trace,
    onNotice(notice) {
      if (notice.kind === 'progress') onProgress?.({ ...notice, message: shown(notice.message) })
      else if (notice.kind === 'log')
        onLog?.({ ...notice, data: shown(notice.data), logger: shown(notice.logger) })
    },
  }
}

/** Texts are for people to read; other data is handed over as it is. */
function shown<T>(value: T): T {
  return (typeof value === 'string' ? displayText(value) : value) as T
}
