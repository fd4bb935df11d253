/**
 * One round of a call, whatever carries its journal: runs the handler once, and has the carrier end the call or keep its
 * journal. Writes the round's log line.
 */

import { RondoError } from '../errors.ts'
import type { Line } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import type { InputRequest } from '../protocol/wire.ts'
import type { ReplayInput } from '../replay/input.ts'
import { CAN_LEAVE, FOREGROUND } from '../replay/input.ts'
import { replay } from '../replay/replay.ts'
import type { MoveReason, OpenQuestion, RunReport } from '../replay/run-state.ts'
import { verify } from '../replay/verify.ts'
import type { Context } from '../tool/context.ts'
import { isTaskCreated, type TaskCreated } from '../tool/forward.ts'
import { isInputRequired } from '../tool/target.ts'
import {
  beginsAtOnce,
  type Carrier,
  type Pause,
  pauseManually,
  placeOf,
  type Round,
  sleepingIn,
  solicited,
  subjectOf,
  taskHostFor,
  whyNoTask,
} from './carrier.ts'
import type { FlowHost } from './host.ts'
import { type HeldPermit, lostPermit, takePermit, tooManyCalls, withPermit } from './permit.ts'
import {
  adviseHoisting,
  adviseOutrun,
  adviseStore,
  type Failure,
  invalidArguments,
  logFault,
  observeRound,
  type RoundFacts,
  recordPlace,
  refusal,
  reportRetry,
  reportRound,
  thrown,
  toEnd,
  withSpans,
} from './report.ts'
import { effectOnce } from './single-use.ts'
import { type UndoneReport, undoAfter, undoingIn, withUndo } from './undo.ts'

/** Prepares the arguments, runs the handler once, checks the run in development, and has the carrier end or keep it. */
export async function runOnce<To, R extends Round>(carrier: Carrier<never, To, R>, given: R): Promise<To> {
  const { host } = given
  const holding: Holding = {}
  const round = host.tracer
    ? {
        ...given,
        trace: host.tracer.begin({ ...placeOf(given), ...subjectOf(given) }, given.beginning.journal),
      }
    : given
  host.running.add(round)
  const observed = host.observer && observeRound(round)
  if (observed) round.observed = observed
  try {
    const work = (): Promise<HandlerRun> => runHandler(carrier, round, holding)
    const run = await (observed ? observed.run(work) : work())
    if (run.kind === 'end') return await carrier.end(round, run.reply)
    if (run.kind === 'queued') {
      if (carrier.queue) return carrier.queue(round, run.delayMs)
      throw new RondoError('SERVER_INTERNAL', 'Only a task can wait for a permit')
    }
    host.running.delete(round)
    const { ending } = run.report
    const refused = ending.kind === 'refused' ? ending.error : undefined
    const { permit } = holding
    const concluding = permit ? permitted(carrier, permit) : carrier
    return carrier.abandon?.(round, refused) ?? (await conclude(concluding, round, run.report))
  } catch (error) {
    recordPlace(error, placeOf(round))
    observed?.end(toEnd(error))
    void holding.permit?.release()
    throw error
  } finally {
    host.running.delete(round)
    holding.permit?.stop()
    // Only for a turn that was abandoned: every other round has ended with its line in the log.
    observed?.end({ outcome: 'moved' })
  }
}

/** The permit that a round holds, once it does. */
interface Holding {
  permit?: HeldPermit
}

type HandlerRun =
  | { readonly kind: 'ran'; readonly report: UndoneReport }
  /** The round ended before its handler ran. */
  | { readonly kind: 'end'; readonly reply: Reply }
  /** The task waits for a permit. */
  | { readonly kind: 'queued'; readonly delayMs: number }

async function runHandler<To, R extends Round>(
  carrier: Carrier<never, To, R>,
  round: R,
  holding: Holding,
): Promise<HandlerRun> {
  const { host, call, target } = round
  const { args, badArguments: problem } = call
  const prepared =
    problem === undefined ? await target.prepare(args) : ({ kind: 'refused', problem } as const)
  if (prepared.kind === 'refused') {
    const reply = concludeFailure(round, undefined, invalidArguments(target, prepared.problem))
    return { kind: 'end', reply }
  }
  const kept = target.concurrency && (await acquire(carrier, round, holding))
  if (kept !== undefined) return kept
  const early = carrier.begin?.(round)
  if (early !== undefined) {
    const reply = await early
    // Otherwise the task that began takes the permit over.
    if (reply.kind === 'error') await holding.permit?.release()
    return { kind: 'end', reply }
  }
  if (host.dev && !host.tasks && target.task.mode === 'auto')
    adviseStore(round, "is declared with task: 'auto'")
  const input = toReplayInput(round, prepared.run)
  const own = carrier.adapt?.(round, input) ?? input
  const adapted = holding.permit ? withPermit(own, holding.permit) : own
  const first = await replay(adapted)
  const isVerified = host.dev && !target.live
  const report = isVerified ? await verify(adapted, first, (keys) => adviseHoisting(round, keys)) : first
  const undone = await undoAfter(round, adapted, report)
  if (undone.left) holding.permit?.handOver()
  return { kind: 'ran', report: undone }
}

