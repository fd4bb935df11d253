/**
 * Runs one turn of a claimed task and stores its outcome.
 *
 * Entries are appended in the order in which they were recorded; those recorded during a write share the next one. A
 * write that fails ends the turn, because the content of the database is then unknown. Once the lease is lost, writes are
 * rejected here and fenced off in the store.
 */

import { misuse, RondoError } from '../../errors.ts'
import {
  type AnsweredSlot,
  changeSlots,
  closeSlots,
  givenAnswers,
  type InputSlot,
  mergeSlots,
  nameOf,
  newAnswers,
  openSlots,
  type SlotChange,
} from '../input-slots.ts'
import type { OperatorStore } from '../operator.ts'
import type { LossReason, RunTurn, Sealed, TaskOwner, TaskTurn, TaskTurnOutcome } from '../task-engine.ts'
import { ENDED_BYTES, endingBytes, type Lease, type TaskStore } from '../task-store.ts'

/** The operations of a store that a turn needs. */
export type TurnStore = Pick<
  TaskStore,
  'append' | 'status' | 'publish' | 'park' | 'settle' | 'release' | 'hold' | 'slots'
>

export type TurnEnd =
  | { readonly kind: Exclude<TaskTurnOutcome['kind'], 'park'> }
  /** `timed`: the task may be due before anybody answers. */
  | { readonly kind: 'park'; readonly timed: boolean }
  | { readonly kind: 'lost'; readonly reason: LossReason }
  | { readonly kind: 'retry' | 'gave-up'; readonly failures: number; readonly error?: unknown }

export interface TaskTurnOptions {
  /** A task fails after this many turns that died or threw with nothing recorded in between. */
  readonly maxFailures: number
  readonly maxJournalBytes: number
  /** How long a failed task keeps its journal. Default: not at all. */
  readonly keepFailedMs?: number
  readonly backoffMs: (failures: number) => number
  /** Writes the labels of a task. Absent if the store has no part for operators. */
  readonly label?: OperatorStore['label']
  /** Called when the handler of a turn has returned and its outcome is about to be written. */
  readonly onEnding?: () => void
  /** Called when a task of the owner has ended, with its bytes. */
  readonly onEnded?: (owner: TaskOwner, bytes: number) => void
}

export interface RunningTurn {
  readonly lease: Lease
  /** Aborts the turn. Only the first reason is kept. */
  lose(reason: LossReason): void
  drain(): void
  /** True while the turn has open slots: answers may arrive. */
  readonly waiting: boolean
  /** Reads the answers that arrived since `revision` was seen. Rejects if the store fails. */
  refresh(revision: number): Promise<void>
  readonly lost: LossReason | undefined
  /** True once the outcome is being written: that write finds out by itself whether the lease is still held. */
  readonly ending: boolean
  /** Resolves when the handler has returned and the outcome is written; never rejects. */
  readonly done: Promise<TurnEnd>
}

