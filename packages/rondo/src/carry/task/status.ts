/**
 * The view that the owner of a task has while it runs: its status message, and at the end of this file its questions.
 *
 * The status message is the author's own (`ctx.status`), or one that says which step runs or what the task waits for.
 *
 * status 1: The author's message wins for as long as the task is open, and after it has completed. A task that failed or was
 * cancelled says so.
 * status 2: A replay reports nothing again: it only learns that the author has set a message before.
 * status 3: Most automatic messages follow from the state of the task and are never stored. What runs is stored once it has
 * been running for a while, so that short steps cost no write.
 */

import type { TaskState } from '../../protocol/reply.ts'
import type { ReplayInput, StatusPort } from '../../replay/input.ts'
import type { AnsweredSlot } from '../../store/input-slots.ts'
import type { TaskTurn, TaskView } from '../../store/task-engine.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { eventsOf } from './hook.ts'
import {
  type Folded,
  freeKey,
  MissingKey,
  openPiece,
  type Parked,
  sealPiece,
  shownAs,
  type TaskRecord,
  unmarkAnswer,
  withOpened,
} from './journal.ts'

/** A message as it is stored. The author's own is text. */
export type StoredMessage = string | { readonly auto: string }

/** Returns the status message for the owner of a task. `inputs` are the keys of the open questions. */
export function statusMessageOf(
  kept: StoredMessage | undefined,
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

/** Work that runs longer is named in the message. */
const SHOWN_AFTER_MS = 500

/** Reports for one turn. */
export interface StatusReporter extends StatusPort {
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

  const write = (message: StoredMessage): void => {
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
    setStatus(message) {
      reported = true
      own = true
      stop()
      write(shorten(message))
    },
    statusWasSet() {
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

// Questions of a task that are shown while its turn still runs, and the answers that arrive meanwhile.
//
// The journal names a question before the client can see it. If the process dies in between, the next turn shows it; if it
// dies later, the next turn finds the question and its answer in the store.

export interface Shown extends Required<Pick<ReplayInput, 'publish' | 'withdraw' | 'onArrival'>> {
  /** The questions of the task before this turn and in it. */
  folded(): Folded
  /** The record of a park, with the offers that stay open. */
  keepOffers(record: TaskRecord): TaskRecord
}

export function createShown(host: FlowHost, tasks: TaskHost, turn: TaskTurn, before: Folded): Shown {
  const { task } = turn
  let { parked } = before

  const publish: Shown['publish'] = async (questions, { reasks }) => {
    const mine = turn.slots().filter((slot) => slot.role !== 'hook')
    const taken = new Set(mine.map((slot) => slot.key))
    const asked: Record<string, Parked['asked'][string]> = {}
    const open: { key: string; role?: 'offer'; request: string; until?: number }[] = []
    for (const [key, { request, digest, due: until, standing }] of questions) {
      if (shownAs(parked, mine, key, digest) !== undefined) continue
      const wireKey = freeKey(key, taken)
      taken.add(wireKey)
      asked[wireKey] = { key, digest }
      const sealed = sealPiece(host, task, `input ${wireKey}`, request)
      open.push({ key: wireKey, role: standing ? 'offer' : undefined, request: sealed, until })
    }
    if (open.length === 0) return
    const opened = { asked, reasks }
    parked = withOpened(parked, opened)
    await turn.record(sealPiece(host, task, 'record', { opened } satisfies TaskRecord))
    await turn.publish({ open })
  }

  const toArrival = (slot: AnsweredSlot) => {
    const [event] = eventsOf(host, tasks, task, [slot])
    if (event) return { hook: event[0], value: event[1] }
    const question = Object.hasOwn(parked.asked, slot.key) ? parked.asked[slot.key] : undefined
    if (!question) return undefined
    const { answer } = unmarkAnswer(openPiece(host, tasks, task, `answer ${slot.key}`, slot.answer))
    // Text is a method that the client turned out not to implement: the next turn does without it.
    return typeof answer === 'string'
      ? undefined
      : { question: question.key, digest: question.digest, answer }
  }

  return {
    publish,
    onArrival: (arrival) =>
      turn.onAnswers((slot) => {
        const arrived = readable(() => toArrival(slot))
        return arrived !== undefined && arrival(arrived)
      }),
    async withdraw(key) {
      const close = turn
        .slots()
        .filter(
          (slot) => slot.role === 'offer' && slot.kind === 'open' && parked.asked[slot.key]?.key === key,
        )
      if (close.length > 0) await turn.publish({ close })
    },
    keepOffers(record) {
      if (!('parked' in record)) return record
      const offers = turn.slots().flatMap((slot) => {
        const asked = Object.hasOwn(parked.asked, slot.key) ? parked.asked[slot.key] : undefined
        return slot.role === 'offer' && slot.kind === 'open' && asked ? [[slot.key, asked] as const] : []
      })
      const asked = { ...Object.fromEntries(offers), ...record.parked.asked }
      return { parked: { ...record.parked, asked } }
    },
    folded: () => ({ ...before, parked }),
  }
}

/** Returns undefined for what this process lacks the key for: this turn does without it, and the next one may have the key. */
function readable<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch (error) {
    if (error instanceof MissingKey) return undefined
    throw error
  }
}