/** Acquires the permit of a round whose tool has `concurrency`. Returns how the round ends if there is none. */
async function acquire<To, R extends Round>(
  carrier: Carrier<never, To, R>,
  round: R,
  holding: Holding,
): Promise<HandlerRun | undefined> {
  const { host, target, task } = round
  const { concurrency } = target
  const permits = host.store?.permits
  // A task that begins at once queues by itself.
  if (!concurrency || !permits || (!task && concurrency.queues && beginsAtOnce(round))) return undefined
  const taken = await takePermit(round, concurrency, permits)
  if (taken.kind === 'queued') return taken
  if (taken.kind === 'held') {
    holding.permit = taken.permit
    return undefined
  }
  const queued = concurrency.queues ? carrier.leave?.(round) : undefined
  if (queued) return { kind: 'end', reply: await queued }
  return {
    kind: 'end',
    reply: concludeRefused(round, undefined, tooManyCalls(round, concurrency, taken.retryMs)),
  }
}

/** The carrier of a round that holds a permit: the permit ends with the call, and is kept or released while it waits. */
function permitted<To, R extends Round>(
  carrier: Carrier<never, To, R>,
  permit: HeldPermit,
): Carrier<never, To, R> {
  return {
    ...carrier,
    async keep(round, pause) {
      if (await permit.pause(pause)) return carrier.keep(round, pause)
      const error = lostPermit(round.host)
      const abandoned = carrier.abandon?.(round, error)
      return abandoned ?? carrier.end(round, concludeRefused(round, pause.report, error), pause.report)
    },
    async end(round, reply, report) {
      await permit.release()
      return carrier.end(round, reply, report)
    },
  }
}

/** Ends the round as its run ended. */
async function conclude<To, R extends Round>(
  carrier: Carrier<never, To, R>,
  round: R,
  report: UndoneReport,
): Promise<To> {
  const { ending, journal } = report
  const end = (reply: Reply): To | Promise<To> => carrier.end(round, withUndo(reply, report.undo), report)
  const refuse = (error: RondoError): To | Promise<To> => end(concludeRefused(round, report, error))
  switch (ending.kind) {
    case 'returned': {
      const { value } = ending
      if (isTaskCreated(value)) return carrier.end(round, concludeTask(round, report, value), report)
      const pause = isInputRequired(value) ? pauseManually(round, report, value) : undefined
      if (pause === undefined) return end(await concludeReturned(round, report, value))
      return pause instanceof RondoError ? refuse(pause) : carrier.keep(round, pause)
    }
    case 'threw':
      return end(concludeThrew(round, report, ending.error))
    case 'refused':
      return refuse(ending.error)
    case 'asking':
      return carrier.keep(round, pauseAsking(report, ending))
    case 'background': {
      const facts = { outcome: 'moved', moved: 'drain' } as const
      return carrier.keep(round, { report, journal, asked: {}, leaves: true, facts })
    }
    case 'moved': {
      const facts = { outcome: 'moved', moved: ending.reason } as const
      const moved = { ...journal, moves: journal.moves + 1 }
      return carrier.keep(round, { report, journal: moved, asked: {}, facts })
    }
    case 'sleeping': {
      const facts = { outcome: 'sleeping' } as const
      return carrier.keep(round, { report, journal, asked: {}, wakeAt: ending.wakeAt, facts })
    }
  }
}

function pauseAsking(
  report: RunReport,
  { questions, events: names, wakeAt }: Extract<RunReport['ending'], { kind: 'asking' }>,
): Pause {
  const asked: Record<string, string> = {}
  const inputRequests: Record<string, InputRequest> = {}
  const asks: { key: string; kind: OpenQuestion['kind'] }[] = []
  for (const [key, { digest, request, kind }] of questions) {
    asked[key] = digest
    inputRequests[key] = request
    asks.push({ key, kind })
  }
  const events = names.size > 0 ? [...names] : undefined
  const facts = { outcome: questions.size > 0 ? 'input_required' : 'waiting', asks, events } as const
  return { report, journal: report.journal, asked, inputRequests, events, wakeAt, facts }
}