export function runTurn(store: TurnStore, lease: Lease, run: RunTurn, options: TaskTurnOptions): RunningTurn {
  const aborter = new AbortController()
  const drainer = new AbortController()
  const { failures } = lease.task
  let lost: LossReason | undefined
  let ending = false
  const lose = (reason: LossReason) => {
    if (lost !== undefined) return
    lost = reason
    aborter.abort(new RondoError('STORE_LEASE_LOST', `the lease of this task was lost: ${reason}`))
  }
  const fenced = async (write: () => Promise<boolean>): Promise<void> => {
    aborter.signal.throwIfAborted()
    const held = await write().catch((error) => {
      lose('store failed')
      throw error
    })
    if (held) return
    lose('cancelled or taken over')
    aborter.signal.throwIfAborted()
  }
  const journal = createRecorder(store, lease, options.maxJournalBytes, fenced)
  // A failure to write a message does not end the turn; a lost lease does.
  const messages = createLatest(async (message: Sealed) => {
    aborter.signal.throwIfAborted()
    if (!(await store.status(lease.fence, message))) lose('cancelled or taken over')
  })
  const { label } = options
  const labels =
    label &&
    createLatest((given: { readonly labels: Sealed; readonly tags: readonly string[] }) =>
      fenced(() => label(lease.fence, given.labels, given.tags)),
    )
  const inputs = createInputs(store, lease, fenced)
  const turn: TaskTurn = {
    task: lease.task,
    number: lease.fence.epoch,
    journal: lease.journal,
    claimedAt: lease.now,
    answers: givenAnswers(lease.slots),
    slots: inputs.slots,
    publish: inputs.publish,
    onAnswers: inputs.onAnswers,
    record: journal.record,
    status: messages.put,
    label: labels && ((sealed, tags) => labels.put({ labels: sealed, tags })),
    signal: aborter.signal,
    draining: drainer.signal,
  }
  const finish = async (): Promise<TurnEnd> => {
    try {
      const outcome = await run(turn)
      await Promise.all([journal.flushed(), messages.idle(), labels?.idle(), inputs.stop()])
      const keepMs = outcome.kind === 'fail' ? options.keepFailedMs : undefined
      const write = prepareOutcome(store, lease, inputs.slots(), outcome, keepMs)
      ending = true
      options.onEnding?.()
      await fenced(write)
      if (outcome.kind === 'complete' || outcome.kind === 'fail')
        options.onEnded?.(lease.task.owner, endingBytes(outcome) + (keepMs ? journal.bytes() : 0))
      if (outcome.kind === 'park') return { kind: 'park', timed: outcome.wakeAt !== undefined }
      return { kind: outcome.kind }
    } catch (error) {
      if (lost !== undefined) return { kind: 'lost', reason: lost }
      return await failTurn(store, lease, options, journal.recorded() ? 1 : failures + 1, error)
    }
  }
  return {
    lease,
    lose,
    drain: () => drainer.abort(),
    get waiting() {
      return !ending && inputs.waiting()
    },
    refresh: inputs.refresh,
    get lost() {
      return lost
    },
    get ending() {
      return ending
    },
    done: failures >= options.maxFailures ? giveUp(store, lease, options, failures) : finish(),
  }
}

/** Throws if the outcome is invalid: that is a fault of the handler, not of the store. */
function prepareOutcome(
  store: TurnStore,
  { fence }: Lease,
  slots: readonly InputSlot[],
  outcome: TaskTurnOutcome,
  keepMs: number | undefined,
): () => Promise<boolean> {
  if (outcome.kind === 'release') return () => store.release(fence, outcome.delayMs ?? 0, false)
  if (outcome.kind === 'hold') return () => store.hold(fence)
  if (outcome.kind === 'complete') return () => store.settle(fence, outcome)
  if (outcome.kind === 'fail') return () => store.settle(fence, { ...outcome, keepMs })
  const next = closeSlots(openSlots(slots, outcome.inputs, undefined, outcome.until), outcome.close ?? [])
  if (outcome.wakeAt === undefined && !next.some((slot) => slot.kind === 'open'))
    throw misuse('A task cannot wait for nothing: park it with at least one input request, or a time')
  return () => store.park(fence, next, outcome.wakeAt, outcome.liveUntil)
}

/** If the store cannot be reached, the lease runs out and the next worker counts the failure. */
async function failTurn(
  store: TurnStore,
  lease: Lease,
  options: TaskTurnOptions,
  failures: number,
  error: unknown,
): Promise<TurnEnd> {
  if (failures >= options.maxFailures) return await giveUp(store, lease, options, failures, error)
  try {
    await store.release(lease.fence, options.backoffMs(failures), true)
  } catch {
    return { kind: 'lost', reason: 'store failed' }
  }
  return { kind: 'retry', failures, error }
}

async function giveUp(
  store: TurnStore,
  lease: Lease,
  options: TaskTurnOptions,
  failures: number,
  error?: unknown,
): Promise<TurnEnd> {
  try {
    const written = await store.settle(lease.fence, { kind: 'fail', keepMs: options.keepFailedMs })
    const kept = options.keepFailedMs ? lease.journal.reduce((sum, { length }) => sum + length, 0) : 0
    if (written) options.onEnded?.(lease.task.owner, ENDED_BYTES + kept)
    return written
      ? { kind: 'gave-up', failures, error }
      : { kind: 'lost', reason: 'cancelled or taken over' }
  } catch {
    return { kind: 'lost', reason: 'store failed' }
  }
}

