/**
 * Drives one call from the command line to its end, or to where it has to wait: sends, has questions answered, keeps the
 * call in its file whenever it changed, and takes the file away when the result was printed.
 *
 * A process that dies at any point leaves the last state in the file, and another process resumes from there (C11).
 */

import type { Client, DriveOptions } from '../client/client.ts'
import type { DriveResult } from '../client/flow-options.ts'
import { delivered } from '../client/operation.ts'
import { type FlowRequest, openQuestions, type PendingCall } from '../client/pending.ts'
import type { Answers, AskInfo } from '../client/question.ts'
import { RondoError } from '../errors.ts'
import type { QuestionKind } from '../protocol/common/request.ts'
import type { TaskState } from '../protocol/task.ts'
import type { ElicitResult, InputRequest, InputResponse, Root } from '../protocol/wire.ts'
import type { Answerer } from './answerer.ts'
import { CommandError, type Exit } from './command-line.ts'
import { messageOf, sayHidden, sayKept } from './describe.ts'
import { type Io, tell } from './io.ts'
import type { PendingStore } from './pending-store.ts'
import { type CallEnding, printComplete, printPending } from './print-result.ts'
import { type NamedTarget, sayTarget } from './target.ts'

/** The call as it is in its file. */
export interface Standing {
  kept?: PendingCall
}

interface CallSession {
  readonly io: Io
  readonly client: Client
  readonly store: PendingStore
  readonly target: NamedTarget
  readonly accepts: readonly QuestionKind[]
  readonly answerer: Answerer
  /** What was cancelled because nobody could answer it while the server waited. */
  readonly unanswered: readonly string[]
  readonly standing: Standing
  readonly json: boolean
  /** Do not wait for a task. */
  readonly detach: boolean
  readonly drive: DriveOptions
}

/** Where a call stands: in its file, if it has one, and in the hands of this process. */
interface Hold {
  save(pending: PendingCall): void
  readonly kept: PendingCall | undefined
  /** Takes the file away. */
  drop(): void
  release(): void
}

/** Starts a call, or resumes one from the store, which the caller has claimed. */
export async function driveCall(
  session: CallSession,
  request: FlowRequest,
  stored?: PendingCall,
): Promise<Exit> {
  const { io, answerer, json } = session
  const hold = createHold(session, stored)
  const watch = watchTask(io, answerer)
  try {
    return await run(session, request, hold, watch)
  } catch (thrown) {
    const error = unwrap(thrown)
    const { kept } = hold
    const misfit = error instanceof CommandError && error.exit === 'answers'
    if (watch.stop.aborted && kept !== undefined) {
      tell(io, sayHidden(kept))
      return printPending(io, json, kept)
    }
    const isOver = misfit && stored === undefined && answerer.isScript && kept?.task === undefined
    if (watch.ended || isOver) hold.drop()
    else if (kept !== undefined) tell(io, sayKept(kept))
    throw error
  } finally {
    io.status.stop()
    hold.release()
  }
}

/** What ended a call that waited for this side is our own error, not that of the client library. */
function unwrap(error: unknown): unknown {
  const inner = error instanceof RondoError && error.code === 'INPUT_ABORTED' ? error.cause : undefined
  return inner instanceof CommandError ? inner : error
}

async function run(
  session: CallSession,
  request: FlowRequest,
  hold: Hold,
  { onTask, stop }: TaskWatch,
): Promise<Exit> {
  const { io, client, answerer, accepts, json } = session
  const signal = AbortSignal.any([io.signal, stop])
  const options: DriveOptions = { ...session.drive, accepts, signal, onTask, onPending: hold.save }
  let waiting = hold.kept
  for (;;) {
    if (waiting !== undefined && openQuestions(waiting).length > 0) {
      const answered = await answerer.answer(waiting, hold.save)
      if (answered === undefined) return printPending(io, json, hold.kept ?? waiting)
      hold.save(answered)
      waiting = answered
    }
    if (waiting?.task !== undefined && session.detach) return leaveTask(session, waiting, hold)
    io.status.start('waiting for the server')
    const step: DriveResult =
      waiting === undefined ? await client.start(request, options) : await client.resume(waiting, {}, options)
    io.status.stop()
    if (step.status === 'complete') {
      const exit = printComplete(io, json, request, step, endingOf(session))
      hold.drop()
      return exit
    }
    waiting = nameServer(session, step.pending)
  }
}

