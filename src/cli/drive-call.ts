/**
 * Drives one call from the command line to its end, or to where it has to wait: sends, has questions answered, keeps the
 * call in its file whenever it changed, and takes the file away when the result was printed.
 *
 * A process that dies at any point leaves the last state in the file; another goes on from there (C11).
 */

import type { Client, DriveOptions } from '../client/client.ts'
import type { Step } from '../client/flow-options.ts'
import type { FlowRequest } from '../client/flow-request.ts'
import { openQuestions, type PendingCall } from '../client/pending.ts'
import type { QuestionKind } from '../client/question.ts'
import { RondoError } from '../errors.ts'
import type { Answerer } from './answerer.ts'
import { CommandError } from './command-error.ts'
import { sayHidden, sayKept } from './describe-call.ts'
import type { Exit } from './exit-code.ts'
import { type Io, tell } from './io.ts'
import { markDelivered } from './mark-delivered.ts'
import type { PendingStore } from './pending-store.ts'
import { type Ending, printComplete, printPending } from './print-call.ts'
import { type NamedTarget, sayTarget } from './target.ts'
import { type TaskWatch, watchTask } from './watch-task.ts'

/** The call as it is in its file. */
export interface Standing {
  kept?: PendingCall
}

export interface CallSession {
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

/** Begins a call, or goes on with one from the store, which the caller has claimed. */
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
    const step: Step =
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

function endingOf({ client, answerer, unanswered }: CallSession): Ending {
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
