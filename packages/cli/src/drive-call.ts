/**
 * Drives one call from the command line to its end, or to where it has to wait: sends it, has its questions answered, saves
 * the call to its file after every change, and removes the file after the result was printed.
 *
 * A process that dies at any point leaves the last state in the file, and another process can resume from there (C11).
 */

import { RondoError } from 'rondo'
import type {
  Answers,
  AskInfo,
  Client,
  DriveOptions,
  DriveResult,
  ElicitResult,
  InputRequest,
  InputResponse,
  QuestionKind,
  Root,
  TaskState,
} from 'rondo/client'
import { type FlowRequest, openQuestions, PeerError, type PendingCall } from 'rondo/client'
import { delivered, LATEST_VERSION } from 'rondo/internal'
import type { Answerer } from './answers.ts'
import { CommandError, type Exit } from './command-line.ts'
import {
  type CompletionNotes,
  commandOf,
  messageOf,
  printComplete,
  printPending,
  sayHidden,
  sayKept,
  sayStateRefused,
  sayUnconfirmed,
} from './describe.ts'
import { type Io, tell } from './io.ts'
import type { PendingStore } from './pending-store.ts'
import { type NamedTarget, sayTarget } from './words.ts'

/** The call as it was last saved to its file, if it was. */
export interface SavedCall {
  saved?: PendingCall
}

interface CallContext {
  readonly io: Io
  readonly client: Client
  readonly store: PendingStore
  readonly target: NamedTarget
  readonly accepts: readonly QuestionKind[]
  readonly answerer: Answerer
  /** Questions that were cancelled, because nobody could answer them while the server waited. */
  readonly unanswered: readonly string[]
  readonly file: SavedCall
  readonly json: boolean
  /** True if the command does not wait for a task. */
  readonly detach: boolean
  readonly drive: DriveOptions
}

/** This process's claim on a call, and the file of the call. */
interface Hold {
  save(pending: PendingCall): void
  readonly saved: PendingCall | undefined
  /** Removes the file. */
  drop(): void
  release(): void
}

/** Starts a call, or resumes one from the store, which the caller has claimed. */
export async function driveCall(
  context: CallContext,
  request: FlowRequest,
  stored?: PendingCall,
): Promise<Exit> {
  const { io, answerer, json } = context
  const hold = createHold(context, stored)
  const watch = watchTask(io, answerer)
  try {
    return await run(context, request, hold, watch)
  } catch (thrown) {
    const error = unwrap(thrown)
    const { saved } = hold
    const invalid = error instanceof CommandError && error.exit === 'answers'
    if (watch.stop.aborted && saved !== undefined) {
      tell(io, sayHidden(saved, commandOf(io)))
      return printPending(io, json, saved)
    }
    const isOver = invalid && stored === undefined && answerer.isScript && saved?.task === undefined
    if (watch.ended || isOver) hold.drop()
    else if (saved !== undefined)
      tell(io, (refusesState(error) ? sayStateRefused : sayKept)(saved, commandOf(io)))
    if (error instanceof PeerError && error.peer.code === -32603) pointAtLog(context)
    throw error
  } finally {
    io.status.stop()
    hold.release()
  }
}

/** If an error of ours aborted the call, returns it instead of the client library's. */
function unwrap(error: unknown): unknown {
  const inner = error instanceof RondoError && error.code === 'INPUT_ABORTED' ? error.cause : undefined
  return inner instanceof CommandError ? inner : error
}

/** The wording of Rondo and of the official packages; other servers' words are only printed. */
function refusesState(error: unknown): boolean {
  return (
    error instanceof PeerError && error.peer.code === -32602 && /\brequestState\b/.test(error.peer.message)
  )
}

/** A caller of a file of their own wants to know why it failed, and a client is never told. */
function pointAtLog({ io, json, target, drive }: CallContext): void {
  if (!json && target.kind === 'file' && drive.onLog === undefined)
    tell(io, 'rondo: Add --server-log to see what the server logged')
}

