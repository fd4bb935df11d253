/**
 * Runs one turn of one claimed task, and writes down how it ended.
 *
 * Entries go to the store in the order in which they were recorded, those that wait for the same write together.
 * A write that fails ends the turn: what the database holds is not known, so nothing may be built on it.
 * Whatever a turn does after it was lost has no effect: here it is refused, and in the store it is fenced.
 */

import { RondoError } from '../../errors.ts'
import { givenAnswers, openSlots } from '../input-slots.ts'
import type { LossReason, Outcome, RunTurn, Sealed, Turn } from '../task-engine.ts'
import type { Lease, TaskStore } from '../task-store.ts'

export type TurnEnd =
  | { readonly kind: Outcome['kind'] }
  | { readonly kind: 'lost'; readonly reason: LossReason }
  | { readonly kind: 'retry' | 'gave-up'; readonly failures: number; readonly error?: unknown }

export interface TurnOptions {
  /** A task is given up when this many turns of it died or threw without recording anything. */
  readonly maxFailures: number
  readonly maxJournalBytes: number
  readonly backoffMs: (failures: number) => number
}

export interface RunningTurn {
  readonly lease: Lease
  /** Takes the task away from the handler. The first reason counts. */
  lose(reason: LossReason): void
  drain(): void
  readonly lost: LossReason | undefined
  /** True from when the outcome is being written: that write finds out by itself whether the task is still ours. */
  readonly ending: boolean
  /** Resolves when the handler has come back and the outcome is written; never rejects. */
  readonly done: Promise<TurnEnd>
}

export function runTurn(store: TaskStore, lease: Lease, run: RunTurn, options: TurnOptions): RunningTurn {
  const aborter = new AbortController()
  const drainer = new AbortController()
  const { failures } = lease.task
  let lost: LossReason | undefined
  let ending = false
  const lose = (reason: LossReason) => {
    if (lost !== undefined) return
    lost = reason
    aborter.abort(new RondoError('STORE_LEASE_LOST', `this task is no longer ours: ${reason}`))
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
  // A message that could not be written is no reason to stop; a task that is not ours any more is.
  const messages = createLatest(async (message: Sealed) => {
    aborter.signal.throwIfAborted()
    if (!(await store.status(lease.fence, message))) lose('cancelled or taken over')
  })
  const turn: Turn = {
    task: lease.task,
    journal: lease.journal,
    answers: givenAnswers(lease.slots),
    record: journal.record,
    status: messages.put,
    signal: aborter.signal,
    draining: drainer.signal,
  }
  const finish = async (): Promise<TurnEnd> => {
    try {
      const outcome = await run(turn)
      await Promise.all([journal.flushed(), messages.idle()])
      const write = prepareOutcome(store, lease, outcome)
      ending = true
      await fenced(write)
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
    get lost() {
      return lost
    },
    get ending() {
      return ending
    },
    done: failures >= options.maxFailures ? giveUp(store, lease, failures) : finish(),
  }
}

/** Throws if the outcome is not one: that is a fault of the handler, not of the store. */
function prepareOutcome(store: TaskStore, { fence, slots }: Lease, outcome: Outcome): () => Promise<boolean> {
  if (outcome.kind === 'release') return () => store.release(fence, outcome.delayMs ?? 0, false)
  if (outcome.kind === 'hold') return () => store.hold(fence)
  if (outcome.kind !== 'park') return () => store.settle(fence, outcome)
  const next = openSlots(slots, outcome.inputs)
  return () => store.park(fence, next)
}

/** A store that cannot be reached now leaves the lease to run out: the next worker counts it as a failure. */
async function failTurn(
  store: TaskStore,
  lease: Lease,
  options: TurnOptions,
  failures: number,
  error: unknown,
): Promise<TurnEnd> {
  if (failures >= options.maxFailures) return await giveUp(store, lease, failures, error)
  try {
    await store.release(lease.fence, options.backoffMs(failures), true)
  } catch {
    return { kind: 'lost', reason: 'store failed' }
  }
  return { kind: 'retry', failures, error }
}

async function giveUp(store: TaskStore, lease: Lease, failures: number, error?: unknown): Promise<TurnEnd> {
  try {
    const written = await store.settle(lease.fence, { kind: 'fail' })
    return written
      ? { kind: 'gave-up', failures, error }
      : { kind: 'lost', reason: 'cancelled or taken over' }
  } catch {
    return { kind: 'lost', reason: 'store failed' }
  }
}

interface Waiting {
  readonly entry: Sealed
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

function createRecorder(
  store: TaskStore,
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
        return Promise.reject(new RondoError('LIMIT_STATE_BYTES', `a journal may have ${maxBytes} bytes`))
      bytes += entry.length
      return new Promise((resolve, reject) => {
        waiting.push({ entry, resolve, reject })
        flushing ??= flush()
      })
    },
    flushed: () => flushing ?? Promise.resolve(),
    recorded: () => position > lease.journal.length,
  }
}

/** Writes values one at a time. Of those that come while one is being written, only the newest is written after it. */
export interface Latest<T> {
  /** Resolves when this value, or a newer one, is written. */
  put(value: T): Promise<void>
  /** Resolves when nothing is being written; never rejects. */
  idle(): Promise<void>
}

function createLatest<T>(write: (value: T) => Promise<void>): Latest<T> {
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
    put(value) {
      next = { value }
      writing ??= writeAll()
      return writing
    },
    idle: async () => writing?.catch(() => {}),
  }
}