/** Tells the task its answers, if there are any, and does not wait for what it makes of them. */
async function leaveTask({ io, client, json }: CallSession, pending: PendingCall, hold: Hold): Promise<Exit> {
  const { task, answers } = pending
  if (task !== undefined && Object.keys(answers).length > 0) {
    await client.task(task.taskId).answer(answers, { signal: io.signal })
    hold.save(markDelivered(pending))
  }
  return printPending(io, json, hold.kept ?? pending)
}

function endingOf({ client, answerer, unanswered }: CallSession): CallEnding {
  const { protocolVersion } = client
  const [unused, interrupted] = [answerer.unused?.() ?? [], answerer.interrupted === true]
  return { unused, unanswered, protocolVersion, interrupted }
}

/** Calls the server what the person called it. */
function nameServer({ target }: Pick<CallSession, 'target'>, pending: PendingCall): PendingCall {
  return { ...pending, server: { ...pending.server, target: sayTarget(target) } }
}

function createHold(session: CallSession, begun: PendingCall | undefined): Hold {
  const { store, target, accepts, standing } = session
  standing.kept = begun
  let release: (() => void) | undefined
  return {
    get kept() {
      return standing.kept
    },
    save(asked) {
      const pending = nameServer({ target }, asked)
      if (begun === undefined) release ??= store.claim(pending.id)
      store.save({ target, accepts, pending })
      standing.kept = pending
    },
    drop() {
      if (standing.kept !== undefined) store.remove(standing.kept.id)
      standing.kept = undefined
    },
    release: () => release?.(),
  }
}

interface TaskWatch {
  onTask(task: TaskState): void
  /** It failed or was cancelled. */
  readonly ended: boolean
  /** Aborted if the task has questions that only a waiting client sees, and nobody can answer. */
  readonly stop: AbortSignal
}

/** Shows the status of a task while a call waits for it. */
function watchTask(io: Io, answerer: Answerer): TaskWatch {
  const stop = new AbortController()
  let ended = false
  return {
    stop: stop.signal,
    get ended() {
      return ended
    },
    onTask({ status, statusMessage, inputRequests }) {
      ended = status === 'failed' || status === 'cancelled'
      io.status.start(`task ${status}${statusMessage === undefined ? '' : `: ${statusMessage}`}`)
      const isHidden = status === 'input_required' && inputRequests === undefined
      if (isHidden && answerer.isNobody) stop.abort(new CommandError('pending', 'The task asks'))
    },
  }
}

/** Marks the answers as delivered to the task, so that they are not asked for again. */
export function markDelivered(pending: PendingCall): PendingCall {
  const { task, protocolVersion } = pending
  return task === undefined ? pending : delivered(pending, task, protocolVersion === '2026-07-28')
}

interface PushedAnswers {
  readonly answers: Answers
  /** What was asked and cancelled, because nobody could answer it. */
  readonly unanswered: readonly string[]
}

interface Answering {
  readonly answerer: Answerer
  readonly target: NamedTarget
  /** What the server may ask. */
  readonly kinds: readonly QuestionKind[]
  readonly roots: readonly Root[]
  /** Whether the call has become a task. */
  readonly isTask: () => boolean
}

/**
 * Answers servers of older revisions, which ask while a call waits. A question that nobody can answer is cancelled, so that
 * nothing hangs, and recorded: the command then exits with an error.
 */
export function createPushedAnswers(io: Io, answering: Answering): PushedAnswers {
  const { answerer, target, kinds, roots, isTask } = answering
  const unanswered: string[] = []
  const take = async (question: InputRequest, info: AskInfo): Promise<InputResponse> => {
    const { key, request, round, signal } = info
    const server = { ...info.server, target: sayTarget(target) }
    io.status.stop()
    const waiting = { key, question, signal, server, request, round, canKeep: false }
    const response = await answerer.answerNow(waiting)
    io.status.start('waiting for the server')
    if (response !== undefined) return response
    const asked = messageOf(question) ?? key
    // A task outlives whoever follows it: somebody else may have the answer.
    if (isTask()) throw new CommandError('answers', `No answer for "${asked}"`)
    unanswered.push(asked)
    if (question.method === 'elicitation/create') return { action: 'cancel' }
    throw new CommandError(
      'answers',
      `No answer for "${key}" (${question.method}), and the server waits for it`,
    )
  }
  return {
    unanswered,
    answers: {
      elicitation: (params, info) =>
        take({ method: 'elicitation/create', params }, info) as Promise<ElicitResult>,
      ...(kinds.includes('sampling') && {
        sampling: (params, info) => take({ method: 'sampling/createMessage', params }, info) as never,
      }),
      ...(kinds.includes('roots') && { roots }),
    },
  }
}