const NO_LABELS = {
  missing:
    'ctx.label needs a store with a part for operators, such as SQLite or PostgreSQL: the store of this server cannot find tasks by labels.',
}

export function toReplayInput(round: Round, handler: (ctx: Context) => unknown): ReplayInput {
  const { host, call, principal, line, beginning } = round
  const { name, version } = call.clientInfo ?? {}
  const { store } = host
  return {
    handler,
    journal: round.observed ? withSpans(round) : beginning.journal,
    observed: round.observed,
    incoming: {
      anchored: beginning.anchored,
      asked: beginning.asked,
      answers: call.inputResponses,
      resumed: beginning.round > 1,
      capabilities: call.capabilities,
    },
    flow: beginning.flow,
    round: beginning.round,
    principal,
    client: { name, version, capabilities: call.capabilities },
    protocolVersion: call.protocolVersion,
    line,
    progressToken: call.progressToken,
    logLevel: call.logLevel,
    once: store && ((key, branch, act) => effectOnce(round, store.once, { key, branch }, act)),
    undoing: undoingIn(round, beginning.journal.lineage !== undefined),
    labelling: host.tasks && !host.tasks.toolAs ? NO_LABELS : undefined,
    background:
      host.tasks && taskHostFor(round)
        ? CAN_LEAVE
        : {
            possible: false,
            setStatus: FOREGROUND.setStatus,
            whyNot: (what) => whyNoTask(round, what),
            stays: host.dev && !host.tasks ? () => adviseStore(round, 'calls ctx.background()') : undefined,
          },
    inputResponses: () => solicited(beginning, call.inputResponses),
    requestState: beginning.journal.manual,
    relatedTaskIds: call.relatedTaskIds,
    meta: call.meta,
    platform: host.platform,
    limits: host.limits,
    trace: round.trace,
    onOutrun: host.dev ? (effect, confirmation) => adviseOutrun(round, effect, confirmation) : undefined,
    unwatched: !host.dev && host.tracer === undefined,
    mayMove: movePolicy(host, line, beginning.journal.moves),
    sleeping: () => sleepingIn(round),
    onRetry: (failed) => reportRetry(round, failed),
    onAsideError: (error) => logFault(round, error),
  }
}

async function concludeReturned(round: Round, report: RunReport, value: unknown): Promise<Reply> {
  try {
    const result = await round.target.finish(value)
    logRound(round, report, { outcome: result.isError === true ? 'tool_error' : 'complete' })
    return { kind: 'complete', result }
  } catch (error) {
    return concludeThrew(round, report, error)
  }
}

/** The call continues as a task of another server. */
function concludeTask(round: Round, report: RunReport, { task }: TaskCreated): Reply {
  logRound(round, report, { outcome: 'task' })
  return { kind: 'task_created', task }
}

function concludeThrew(round: Round, report: RunReport, error: unknown): Reply {
  return concludeFailure(round, report, thrown(round.target, error, round.host.dev))
}

/** Returns the reply for an error with which the runtime refuses to continue, and logs it. */
export function concludeRefused(round: Round, report: RunReport | undefined, error: RondoError): Reply {
  return concludeFailure(round, report, refusal(round.target, error, round.host.dev))
}

function concludeFailure(
  round: Round,
  report: RunReport | undefined,
  { reply, fault, ...facts }: Failure,
): Reply {
  logRound(round, report, facts)
  if (fault) logFault(round, fault.error)
  return reply
}

/**
 * Decides when an instance returns a call before it is finished, so that another one continues it. A move costs one of the
 * client's rounds (it has about ten), so only a process that is shutting down moves calls freely; any other move requires
 * work done in this round, and their number is limited.
 */
function movePolicy(host: FlowHost, line: Line, moves: number): (executed: number) => MoveReason | undefined {
  const began = host.platform.now()
  // Entrances of ours refuse calls from then on. In a mount such a call has come back to this process, and is not sent away again.
  const cameLate = host.draining
  return (executed) => {
    // A client that has disconnected gets no result: start nothing new for it.
    if ((host.draining && !cameLate) || line.closed) return 'drain'
    if (executed === 0 || moves >= host.limits.maxMoves) return undefined
    if (host.platform.now() - began >= host.maxRoundMs) return 'time'
    return host.overloaded() ? 'shed' : undefined
  }
}

/** Writes the one log line of a round, and tells telemetry how it ended. Costs nothing if nobody listens. */
export function logRound(round: Round, report: RunReport | undefined, facts: RoundFacts): void {
  const { host, observed } = round
  if (observed || host.tracer || !host.silent) reportRound(round, report, facts)
}
