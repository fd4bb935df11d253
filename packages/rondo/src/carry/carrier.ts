/**
 * A carrier opens the journal of a flow before a round and keeps it afterwards; `runOnce` does what lies between.
 * A round is what it opens, a pause is what it keeps; a handler in the manual form makes its pauses
 * itself, and a call may leave its round to continue as a task.
 *
 *   token        sealed, in the client's hands (`token.ts`)
 *   push         in memory, while the client of an earlier era is asked (`push.ts`)
 *   task         in the store, entry by entry (`task/turn.ts`)
 *   turns        sealed with each question, for the drafts (`drafts/turns/carrier.ts`)
 */

import { RondoError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import { canonicalJson } from '../lib/json.ts'
import type { RoundEvent } from '../log/event.ts'
import type { FlowCall, FlowMethod, Line, Principal } from '../protocol/call.ts'
import { followsTasks, missingCapability, nameCapabilities } from '../protocol/common/request.ts'
import type { Observed } from '../protocol/observer.ts'
import { type Reply, TASKS_EXTENSION } from '../protocol/reply.ts'
import type { InputRequests, InputResponses } from '../protocol/wire.ts'
import type { ReplayInput, Sleeping } from '../replay/input.ts'
import { needsTask, type RunTrace } from '../replay/input.ts'
import { MANUAL, unaskable, withElicitationId } from '../replay/question.ts'
import type { RunReport } from '../replay/run-state.ts'
import type { TaskHead } from '../store/task-engine.ts'
import type { InputRequired, Target } from '../tool/target.ts'
import type { FlowHost, NamedCall, Placed, TaskHost, TaskPlace } from './host.ts'

/** A run that stopped before its call was over. The carrier keeps its journal for the next one. */
export interface Pause {
  readonly report: RunReport
  readonly journal: Journal
  /** Digests of the open questions, by key. */
  readonly asked: Readonly<Record<string, string>>
  readonly inputRequests?: InputRequests
  /** When the call continues by itself, ms since the epoch: a time limit or a sleep is over. */
  readonly wakeAt?: number
  /** The names of events from outside that the handler waits for. */
  readonly events?: readonly string[]
  /** The handler continues as a task (`ctx.background`). */
  readonly leaves?: true
  /** The facts for the log. */
  readonly facts: Pick<RoundEvent, 'outcome' | 'asks' | 'events' | 'moved'>
}

/** A pause that ended with a reply instead of a state: the call continues as a task, or cannot continue. */
export interface Replied {
  readonly kind: 'replied'
  readonly reply: Reply
}

/** `To` is what a round leads to: a reply, the next run of the call, the outcome of a task's turn. */
export interface Carrier<From, To, R extends Round = Round> {
  /** Finds what was kept and returns the round that continues from it. */
  open(from: From): R | Promise<R>
  /** Keeps what the next round needs. */
  keep(round: R, pause: Pause): To | Promise<To>
  /** The call has ended with `reply`. `report` is absent if the handler did not run. */
  end(round: R, reply: Reply, report?: RunReport): To | Promise<To>
  /** Called once the arguments are valid. A reply ends the round before the handler runs. */
  begin?(round: R): Reply | Promise<Reply> | undefined
  /** Continues the call as a task before its handler runs; undefined if it cannot become one. */
  leave?(round: R): Promise<Reply> | undefined
  /** The task has to wait for a permit, and holds nothing meanwhile. Only tasks can. */
  queue?(round: R, delayMs: number): To
  /** Changes the input of the run. */
  adapt?(round: R, input: ReplayInput): ReplayInput
  /**
   * Called after the run, with the error if the runtime refuses to continue. A value ends the round: the outcome of the run no
   * longer counts, and is not logged.
   */
  abandon?(round: R, refused: RondoError | undefined): To | undefined
}

/** One request of a flow, with the journal it begins with. */
export interface Round extends RoundRequest {
  readonly beginning: Beginning
  /** When work on the request began, ms since the epoch. */
  readonly began: number
  /** The turn of a task that this round is. */
  readonly task?: TaskPlace
  /** The row of the task whose turn this round is. */
  readonly row?: TaskHead
  readonly trace?: RunTrace
  /** The request whose answers woke this turn. */
  readonly wokenBy?: string
  /** Set by `runOnce` if there is telemetry. */
  observed?: Observed
}

/** The tool, prompt or resource of a round, as the log names it. The URI of a template contains what its caller chose, so the template is named. */
export function subjectOf({ call, target }: NamedCall): {
  method: FlowMethod
  target: string
} {
  return { method: call.method, target: target.label ?? call.target }
}

/** The flow, round and turn that a log line belongs to. */
export function placeOf({ beginning, task }: Placed): {
  flow: string
  round: number
} & Partial<TaskPlace> {
  return { flow: beginning.flow, round: beginning.round, ...task }
}

/** A request on its way into a round. */
export interface RoundRequest {
  readonly host: FlowHost
  readonly call: FlowCall
  readonly target: Target
  readonly principal: Principal | undefined
  readonly line: Line
}

/** The beginning of a round: the journal that was kept before, or an empty one. */
export interface Beginning {
  readonly flow: string
  readonly round: number
  readonly journal: Journal
  /** The journal as it was kept, if `journal` has results of an earlier run of this round besides. */
  readonly kept?: Journal
  readonly asked: Readonly<Record<string, string>>
  /** When the flow ends at the latest, ms since the epoch. */
  readonly flowExpires: number
  readonly anchored: boolean
  readonly sealedVersion?: string
  /** When the answers of this round were asked for, ms since the epoch. */
  readonly askedAt?: number
}

// The manual form: a handler that returns `inputRequired(…)` asks its questions itself, and its own state travels in the
// journal. The questions are checked like those of `ctx.ask` before they go out.

/** Returns the pause, or the error if the questions must not be asked. */
export function pauseManually(
  { host, call }: Round,
  report: RunReport,
  { inputRequests, requestState }: InputRequired,
): Pause | RondoError {
  const { platform, limits } = host
  const entries = Object.entries(inputRequests ?? {})
  if (entries.length > limits.maxQuestions) {
    const detail = `${entries.length} questions at once; at most ${limits.maxQuestions} are allowed (limits.maxQuestions).`
    return new RondoError('LIMIT_QUESTIONS', detail)
  }
  const unasked = entries.flatMap(([, request]) => {
    const missing = missingCapability(call.capabilities, request)
    return missing ? [{ request, missing }] : []
  })
  if (unasked.length > 0) return unaskable(unasked)
  const kept = Object.entries(report.journal.kept ?? {}).filter(
    ([, { question }]) => !question.startsWith(MANUAL),
  )
  const journal = {
    ...report.journal,
    manual: requestState,
    // The handler has seen the answers to its last questions.
    kept: kept.length > 0 ? Object.fromEntries(kept) : undefined,
  }
  const asked = entries.map(
    ([key, request]) => [key, MANUAL + platform.digest(canonicalJson(['manual', request]))] as const,
  )
  const outgoing = entries.map(
    ([key, request]) => [key, withElicitationId({ platform, journal }, key, request)] as const,
  )
  return {
    report,
    journal,
    asked: Object.fromEntries(asked),
    inputRequests: inputRequests && Object.fromEntries(outgoing),
    facts: { outcome: 'input_required', asks: entries.map(([key]) => ({ key, kind: 'manual' })) },
  }
}

/** The responses that the manual form sees: those to open questions; in a first request, all of them. */
export function solicited(
  { anchored, asked }: Beginning,
  answers: Readonly<Record<string, unknown>> | undefined,
): InputResponses | undefined {
  if (!answers || !anchored) return answers as InputResponses | undefined
  const wanted: Record<string, unknown> = Object.create(null)
  for (const key of Object.keys(answers)) if (Object.hasOwn(asked, key)) wanted[key] = answers[key]
  return wanted as InputResponses
}

// Decides whether a call may leave its request and continue as a task, and explains where it may not: to an operation that
// only a task can do, and to a sleep. A short sleep waits within the request, a longer one leaves it; tasks park instead
// (`task/turn.ts`). Nothing after a refused operation runs.

/**
 * Returns the task host if this call may continue as a task: there is one, the tool allows it, and the client follows tasks,
 * or reaches them through tools.
 */
export function taskHostFor({ host, call, target }: Round): TaskHost | undefined {
  if (!host.tasks || target.task.mode === 'never' || call.method !== 'tools/call') return undefined
  return host.tasks.tools || followsTask(call) ? host.tasks : undefined
}

/** Whether the first request of the call begins a task. */
export function beginsAtOnce(round: Round): boolean {
  return round.target.task.mode !== 'late' && taskHostFor(round) !== undefined
}

/** True if the client of this call can follow it as a task. */
export function followsTask({ task, capabilities }: FlowCall): boolean {
  return task !== undefined || followsTasks(capabilities)
}

/** Why an operation that only a task can do is impossible in this call. */
export function whyNoTask({ host, call, target }: Round, what: string): RondoError {
  if (call.method !== 'tools/call') return needsTask(what, 'Only a tool can become one.')
  if (!host.tasks)
    return needsTask(what, 'This server has no store for tasks: pass one, createServer({ store }).')
  if (target.task.mode === 'never') return needsTask(what, `"${target.name}" is declared with task: 'never'.`)
  const data = { requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } } }
  const detail =
    `"${target.name}" waits for ${what}, which only a task can do, and this client did not declare the capability ` +
    `${nameCapabilities(data.requiredCapabilities)} to follow one. Nothing after this point was done.`
  return new RondoError('PEER_CAPABILITY', detail, { data })
}

