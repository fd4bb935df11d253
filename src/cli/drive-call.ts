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
import type { Answerer } from './answerer.ts'
import { CommandError } from './command-error.ts'
import { sayPending } from './describe-call.ts'
import type { Exit } from './exit-code.ts'
import { type Io, print, printJson, tell } from './io.ts'
import type { PendingStore } from './pending-store.ts'
import { printResult } from './print-result.ts'
import { type NamedTarget, sayTarget } from './target.ts'

export interface CallSession {
  readonly io: Io
  readonly client: Client
  readonly store: PendingStore
  readonly target: NamedTarget
  readonly accepts: readonly QuestionKind[]
  readonly answerer: Answerer
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
  const { io, answerer } = session
  const hold = createHold(session, stored)
  try {
    return await run(session, request, hold)
  } catch (error) {
    const misfit = error instanceof CommandError && error.exit === 'answers'
    if (misfit && stored === undefined && answerer.isScript) hold.drop()
    else if (hold.kept !== undefined) tell(io, `The call is kept: rondo resume ${hold.kept.id}`)
    throw error
  } finally {
    io.status.stop()
    hold.release()
  }
}

async function run(session: CallSession, request: FlowRequest, hold: Hold): Promise<Exit> {
  const { io, client, answerer } = session
  const options: DriveOptions = { ...session.drive, accepts: session.accepts, onPending: hold.save }
  let waiting = hold.kept
  for (;;) {
    if (waiting !== undefined && openQuestions(waiting).length > 0) {
      const answered = await answerer.answer(waiting, hold.save)
      if (answered === undefined) return printPending(session, hold.kept ?? waiting)
      hold.save(answered)
      waiting = answered
    }
    io.status.start('waiting for the server')
    const step: Step =
      waiting === undefined ? await client.start(request, options) : await client.resume(waiting, {}, options)
    io.status.stop()
    if (step.status === 'complete') return conclude(session, request, step, hold)
    waiting = nameServer(session, step.pending)
    if (step.status === 'task' && session.detach) return printPending(session, waiting)
  }
}

/** Calls the server what the person called it. */
function nameServer({ target }: Pick<CallSession, 'target'>, pending: PendingCall): PendingCall {
  return { ...pending, server: { ...pending.server, target: sayTarget(target) } }
}

function conclude(
  { io, json, answerer }: CallSession,
  request: FlowRequest,
  step: Extract<Step, { status: 'complete' }>,
  hold: Hold,
): Exit {
  const unused = answerer.unused?.() ?? []
  const failed = 'isError' in step.result && step.result.isError === true
  if (json) {
    const extra = unused.length > 0 ? { unused } : {}
    printJson(io, { status: 'complete', rounds: step.rounds, result: step.result, ...extra })
  } else printResult(io, request, step.result)
  hold.drop()
  if (unused.length > 0) {
    const keys = unused.map((key) => `"${key}"`).join(', ')
    if (json) return 'answers'
    throw new CommandError('answers', `Nobody asked for ${keys}`)
  }
  if (answerer.interrupted === true) return 'interrupted'
  return failed ? 'failed' : 'done'
}

function printPending({ io, json }: CallSession, pending: PendingCall): Exit {
  if (json) printJson(io, { status: 'input_required', ...pendingJson(pending) })
  else print(io, `pending ${pending.id}\n${sayPending(pending)}`)
  return 'pending'
}

/** A pending call as it is printed: all but the server's state, which is in the file. */
export function pendingJson({ state, ...pending }: PendingCall): Record<string, unknown> {
  return { ...pending, stateBytes: state === undefined ? 0 : Buffer.byteLength(state) }
}

function createHold({ store, target, accepts }: CallSession, begun: PendingCall | undefined): Hold {
  let kept = begun
  let release: (() => void) | undefined
  return {
    get kept() {
      return kept
    },
    save(asked) {
      const pending = nameServer({ target }, asked)
      if (begun === undefined) release ??= store.claim(pending.id)
      store.save({ target, accepts, pending })
      kept = pending
    },
    drop() {
      if (kept !== undefined) store.remove(kept.id)
      kept = undefined
    },
    release: () => release?.(),
  }
}
