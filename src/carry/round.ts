/**
 * One round of a call, whatever carries its journal: what it runs on, and what is logged of it.
 */

import { type ErrorCode, isStoreFault, RondoError, ToolError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import { canonicalJson } from '../lib/canonical-json.ts'
import type { FlowCall, Line, Principal } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import { missingCapability } from '../protocol/task.ts'
import type { ClientCapabilities, InputRequests, InputResponses } from '../protocol/wire.ts'
import { unaskable } from '../replay/ask.ts'
import { CAN_LEAVE, FOREGROUND } from '../replay/context.ts'
import { withElicitationId } from '../replay/draw.ts'
import type { ReplayInput } from '../replay/replay.ts'
import type { MoveReason, RunReport } from '../replay/run-state.ts'
import { originOf } from '../replay/work.ts'
import type { Claims } from '../seal/state.ts'
import type { Context } from '../tool/context.ts'
import type { InputRequired } from '../tool/result.ts'
import type { Finished, Target } from '../tool/target.ts'
import type { FlowHost, RoundEvent } from './host.ts'
import { effectOnce } from './single-use.ts'
import { taskHostFor } from './task/journal.ts'
import type { Beginning } from './token.ts'

export type Kept =
  | { readonly kind: 'kept'; readonly reply: Reply; readonly bytes: number; readonly keyId: string }
  | { readonly kind: 'too-large'; readonly bytes: number }

/** Puts what happened so far where the next round finds it; gives what the client is told. */
export type Keep = (
  round: Round,
  claims: Claims,
  inputRequests: InputRequests | undefined,
) => Kept | Promise<Kept>

export interface Round {
  readonly host: FlowHost
  readonly call: FlowCall
  readonly target: Target
  readonly principal: Principal | undefined
  readonly line: Line
  readonly beginning: Beginning
  /** When work on the request began, ms since the epoch. */
  readonly began: number
  /** Sealed and handed to the client, unless the carrier has another way. */
  readonly keep?: Keep
}

export function toReplayInput(round: Round, handler: (ctx: Context) => unknown): ReplayInput {
  const { host, call, principal, line, beginning } = round
  const { name, version } = call.clientInfo ?? {}
  const { store } = host
  return {
    handler,
    journal: beginning.journal,
    incoming: {
      anchored: beginning.anchored,
      asked: beginning.asked,
      answers: call.inputResponses,
      resumed: beginning.round > 1,
      capabilities: call.capabilities,
    },
    scene: {
      flow: beginning.flow,
      round: beginning.round,
      principal,
      client: { name, version, capabilities: call.capabilities },
      protocolVersion: call.protocolVersion,
      line,
      progressToken: call.progressToken,
      logLevel: call.logLevel,
      once: store && ((key, branch, act) => effectOnce(round, store.once, { key, branch }, act)),
      background: taskHostFor(round) ? CAN_LEAVE : FOREGROUND,
      inputResponses: solicited(beginning, call.inputResponses),
      requestState: beginning.journal.manual,
    },
    platform: host.platform,
    limits: host.limits,
    mayMove: movePolicy(host, line, beginning.journal.moves),
    onDeferError: (error) => logFault(round, error),
  }
}

/** The manual form sees only answers to what was asked; a first request may bring some along. */
export function solicited(
  { anchored, asked }: Beginning,
  answers: Readonly<Record<string, unknown>> | undefined,
): InputResponses | undefined {
  if (!answers || !anchored) return answers as InputResponses | undefined
  const wanted: Record<string, unknown> = Object.create(null)
  for (const key of Object.keys(answers)) if (Object.hasOwn(asked, key)) wanted[key] = answers[key]
  return wanted as InputResponses
}

type RoundFacts = Pick<RoundEvent, 'outcome' | 'asks' | 'moved' | 'task' | 'code' | 'stateBytes' | 'keyId'>

/** The one line of a round. */
export function logRound(round: Round, report: RunReport | undefined, facts: RoundFacts): void {
  const { host, call, target, beginning, began } = round
  const changed = beginning.anchored && beginning.sealedVersion !== target.version
  host.log({
    event: 'round',
    flow: beginning.flow,
    round: beginning.round,
    method: call.method,
    target: call.target,
    outcome: facts.outcome,
    asks: facts.asks,
    moved: facts.moved,
    task: facts.task,
    code: facts.code,
    replayed: report?.replayed ?? 0,
    executed: report?.executed ?? 0,
    stateBytes: facts.stateBytes,
    keyId: facts.keyId,
    sealedVersion: changed ? beginning.sealedVersion : undefined,
    ms: host.platform.now() - began,
  })
}

export function logFault({ host, call, beginning }: Round, error: unknown): void {
  const { method, target } = call
  host.log({ event: 'fault', flow: beginning.flow, round: beginning.round, method, target, error })
}

/*
 * How a call ends, whatever carries its journal: a result, the tool's own failure, or an error of the runtime.
 */

/** The handler returned `value`. */
export function concludeReturned(round: Round, report: RunReport, value: unknown): Reply | Promise<Reply> {
  const completed = (result: Finished): Reply => {
    logRound(round, report, { outcome: result.isError === true ? 'tool_error' : 'complete' })
    return { kind: 'complete', result }
  }
  const failed = (error: unknown): Reply => concludeThrew(round, report, error)
  try {
    const finishing = round.target.finish(value)
    return finishing instanceof Promise ? finishing.then(completed).catch(failed) : completed(finishing)
  } catch (error) {
    return failed(error)
  }
}

/** The handler threw. A `ToolError` was written for the client to read; a `RondoError` ends the call as an error. */
export function concludeThrew(round: Round, report: RunReport, error: unknown): Reply {
  const { host, target } = round
  logRound(round, report, { outcome: 'tool_error' })
  if (error instanceof ToolError) return toFailure(target, error.message)
  if (error instanceof RondoError && error.rpc !== 0) return { kind: 'error', error }
  logFault(round, originOf(error))
  const detail = host.dev ? `: ${error instanceof Error ? error.message : String(error)}` : ''
  return toFailure(target, `${target.name} failed${detail}`)
}

/** What a model can act on: it reads these as a result of the tool. */
const READ_AS_RESULT: ReadonlySet<ErrorCode> = new Set([
  'INPUT_REJECTED',
  'INPUT_FAILED',
  'INPUT_TIMEOUT',
  'LIMIT_PARKED',
])

/** The runtime refuses to go on. Answers that never come or never fit end a tool call as its own failure. */
export function concludeRefused(round: Round, report: RunReport | undefined, error: RondoError): Reply {
  const { host, target } = round
  const authors = error.code.startsWith('REPLAY_')
  logRound(round, report, { outcome: 'refused', code: error.code })
  if (authors || isStoreFault(error)) logFault(round, error)
  if (READ_AS_RESULT.has(error.code)) return toFailure(target, error.sentence)
  return authors && host.dev ? toFailure(target, error.message) : { kind: 'error', error }
}

/** The arguments do not fit the input schema: a model reads that as a result and does better. */
export function concludeArguments(round: Round, problem: string): Reply {
  const { target } = round
  logRound(round, undefined, { outcome: 'tool_error' })
  if (target.method !== 'tools/call') return { kind: 'error', error: new RondoError('PEER_PARAMS', problem) }
  return toFailure(target, `Invalid arguments for ${target.name}: ${problem}`)
}

/**
 * A client of an earlier era cannot be asked. The error for that came later, so it is told as a result, in the same words.
 */
export function concludeUnaskable(target: Target, error: RondoError, why?: string): Reply {
  return toFailure(target, why === undefined ? error.sentence : `${error.sentence} ${why}`)
}

function toFailure(target: Target, message: string): Reply {
  const failure = target.fail(message)
  return 'result' in failure
    ? { kind: 'complete', result: failure.result }
    : { kind: 'error', error: failure.error }
}

/*
 * When an instance lets go of a call in the middle. A move costs one of the client's rounds (it has about ten), so only
 * a process that is about to end moves calls freely; all other moves need work done in this round, and are few.
 */

function movePolicy(host: FlowHost, line: Line, moves: number): (executed: number) => MoveReason | undefined {
  const began = host.platform.now()
  return (executed) => {
    // A client that is gone reads no result: nothing new is begun for it.
    if (host.draining || line.closed) return 'drain'
    if (executed === 0 || moves >= host.limits.maxMoves) return undefined
    if (host.platform.now() - began >= host.maxRoundMs) return 'time'
    return host.overloaded() ? 'shed' : undefined
  }
}

/*
 * The manual form's questions: checked like any other before they go out.
 */

/** The questions as they go out. */
export function manualRequests(
  { platform }: FlowHost,
  { seed }: Pick<Journal, 'seed'>,
  { inputRequests }: InputRequired,
): InputRequests | undefined {
  if (inputRequests === undefined) return undefined
  return Object.fromEntries(
    Object.entries(inputRequests).map(([key, request]) => [
      key,
      withElicitationId({ platform, seed }, key, request),
    ]),
  )
}

/** Digests of the questions by key, or why they must not be asked. */
export function manualDigests(
  { platform, limits }: FlowHost,
  { inputRequests = {} }: InputRequired,
  capabilities: ClientCapabilities,
): Readonly<Record<string, string>> | RondoError {
  const entries = Object.entries(inputRequests)
  if (entries.length > limits.maxQuestions) {
    const detail = `${entries.length} questions at once; ${limits.maxQuestions} are allowed (limits.maxQuestions).`
    return new RondoError('LIMIT_QUESTIONS', detail)
  }
  for (const [, request] of entries) {
    const missing = missingCapability(capabilities, request)
    if (missing) return unaskable(missing, { request })
  }
  return Object.fromEntries(
    entries.map(([key, request]) => [key, platform.digest(canonicalJson(['manual', request]))]),
  )
}