/** The slots of a task while its turn runs: changed by the turn, answered by its owner and by the server. */
function createInputs(
  store: TurnStore,
  lease: Lease,
  fenced: (write: () => Promise<boolean>) => Promise<void>,
) {
  let slots = lease.slots
  let listener: (answered: AnsweredSlot) => boolean = () => false
  let publishing = Promise.resolve()
  let seen = 0
  let stopped = false
  const update = (next: readonly InputSlot[]) => {
    const missed = newAnswers(slots, next).filter((slot) => stopped || !listener(slot))
    // Slots that the turn did not take stay open here, so that the store finds them when the task parks.
    const known = new Map(slots.map((slot) => [nameOf(slot), slot]))
    slots = next.map((slot) => (missed.includes(slot as AnsweredSlot) && known.get(nameOf(slot))) || slot)
  }
  const write = (change: SlotChange) =>
    fenced(async () => {
      const merged = await store.publish(lease.fence, changeSlots(slots, change))
      if (merged) update(merged)
      return merged !== undefined
    })
  return {
    slots: () => slots,
    /** One write at a time, so that none undoes another. */
    publish(change: SlotChange): Promise<void> {
      const mine = publishing.then(() => write(change))
      publishing = mine.catch(() => {})
      return mine
    },
    onAnswers(listen: typeof listener) {
      listener = listen
    },
    waiting: () => !stopped && slots.some((slot) => slot.kind === 'open'),
    async refresh(revision: number) {
      if (revision === seen) return
      const stored = await store.slots(lease.fence.id, lease.task.owner)
      seen = revision
      if (stored) update(mergeSlots(stored, slots).slots)
    },
    /** Tells the turn nothing more; what arrives from now on makes the task due when it parks. */
    stop() {
      stopped = true
      return publishing
    },
  }
}

interface Waiting {
  readonly entry: Sealed
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

function createRecorder(
  store: TurnStore,
  lease: Lease,
  maxBytes: number,
  fenced: (write: () => Promise<boolean>) => Promise<void>,
) {
  let position = lease.journal.length
  let bytes = lease.journal.reduce((sum, entry) => sum + entry.length, 0)
  let waiting: Waiting[] = []
  let flushing: Promise<void> | undefined
  const flush = async () => {
    while (waiting.length > 0) {
      const batch = waiting
      waiting = []
      try {
        await fenced(() =>
          store.append(
            lease.fence,
            position,
            batch.map(({ entry }) => entry),
          ),
        )
        position += batch.length
        for (const { resolve } of batch) resolve()
      } catch (error) {
        for (const { reject } of batch) reject(error)
      }
    }
    flushing = undefined
  }
  return {
    record(entry: Sealed): Promise<void> {
      if (bytes + entry.length > maxBytes)
        return Promise.reject(journalTooLarge(bytes + entry.length, maxBytes))
      bytes += entry.length
      return new Promise((resolve, reject) => {
        waiting.push({ entry, resolve, reject })
        flushing ??= flush()
      })
    },
    flushed: () => flushing ?? Promise.resolve(),
    bytes: () => bytes,
    recorded: () => position > lease.journal.length,
  }
}

/** Writes one value at a time. Of the values that arrive during a write, only the newest is written next. */
function createLatest<T>(write: (value: T) => Promise<void>) {
  let next: { readonly value: T } | undefined
  let writing: Promise<void> | undefined
  const writeAll = async () => {
    try {
      while (next !== undefined) {
        const { value } = next
        next = undefined
        await write(value)
      }
    } finally {
      next = undefined
      writing = undefined
    }
  }
  return {
    /** Resolves when this value, or a newer one, is written. */
    put(value: T): Promise<void> {
      next = { value }
      writing ??= writeAll()
      return writing
    },
    /** Resolves when nothing is being written; never rejects. */
    idle: async () => writing?.catch(() => {}),
  }
}

/** The error of a journal that is larger than a task may have. */
export function journalTooLarge(bytes: number, limit: number): RondoError {
  const detail = `The sealed journal of the task would have ${bytes} bytes; at most ${limit} are allowed (tasks.maxJournalBytes).`
  return new RondoError('LIMIT_STATE_BYTES', detail)
}
