/**
 * The status message of a task: the author's own (`ctx.status`), or one that says which step runs or what the task waits for.
 *
 * status 1: The author's message wins for as long as the task is open, and after it has completed. A task that failed or was
 * cancelled says so.
 * status 2: A replay reports nothing again: it only learns that the author has set a message before.
 * status 3: Most automatic messages follow from the state of the task and are never stored. What runs is stored once it has
 * been running for a while, so that short steps cost no write.
 */

import type { TaskState } from '../../protocol/task.ts'
import type { Background } from '../../replay/run-state.ts'
import type { TaskTurn, TaskView } from '../../store/task-engine.ts'
import type { FlowHost } from '../host.ts'
import { sealPiece } from './journal.ts'

/** A message as it is stored. The author's own is text. */
export type KeptMessage = string | { readonly auto: string }

/** What the owner of a task reads. `inputs` are the keys of the open questions. */
export function statusMessageOf(
  kept: KeptMessage | undefined,
  { status, revision }: Pick<TaskView, 'status' | 'revision'>,
  inputs: readonly string[],
  error: TaskState['error'],
): string {
  const own = typeof kept === 'string' ? kept : undefined
  switch (status) {
    case 'working':
      return own ?? (typeof kept === 'object' ? kept.auto : revision === 1 ? 'Started' : WORKING)
    case 'input_required':
      return own ?? waitingFor(inputs)
    case 'completed':
      return own ?? 'Completed'
    case 'failed':
      return error?.message ?? 'Failed'
    case 'cancelled':
      return 'Cancelled'
  }
}

const WORKING = 'Working'

/** A key that is asked again has a number behind it. */
export function waitingFor(keys: readonly string[]): string {
  return `Waiting for an answer to ${listed(keys.map((key) => key.replace(/~\d+$/, '')))}`
}

function listed(names: readonly string[]): string {
  return shorten(names.map((name) => JSON.stringify(name)).join(', '))
}

/** A message is one line for people. */
const MAX_MESSAGE = 1000

function shorten(message: string): string {
  return message.length > MAX_MESSAGE ? `${message.slice(0, MAX_MESSAGE)}…` : message
}

/** How long work runs before the message names it. */
const SHOWN_AFTER_MS = 500

/** Reports for one turn. */
export interface StatusReporter extends Pick<Background, 'tell' | 'told' | 'begins'> {
  /** True if the author has reported something in this turn. */
  readonly reported: boolean
  /** The work under this key is recorded. */
  ends(key: string): void
  /** The task rests after this turn. `waits` says what it waits for, if its state does not. */
  rests(waits?: string): void
  /** Nothing more is reported in this turn. */
  close(): void
}

export function createStatusReporter(
  host: FlowHost,
  turn: Pick<TaskTurn, 'task' | 'status'>,
): StatusReporter {
  const running = new Map<string, string>()
  let reported = false
  /** The author has set a message in this task. */
  let own = false
  let shown: string | undefined
  let stopTimer: (() => void) | undefined

  const write = (message: KeptMessage): void => {
    const send = async () => turn.status(sealPiece(host, turn.task, 'message', message))
    // A message that is lost changes nothing: the worker that has the task now reports the next one.
    send().catch(() => {})
  }
  const show = (message: string): void => {
    if (own || message === (shown ?? WORKING)) return
    shown = message
    write({ auto: message })
  }
  const current = (): string =>
    running.size === 0
      ? WORKING
      : `Running ${[...new Set(running.values())].join(' and ')} ${listed([...running.keys()])}`
  const refreshLater = (): void => {
    if (own || stopTimer || (running.size === 0 && (shown ?? WORKING) === WORKING)) return
    stopTimer = host.platform.after(SHOWN_AFTER_MS, () => {
      stopTimer = undefined
      show(current())
    })
  }
  const stop = (): void => {
    stopTimer?.()
    stopTimer = undefined
  }

  return {
    get reported() {
      return reported
    },
    tell(message) {
      reported = true
      own = true
      stop()
      write(shorten(message))
    },
    told() {
      own = true
      stop()
    },
    begins(kind, key) {
      running.set(key, kind)
      refreshLater()
    },
    ends(key) {
      running.delete(key)
      if (running.size === 0 && shown === undefined) stop()
      else refreshLater()
    },
    rests(waits = WORKING) {
      stop()
      show(waits)
    },
    close: stop,
  }
}