async function run(
  context: CallContext,
  request: FlowRequest,
  hold: Hold,
  { onTask, stop }: TaskWatch,
): Promise<Exit> {
  const { io, client, answerer, accepts, json } = context
  const signal = AbortSignal.any([io.signal, stop])
  const options: DriveOptions = { ...context.drive, accepts, signal, onTask, onPending: hold.save }
  let waiting = hold.saved
  for (;;) {
    if (waiting !== undefined && openQuestions(waiting).length > 0) {
      const answered = await answerer.answer(waiting, hold.save)
      if (answered === undefined) return printPending(io, json, hold.saved ?? waiting)
      hold.save(answered)
      waiting = answered
    }
    if (waiting?.task !== undefined && context.detach) return leaveTask(context, waiting, hold)
    io.status.start('waiting for the server')
    const step: DriveResult =
      waiting === undefined ? await client.start(request, options) : await client.resume(waiting, {}, options)
    io.status.stop()
    if (step.status === 'complete') {
      const exit = printComplete(io, json, request, step, notesOf(context))
      if (exit === 'failed') pointAtLog(context)
      hold.drop()
      return exit
    }
    waiting = nameServer(context, step.pending)
  }
}

/**
 * Sends the answers to the task, if there are any, and does not wait for the result. A server may run nothing that takes
 * effect until a client has named the task, which shows that the reply with its id arrived: without answers, ask for its state.
 */
async function leaveTask({ io, client, json }: CallContext, pending: PendingCall, hold: Hold): Promise<Exit> {
  const { task, answers } = pending
  if (task !== undefined && Object.keys(answers).length > 0) {
    await client.task(task.taskId).answer(answers, { signal: io.signal })
    hold.save(markDelivered(pending))
  } else if (task !== undefined) {
    if (hold.saved?.task === undefined) hold.save(pending)
    await client
      .task(task.taskId)
      .get({ signal: io.signal })
      .catch((error: Error) => tell(io, sayUnconfirmed(pending, error, commandOf(io))))
  }
  return printPending(io, json, hold.saved ?? pending)
}

function notesOf({ client, answerer, unanswered }: CallContext): CompletionNotes {
  const { protocolVersion } = client
  const [unused, interrupted] = [answerer.unused?.() ?? [], answerer.interrupted === true]
  return { unused, unanswered, protocolVersion, interrupted }
}

/** Names the server as the user named it. */
function nameServer({ target }: Pick<CallContext, 'target'>, pending: PendingCall): PendingCall {
  return { ...pending, server: { ...pending.server, target: sayTarget(target) } }
}

function createHold(context: CallContext, begun: PendingCall | undefined): Hold {
  const { store, target, accepts, file } = context
  file.saved = begun
  let release: (() => void) | undefined
  return {
    get saved() {
      return file.saved
    },
    save(asked) {
      const pending = nameServer({ target }, asked)
      if (begun === undefined) release ??= store.claim(pending.id)
      store.save({ target, accepts, pending })
      file.saved = pending
    },
    drop() {
      if (file.saved !== undefined) store.remove(file.saved.id)
      file.saved = undefined
    },
    release: () => release?.(),
  }
}

interface TaskWatch {
  onTask(task: TaskState): void
  /** True if the task failed or was cancelled. */
  readonly ended: boolean
  /** Aborted if the task has questions that only a waiting client receives, and nobody can answer them. */
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
      if (isHidden && answerer.isNobody) stop.abort(new CommandError('pending', 'The task asks a question'))
    },
  }
}

/** Marks the answers as delivered to the task, so that they are not asked for again. */
export function markDelivered(pending: PendingCall): PendingCall {
  const { task, protocolVersion } = pending
  return task === undefined ? pending : delivered(pending, task, protocolVersion === LATEST_VERSION)
}

interface PushedAnswers {
  readonly answers: Answers
  /** Questions that were cancelled, because nobody could answer them. */
  readonly unanswered: readonly string[]
}

interface Answering {
  readonly answerer: Answerer
  readonly target: NamedTarget
  /** The kinds of questions that the server may ask. */
  readonly kinds: readonly QuestionKind[]
  readonly roots: readonly Root[]
  /** Returns true if the call has become a task. */
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
    // A task does not end with this process, and somebody else may have the answer.
    if (isTask()) throw new CommandError('answers', `No answer for "${asked}"`)
    unanswered.push(asked)
    if (question.method === 'elicitation/create') return { action: 'cancel' }
    throw new CommandError(
      'answers',
      `No answer for "${key}" (${question.method}), which the server waits for`,
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
