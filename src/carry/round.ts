/**
 * One round of a call, whatever carries its journal: what it runs on, one run of the handler, how it ended, and its
 * line in the log. A carrier opens the journal before it (`Beginning`) and keeps what a `Pause` holds after it.
 */

import { type ErrorCode, isStoreFault, RondoError, ToolError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import { canonicalJson } from '../lib/canonical-json.ts'
import type { FlowCall, Line, Principal } from '../protocol/call.ts'
import { followsTasks, missingCapability } from '../protocol/common/request.ts'
import type { Reply } from '../protocol/reply.ts'
import type { InputRequest, InputRequests, InputResponses } from '../protocol/wire.ts'
import { CAN_LEAVE, FOREGROUND } from '../replay/context.ts'
import { unaskable, withElicitationId } from '../replay/question.ts'
import { type ReplayInput, replay } from '../replay/replay.ts'
import type { MoveReason, OpenQuestion, RunReport } from '../replay/run-state.ts'
import { verify } from '../replay/verify.ts'
import { originOf } from '../replay/work.ts'
import type { Claims } from '../seal/state.ts'
import type { Context } from '../tool/context.ts'
import type { Finished, Target } from '../tool/target.ts'
import { type InputRequired, isInputRequired } from '../tool/target.ts'
import type { FlowHost, RoundEvent, TaskHost } from './host.ts'
import { effectOnce } from './single-use.ts'

export interface Round {
  readonly host: FlowHost
  readonly call: FlowCall
  readonly target: Target
  readonly principal: Principal | undefined
  readonly line: Line
  readonly beginning: Beginning
  /** When work on the request began, ms since the epoch. */
  readonly began: number
  /** How the turns draft keeps it; by default it is sealed and sent to the client. */
  readonly keep?: Keep
}

/** A request on its way into a round. */
export type RoundRequest = Pick<Round, 'host' | 'call' | 'target' | 'principal' | 'line'>

/** Where a round begins: with what was kept before, or with an empty journal. */
export interface Beginning {
  readonly flow: string
  readonly round: number
  readonly journal: Journal
  readonly asked: Readonly<Record<string, string>>
  /** When the flow ends at the latest, ms since the epoch. */
  readonly flowExpires: number
  readonly anchored: boolean
  readonly sealedVersion?: string
}

export type Kept =
  | { readonly kind: 'kept'; readonly reply: Reply; readonly bytes: number; readonly keyId: string }
  | { readonly kind: 'too-large'; readonly bytes: number }

/** Puts the claims where the next round finds them; returns the reply to the client. */
export type Keep = (
  round: Round,
  claims: Claims,
  inputRequests: InputRequests | undefined,
) => Kept | Promise<Kept>

/** A run that stopped before its call was over: what the carrier keeps for the next one. */
export interface Pause {
  readonly kind: 'paused'
  readonly report: RunReport
  readonly journal: Journal
  /** Digests of the open questions, by key. */
  readonly asked: Readonly<Record<string, string>>
  readonly inputRequests?: InputRequests
  /** What the log says of it. */
  readonly facts: Pick<RoundEvent, 'outcome' | 'asks' | 'moved'>
}

/** How one run ended. All but a pause and a refusal are logged. */
export type RoundEnd =
  | { readonly kind: 'replied'; readonly reply: Reply; readonly report?: RunReport }
  | { readonly kind: 'refused'; readonly report: RunReport; readonly error: RondoError }
  /** The handler continues in the background (`ctx.background`). */
  | { readonly kind: 'background'; readonly report: RunReport }
  | { readonly kind: 'abandoned' }
  | Pause

export interface RunOptions {
  /** Called once the arguments are valid. A reply ends the round before the handler runs. */
  begin?(): Reply | Promise<Reply> | undefined
  /** What this carrier changes about the run. */
  adapt?(input: ReplayInput): ReplayInput
  /** True if the outcome of the run no longer counts. */
  isAbandoned?(): boolean
}

/** Prepares the arguments, runs the handler once, checks the run in development, and says how it ended. */
export async function runOnce(round: Round, options: RunOptions = {}): Promise<RoundEnd> {
  const { host, call, target } = round
  const preparing = target.prepare(call.args)
  const prepared = preparing instanceof Promise ? await preparing : preparing
  if (prepared.kind === 'refused') {
    return { kind: 'replied', reply: concludeArguments(round, prepared.problem) }
  }
  const early = options.begin?.()
  if (early !== undefined) return { kind: 'replied', reply: await early }
  const input = toReplayInput(round, prepared.run)
  const adapted = options.adapt?.(input) ?? input
  const first = await replay(adapted)
  const report = host.dev ? await verify(adapted, first) : first
  if (options.isAbandoned?.()) return { kind: 'abandoned' }
  const { ending } = report
  switch (ending.kind) {
    case 'returned': {
      if (isInputRequired(ending.value)) return pauseManually(round, report, ending.value)
      const reply = concludeReturned(round, report, ending.value)
      return { kind: 'replied', reply: reply instanceof Promise ? await reply : reply, report }
    }
    case 'threw':
      return { kind: 'replied', reply: concludeThrew(round, report, ending.error), report }
    case 'refused':
      return { kind: 'refused', report, error: ending.error }
    case 'background':
      return { kind: 'background', report }
    case 'moved': {
      const journal = { ...report.journal, moves: report.journal.moves + 1 }
      const facts = { outcome: 'moved', moved: ending.reason } as const
      return { kind: 'paused', report, journal, asked: {}, facts }
    }
    case 'asking':
      return pauseAsking(report, ending.questions)
  }
}

function pauseAsking(report: RunReport, questions: ReadonlyMap<string, OpenQuestion>): Pause {
  const asked: Record<string, string> = {}
  const inputRequests: Record<string, InputRequest> = {}
  const asks: { key: string; kind: OpenQuestion['kind'] }[] = []
  for (const [key, { digest, request, kind }] of questions) {
    asked[key] = digest
    inputRequests[key] = request
    asks.push({ key, kind })
  }
  const { journal } = report
  return {
    kind: 'paused',
    report,
    journal,
    asked,
    inputRequests,
    facts: { outcome: 'input_required', asks },
  }
}

/** The manual form: its questions are checked like any others before they go out. */
function pauseManually({ host, call }: Round, report: RunReport, needs: InputRequired): RoundEnd {
  const { platform, limits } = host
  const entries = Object.entries(needs.inputRequests ?? {})
  if (entries.length > limits.maxQuestions) {
    const detail = `${entries.length} questions at once; at most ${limits.maxQuestions} are allowed (limits.maxQuestions).`
    return { kind: 'refused', report, error: new RondoError('LIMIT_QUESTIONS', detail) }
  }
  for (const [, request] of entries) {
    const missing = missingCapability(call.capabilities, request)
    if (missing) return { kind: 'refused', report, error: unaskable(missing, { request }) }
  }
  const asked = Object.fromEntries(
    entries.map(([key, request]) => [key, platform.digest(canonicalJson(['manual', request]))]),
  )
  const journal = { ...report.journal, manual: needs.requestState }
  const { seed } = journal
  const outgoing = entries.map(
    ([key, request]) => [key, withElicitationId({ platform, seed }, key, request)] as const,
  )
  return {
    kind: 'paused',
    report,
    journal,
    asked,
    inputRequests: needs.inputRequests && Object.fromEntries(outgoing),
    facts: {
      outcome: 'input_required',
      asks: entries.map(([key]) => ({ key, kind: 'manual' as const })),
    },
  }
}

function toReplayInput(round: Round, handler: (ctx: Context) => unknown): ReplayInput {
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

/** Returns the task host if this call may continue as a task: there is one, the tool allows it, the client follows tasks. */
export function taskHostFor({
  host,
  call,
  target,
}: Pick<Round, 'host' | 'call' | 'target'>): TaskHost | undefined {
  if (!host.tasks || target.task.mode === 'never' || call.method !== 'tools/call') return undefined
  return call.task !== undefined || followsTasks(call.capabilities) ? host.tasks : undefined
}

/** The manual form sees only responses to what was asked; a first request may bring some along. */
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

/** Writes the one log line of a round. */
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

function concludeReturned(round: Round, report: RunReport, value: unknown): Reply | Promise<Reply> {
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
function concludeThrew(round: Round, report: RunReport, error: unknown): Reply {
  const { host, target } = round
  logRound(round, report, { outcome: 'tool_error' })
  if (error instanceof ToolError) return toFailure(target, error.message)
  if (error instanceof RondoError && error.rpc !== 0) return { kind: 'error', error }
  logFault(round, originOf(error))
  const detail = host.dev ? `: ${error instanceof Error ? error.message : String(error)}` : ''
  return toFailure(target, `${target.name} failed${detail}`)
}

/** Errors that a model can act on: it reads them as a result of the tool. */
const READ_AS_RESULT: ReadonlySet<ErrorCode> = new Set([
  'INPUT_REJECTED',
  'INPUT_FAILED',
  'INPUT_TIMEOUT',
  'LIMIT_PARKED',
])

/** The runtime refuses to continue. Answers that never arrive or never fit end a tool call as its own failure. */
export function concludeRefused(round: Round, report: RunReport | undefined, error: RondoError): Reply {
  const { host, target } = round
  const authors = error.code.startsWith('REPLAY_')
  logRound(round, report, { outcome: 'refused', code: error.code })
  if (authors || isStoreFault(error)) logFault(round, error)
  if (READ_AS_RESULT.has(error.code)) return toFailure(target, error.sentence)
  return authors && host.dev ? toFailure(target, error.message) : { kind: 'error', error }
}

/** The arguments do not match the input schema: a model reads that as a result and corrects them. */
function concludeArguments(round: Round, problem: string): Reply {
  const { target } = round
  logRound(round, undefined, { outcome: 'tool_error' })
  if (target.method !== 'tools/call') return { kind: 'error', error: new RondoError('PEER_PARAMS', problem) }
  return toFailure(target, `Invalid arguments for ${target.name}: ${problem}`)
}

/** A client of an earlier era that cannot be asked gets the reason as a result: its revision has no error for it. */
export function concludeUnaskable(target: Target, error: RondoError, why?: string): Reply {
  return toFailure(target, why === undefined ? error.sentence : `${error.sentence} ${why}`)
}

function toFailure(target: Target, message: string): Reply {
  const failure = target.fail(message)
  return 'result' in failure
    ? { kind: 'complete', result: failure.result }
    : { kind: 'error', error: failure.error }
}

/**
 * When an instance hands a call back in the middle. A move costs one of the client's rounds (it has about ten), so only
 * a process that is about to end moves calls freely; every other move requires work done in this round, and is limited.
 */
function movePolicy(host: FlowHost, line: Line, moves: number): (executed: number) => MoveReason | undefined {
  const began = host.platform.now()
  return (executed) => {
    // A client that is gone reads no result: start nothing new for it.
    if (host.draining || line.closed) return 'drain'
    if (executed === 0 || moves >= host.limits.maxMoves) return undefined
    if (host.platform.now() - began >= host.maxRoundMs) return 'time'
    return host.overloaded() ? 'shed' : undefined
  }
}
