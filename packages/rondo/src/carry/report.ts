/**
 * Reports a request beyond its reply: a log line for each round, faults and warnings for the operator, the outcome for
 * telemetry, and the error for the client.
 */

import { type ErrorCode, isStoreFault, RondoError, ToolError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import type { LogPlace, RoundEvent, RoundLine, StateRefusedEvent } from '../log/event.ts'
import type { Call, ListenCall, OlderCall } from '../protocol/call.ts'
import { methodOf } from '../protocol/common/json-rpc.ts'
import type { Observed, ObservedOperation, OperationEnd } from '../protocol/observer.ts'
import type { OlderReply, Reply } from '../protocol/reply.ts'
import type { FailedAttempt } from '../replay/input.ts'
import type { RunReport } from '../replay/run-state.ts'
import { originOf } from '../replay/work.ts'
import type { RefusedState } from '../seal/state.ts'
import type { TaskHead } from '../store/task-engine.ts'
import type { Target } from '../tool/target.ts'
import { placeOf, type Round, type RoundRequest, subjectOf } from './carrier.ts'
import type { FlowHost } from './host.ts'

/** The facts about the end of a round that are logged. */
export type RoundFacts = Pick<
  RoundEvent,
  'outcome' | 'asks' | 'events' | 'moved' | 'task' | 'code' | 'stateBytes' | 'keyId'
>

/** The end of a task's last turn. */
interface TurnEnd {
  readonly outcome: RoundFacts['outcome']
  readonly code?: RoundFacts['code']
}

/** The ends of last turns that are not in the store yet. */
const ends = new WeakMap<TaskHead, TurnEnd>()

export function noteEnd(task: TaskHead, { outcome, code }: TurnEnd): void {
  ends.set(task, { outcome, code })
}

export function notedEnd(task: TaskHead): TurnEnd | undefined {
  return ends.get(task)
}

/** Passes on how a round ended, to whoever listens: telemetry, the log, the tracer of development mode. */
export function reportRound(round: Round, report: RunReport | undefined, facts: RoundFacts): void {
  const { host, call, target, beginning, began } = round
  const changed = beginning.anchored && beginning.sealedVersion !== target.version
  const now = host.platform.now()
  if (round.row) noteEnd(round.row, facts)
  round.observed?.end({
    outcome: facts.outcome,
    code: facts.code,
    asks: facts.asks?.length,
    moved: facts.moved,
    task: facts.task,
    replayed: report?.replayed,
    executed: report?.executed,
    stateBytes: facts.stateBytes,
  })
  const upstream = target.upstream?.()
  const event: RoundLine = {
    event: 'round',
    flow: beginning.flow,
    round: beginning.round,
    method: call.method,
    target: target.label ?? call.target,
    outcome: facts.outcome,
    asks: facts.asks,
    events: facts.events,
    moved: facts.moved,
    task: facts.task ?? round.task?.task,
    turn: round.task?.turn,
    code: facts.code,
    replayed: report?.replayed ?? 0,
    executed: report?.executed ?? 0,
    stateBytes: facts.stateBytes,
    keyId: facts.keyId,
    sealedVersion: changed ? beginning.sealedVersion : undefined,
    protocolVersion: upstream && call.protocolVersion,
    upstream: upstream?.name,
    upstreamVersion: upstream?.revision,
    ms: now - began,
  }
  host.log(event)
  host.tracer?.end(event, round.trace, beginning.journal, report)
}

export function logFault(round: Round, error: unknown): void {
  // The log has already said that the store fails.
  if (isStoreFault(error) && round.host.storeWatch?.requestFailed()) return
  round.host.log({ event: 'fault', ...placeOf(round), ...subjectOf(round), error })
}

/** Reports an attempt that failed and will be retried. */
export function reportRetry(round: Round, { kind, key, attempt, due, error }: FailedAttempt): void {
  const { host } = round
  const { method, target } = requestOf(round)
  host.observer?.count?.({ kind: 'retry', work: kind, method, target })
  const delayMs = Math.max(0, due - host.platform.now())
  host.log({
    event: 'retry',
    ...placeOf(round),
    ...subjectOf(round),
    work: kind,
    key,
    attempt,
    delayMs,
    error,
  })
}

/** Logs why a state did not open. The client does not learn it. */
export function logStateRefused(
  host: FlowHost,
  opened: Omit<RefusedState, 'kind' | 'reason'> & { readonly reason: string },
  request: Pick<StateRefusedEvent, 'method' | 'target'> = {},
): void {
  const { reason, keyId, flow, round } = opened
  const place = flow === undefined || round === undefined ? {} : { flow, round: round + 1 }
  host.log({ event: 'state_refused', ...place, ...request, reason, keyId })
}

/** Tells telemetry that a round begins. */
export function observeRound(round: Round): Observed | undefined {
  return round.host.observer?.begin?.(roundOperation(round))
}

/** A failed round, for telemetry. */
export function toEnd(error: unknown): OperationEnd {
  if (!(error instanceof RondoError)) return { outcome: 'refused', code: 'SERVER_INTERNAL' }
  return { outcome: 'refused', code: error.code, rpc: error.rpc }
}

/** A request that was refused before its round began, because its state did not open. */
export function observeRefused(request: RoundRequest, began: number, error: unknown): void {
  const operation = { kind: 'request' as const, ...requestOf(request), began }
  request.host.observer?.begin?.(operation)?.end(toEnd(error))
}

function requestOf({
  call,
  target,
}: RoundRequest): Pick<ObservedOperation, 'method' | 'target' | 'requestId' | 'protocolVersion' | 'trace'> {
  const { id: requestId, method, protocolVersion, trace } = call
  // The URI of a resource may contain arguments.
  const name = method === 'resources/read' ? undefined : target.name
  return { method, target: name, requestId, protocolVersion, trace }
}

function roundOperation(round: Round): ObservedOperation {
  const { beginning, task, wokenBy, began } = round
  const { askedAt, journal } = beginning
  return {
    kind: task ? 'turn' : 'round',
    ...requestOf(round),
    began,
    ...placeOf(round),
    spans: journal.spans,
    wokenBy,
    waitedMs: askedAt === undefined ? undefined : Math.max(0, began - askedAt),
  }
}

/** The spans that the next round, on whatever instance, links to. */
export function spansOf({ beginning, observed }: Round): Journal['spans'] {
  const { spans } = beginning.journal
  const span = observed?.span
  return span === undefined ? spans : [spans?.[0] ?? span, span]
}

/** The journal with the spans that the next round links to. */
export function withSpans(round: Round): Journal {
  const { journal } = round.beginning
  const spans = spansOf(round)
  // A new member comes before the spread: after it, it would give every journal a shape of its own.
  return journal.spans === undefined ? { spans, ...journal } : { ...journal, spans }
}

/** The advice that each target got in development. */
const advised = new WeakMap<Target, Set<string>>()

/** Warns once for each target and subject. */
function adviseOnce({ host, target, ...at }: Round, subject: string, message: string): void {
  const subjects = advised.get(target) ?? new Set()
  if (subjects.has(subject)) return
  advised.set(target, subjects.add(subject))
  host.log({ event: 'warning', ...placeOf(at), message })
}

/** Says that a handler creates schemas that could outlive it. */
export function adviseHoisting(round: Round, keys: readonly string[]): void {
  const [is, them] =
    keys.length === 1 ? ['schema of the question', 'it'] : ['schemas of the questions', 'them']
  const names = keys.map((key) => `"${key}"`).join(', ')
  const message =
    `"${round.target.name}" creates the ${is} ${names} in its handler, again in every round. ` +
    `Creating ${them} once, outside the handler, costs less.`
  adviseOnce(round, 'hoisting', message)
}

/** Says that a handler performs an effect without the outcome of a confirmation that it asked for before. */
export function adviseOutrun(round: Round, effect: string, confirmation: string): void {
  const message =
    `"${round.target.name}" begins the ${effect} without the outcome of the ${confirmation}, as after a Promise.race that ` +
    'the confirmation lost, or an async function that asks for it and that nothing awaits: a No changes nothing. ' +
    'If the effect needs a Yes, await the confirmation; its option "within" limits how long. If not, call the effect first.'
  adviseOnce(round, `${effect} ${confirmation}`, message)
}

/** Says that a handler or its definition wants a task, and that this server has no store that could keep one. */
export function adviseStore(round: Round, wants: string): void {
  const message =
    `"${round.target.name}" ${wants}, but this server has no store, so its calls stay in rounds and end with their process. ` +
    'Pass one: createServer({ store }).'
  adviseOnce(round, `store ${wants}`, message)
}

// Failed calls: the reply to the client, the outcome in the round's log line, and the fault that an
// author or operator has to see. It decides and logs nothing itself.
//
// A model can act on some errors, so a tool call returns those as a result with `isError`. Everything else is a JSON-RPC
// error.

/** Where errors were thrown, for the line that reports them. */
const places = new WeakMap<object, LogPlace>()

/** Notes the round in which an error was thrown. The innermost one counts. */
export function recordPlace(error: unknown, place: LogPlace): void {
  if (typeof error === 'object' && error !== null && !places.has(error)) places.set(error, place)
}

export function placeOfError(error: unknown): LogPlace {
  return (typeof error === 'object' && error !== null && places.get(error)) || {}
}

export interface Failure {
  readonly reply: Reply
  readonly outcome: 'tool_error' | 'refused'
  /** The code of a refusal. */
  readonly code?: ErrorCode
  readonly fault?: { readonly error: unknown }
}

/** The handler threw. A `ToolError` was written for the client to read; a `RondoError` ends the call as an error. */
export function thrown(target: Target, error: unknown, dev: boolean): Failure {
  const outcome = 'tool_error'
  if (error instanceof ToolError) return { outcome, reply: toFailure(target, error.message) }
  if (error instanceof RondoError && error.rpc !== 0) return { outcome, reply: { kind: 'error', error } }
  const detail = dev ? `: ${error instanceof Error ? error.message : String(error)}` : ''
  return {
    outcome,
    reply: toFailure(target, `${target.name} failed${detail}`),
    fault: { error: originOf(error) },
  }
}

/** Errors that a model can act on. */
const READ_AS_RESULT: ReadonlySet<ErrorCode> = new Set([
  'INPUT_REJECTED',
  'INPUT_FAILED',
  'INPUT_TIMEOUT',
  'LIMIT_PARKED',
  'LIMIT_SLEEP',
  'LIMIT_RETRY',
])

/** Limits that a handler runs into. Its author has to see where, and the round's line has only the code. */
const OF_AUTHORS: ReadonlySet<ErrorCode> = new Set(['LIMIT_STATE_BYTES', 'LIMIT_ENTRIES', 'LIMIT_QUESTIONS'])

/** The runtime refuses to continue. Answers that never arrive or never fit end a tool call as its own failure. */
export function refusal(target: Target, error: RondoError, dev: boolean): Failure {
  const { code } = error
  const isAuthors = code.startsWith('REPLAY_')
  const fault = isAuthors || OF_AUTHORS.has(code) || isStoreFault(error) ? { error } : undefined
  const failure = { outcome: 'refused', code, fault } as const
  if (READ_AS_RESULT.has(code)) return { ...failure, reply: toFailure(target, error.sentence) }
  if (isAuthors && dev) return { ...failure, reply: toFailure(target, error.message) }
  return { ...failure, reply: { kind: 'error', error } }
}

/** The arguments do not match the input schema: a model reads that as a result and corrects them. */
export function invalidArguments(target: Target, problem: string): Failure {
  const outcome = 'tool_error'
  if (target.method === 'tools/call')
    return { outcome, reply: toFailure(target, `Invalid arguments for ${target.name}: ${problem}`) }
  return { outcome, reply: { kind: 'error', error: new RondoError('PEER_PARAMS', problem) } }
}

/** A client of an earlier era that cannot be asked gets the reason as a result: its revision has no error for it. */
export function unaskableReply(target: Target, error: RondoError, why?: string): Reply {
  return toFailure(target, why === undefined ? error.sentence : `${error.sentence} ${why}`)
}

function toFailure(target: Target, message: string): Reply {
  const failure = target.fail(message)
  return 'result' in failure
    ? { kind: 'complete', result: failure.result }
    : { kind: 'error', error: failure.error }
}

// Telemetry of requests that run no handler. Rounds and turns are observed in `carry/round.ts`.

type PlainCall = Exclude<Call | OlderCall, ListenCall>

/** Answers a request that runs no handler, observed. `answer` gets what observes it. */
export async function observeRequest<R extends OlderReply>(
  { observer, platform }: Pick<FlowHost, 'observer' | 'platform'>,
  call: PlainCall,
  answer: (observed?: Observed) => R | Promise<R>,
): Promise<R> {
  const observed = observer?.begin?.(requestOperation(call, platform.now()))
  if (!observed) return answer()
  try {
    const reply = await observed.run(() => answer(observed))
    observed.end(endOf(reply))
    return reply
  } catch (error) {
    observed.end(errorEnd(error))
    throw error
  }
}

function requestOperation(call: PlainCall, began: number): ObservedOperation {
  const { id: requestId, protocolVersion, trace } = call
  const task = call.kind === 'task' ? { task: call.taskId } : {}
  return { kind: 'request', method: methodOf(call), requestId, protocolVersion, trace, began, ...task }
}

function endOf(reply: OlderReply): OperationEnd {
  if (reply.kind === 'error') return errorEnd(reply.error)
  return reply.kind === 'task_failed' ? { code: 'task_failed', rpc: reply.error.code } : {}
}

function errorEnd(error: unknown): OperationEnd {
  return error instanceof RondoError ? { code: error.code, rpc: error.rpc } : { code: 'SERVER_INTERNAL' }
}