/** Returns the rules for sleeps in a request. */
export function sleepingIn(round: Round): Sleeping {
  const { host, began, beginning } = round
  const { limits, maxRoundMs: ms } = host
  const beyond = taskHostFor(round) ? 'leave' : whyNoSleep(round)
  const handsBack = beginning.journal.moves < limits.maxMoves
  return {
    parks: false,
    inlineMs: limits.maxInlineSleepMs,
    beyond,
    round: { until: began + ms, ms, handsBack },
    skip: skipIn(round),
  }
}

/** In development mode nobody waits for days. */
export function skipIn(round: Round): Sleeping['skip'] {
  const { host } = round
  if (!host.skipSleep) return undefined
  return (ms) => {
    const message = `Development mode skips a sleep of ${Math.ceil(ms)} ms in ${subjectOf(round).target} (skipSleep: false turns that off)`
    host.log({ event: 'warning', message, ...placeOf(round) })
  }
}

function whyNoSleep({ host, target, call }: Round): string {
  if (call.method !== 'tools/call')
    return 'Only a tool can continue as a task: wait for less, or move the work into a tool.'
  if (!host.tasks)
    return 'The call cannot continue as a task, because this server has no store: pass one to createServer, or wait for less.'
  if (target.task.mode === 'never')
    return "The call cannot continue as a task, because the tool is declared with task: 'never'."
  return 'This client cannot follow a task: call again from one that supports tasks. Nothing after this point was done.'
}
