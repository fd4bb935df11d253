/**
 * The worker of a process: claims due tasks, runs their turns, keeps their leases, and releases them on shutdown.
 *
 * Hints wake it at once; polling is authoritative. A claim takes as many tasks as there are free slots, or as many as are
 * known to be due, which leaves the other slots to tasks that are claimed when they are created. One that returned fewer
 * tasks than it asked for is the last until the next hint or poll. A slot is free once the handler has returned, so that a
 * store which groups its writes commits the outcome of one turn together with the claim of the next. A turn is aborted when its lease is lost: the store says so when the task was cancelled,
 * expired or taken over, and our own clock says so when the lease runs out, even in a process that was frozen or cut off.
 */

import { idle, repeat, type StoreClock } from '../../lib/clock.ts'
import type { EmitEngineEvent, LossReason, RunTurn, Serving } from '../task-engine.ts'
import type { Hint, Lease, Taker, TaskStore } from '../task-store.ts'
import { type RunningTurn, runTurn, type TaskTurnOptions, type TurnEnd } from './run-turn.ts'

interface ClaimLoopOptions extends TaskTurnOptions {
  readonly worker: string
  readonly leaseMs: number
  readonly pollMs: number
  readonly concurrency: number
  readonly drainMs: number
  /** How long a handler that ignores its signal still counts against `concurrency`. */
  readonly graceMs: number
}

/** Tasks per claim, if as many slots are free: one transaction, which reads all of their journals. */
const MAX_CLAIM = 256

/**
 * The pause before a claim of tasks that the last one should have found: another process may have their rows locked. It doubles
 * with each claim that returns nothing, up to the pause between polls: a row that nobody can claim must not keep us busy.
 */
const MISSED_MS = 5

/** A slot kept free for a task that is about to be created or resumed, so that the same write can claim it. */
export interface Reservation {
  readonly taker: Taker
  /** Starts the task, or frees the slot without one. */
  fill(lease: Lease | undefined): void
}

export interface ClaimLoop extends Serving {
  /** Returns undefined if no slot is free, or if older tasks may be waiting for one. */
  reserve(): Reservation | undefined
}

export function startClaimLoop(
  store: TaskStore,
  run: RunTurn,
  clock: StoreClock,
  options: ClaimLoopOptions,
  emit: EmitEngineEvent,
): ClaimLoop {
  const running = new Map<RunningTurn, number>()
  /** Open reservations; each settles when it is filled or its task was released. */
  const reservations = new Set<Promise<unknown>>()
  let reserved = 0
  let stopping = false
  /** How many tasks may be due; `Infinity` if nobody knows. */
  let due = Number.POSITIVE_INFINITY
  let pumping: Promise<void> | undefined

  const leave = (turn: RunningTurn, end: TurnEnd) => {
    const began = running.get(turn)
    if (began === undefined) return
    running.delete(turn)
    if (keeper.remove(turn) && end.kind === 'lost') absolve(turn, end.reason)
    if (end.kind === 'lost' && end.reason === 'store failed') abandoned.add(turn.lease)
    // First, so that a task which is due gets the slot before one that is created because of the report.
    pump()
    report(emit, turn.lease, end, clock.elapsed() - began)
    if (end.kind === 'park' && end.timed) void arm()
  }
  const start = (lease: Lease, heldUntil: number) => {
    const { fence, task, takenOver = false } = lease
    emit({ kind: 'began', id: fence.id, turn: fence.epoch, takenOver, failures: task.failures }, task)
    const turn = runTurn(store, lease, run, turnOptions)
    running.set(turn, clock.elapsed())
    keeper.add(turn, heldUntil)
    void turn.done.then((end) => leave(turn, end))
  }
  /** A worker that took over before our lease ran out has another clock: this was no failure. */
  const absolve = (turn: RunningTurn, reason: LossReason) => {
    if (reason !== 'cancelled or taken over') return
    store
      .absolve?.(turn.lease.fence)
      .catch((error) => emit({ kind: 'store-error', during: 'absolve', error }))
  }
  /** Turns whose end could not be written, since the store failed. Nobody could claim their tasks before the lease runs out. */
  const abandoned = new Set<Lease>()
  const releaseAbandoned = async () => {
    for (const lease of abandoned) {
      await store.release(lease.fence, options.backoffMs(lease.task.failures + 1), true)
      abandoned.delete(lease)
    }
  }
  const lose = (turn: RunningTurn, reason: LossReason, wasHeld: boolean) => {
    turn.lose(reason)
    if (wasHeld) absolve(turn, reason)
    clock.idly(options.graceMs, () => leave(turn, { kind: 'lost', reason }))
  }
  const turnOptions: TaskTurnOptions = { ...options, onEnding: () => pump() }
  const keeper = startLeaseKeeper(store, clock, options.leaseMs, lose, emit)

  /** Turns whose outcome is being written take no slot; a store that cannot keep up gets no more of them than there are slots. */
  const free = () => {
    if (stopping) return 0
    const ending = countEnding(running.keys())
    return options.concurrency - reserved - running.size + Math.min(ending, options.concurrency)
  }
  const wanted = () => due > 0 && free() > 0
  const claim = async (count: number) => {
    const asked = clock.elapsed()
    reserved += count
    const leases = await store.claim(options.worker, options.leaseMs, count).finally(() => {
      reserved -= count
    })
    if (leases.length > 0) {
      missedMs = MISSED_MS
      emit({ kind: 'claimed', count: leases.length })
    }
    return { leases, heldUntil: asked + options.leaseMs }
  }
  /** Claims until nothing is due or no slot is free. From then on, also before any turn has ended, `pump` may start it again. */
  const claimAll = async () => {
    try {
      // All turns that end at this moment free their slots first, and one claim fills them.
      await new Promise<void>((resolve) => idle(resolve))
      while (wanted()) {
        const count = Math.min(free(), MAX_CLAIM, due)
        const isCounted = due < Number.POSITIVE_INFINITY
        due = isCounted ? due - count : 0
        const { leases, heldUntil } = await claim(count)
        if (!isCounted && leases.length === count) due = Number.POSITIVE_INFINITY
        for (const lease of leases) start(lease, heldUntil)
      }
    } catch (error) {
      emit({ kind: 'store-error', during: 'claim', error })
    }
    pumping = undefined
    pump()
    void arm()
  }
  const reserve = (): Reservation | undefined => {
    if (free() <= due) return undefined
    const asked = clock.elapsed()
    reserved++
    let close = (_released?: Promise<unknown>) => {}
    const filled = new Promise<unknown>((resolve) => {
      close = resolve
    })
    reservations.add(filled)
    return {
      taker: { worker: options.worker, leaseMs: options.leaseMs },
      fill(lease) {
        reserved--
        reservations.delete(filled)
        if (lease && stopping) close(store.release(lease.fence, 0, false).catch(() => {}))
        else close()
        if (lease === undefined) pump()
        else if (!stopping) start(lease, asked + options.leaseMs)
      },
    }
  }
  const pump = () => {
    if (pumping !== undefined || !wanted()) return
    pumping = claimAll()
  }
  const poll = async () => {
    await releaseAbandoned().catch((error) => emit({ kind: 'store-error', during: 'release', error }))
    await store.reclaim?.().catch((error) => emit({ kind: 'store-error', during: 'reclaim', error }))
    due = Number.POSITIVE_INFINITY
    pump()
  }
  const stopHints = store.onHint((hint: Hint) => {
    if (hint.kind === 'changed') {
      if (hint.id === undefined || isRunning(running, hint.id)) keeper.check()
      return
    }
    if (hint.kind !== 'due') return
    due += hint.count ?? Number.POSITIVE_INFINITY
    pump()
  })
  let cancelAlarm = () => {}
  let missedMs = MISSED_MS
  let arming = false
  let armAgain = false
  /**
   * Claims again when the next task is due, if that is before the next poll. One that is due already was missed: it became
   * due after the last claim looked, or that claim took another one in its place.
   */
  const arm = async () => {
    // A task that parks meanwhile may be due before the one that is being looked for.
    armAgain = arming
    // Whatever is due is claimed with the next free slot, and the time of the next is looked up after that.
    if (arming || stopping || pumping !== undefined || due > 0) return
    arming = true
    try {
      const ms = await store.nextDueMs(Math.ceil(options.pollMs * 1.2))
      if (!armAgain) setAlarm(ms === 0 ? missedMs : ms)
      missedMs = ms === 0 ? Math.min(missedMs * 2, options.pollMs) : MISSED_MS
    } catch (error) {
      // A loop that has stopped does not wait for the next task, and its store may be closed.
      if (!stopping) emit({ kind: 'store-error', during: 'claim', error })
    }
    arming = false
    if (armAgain) return arm()
  }
  const setAlarm = (ms: number | undefined) => {
    cancelAlarm()
    if (ms === undefined || stopping) return
    cancelAlarm = clock.idly(ms, () => {
      due = Number.POSITIVE_INFINITY
      pump()
    })
  }
  const stopPoll = repeat(clock, () => options.pollMs * (0.8 + Math.random() * 0.4), poll)
  const polled = poll()

  const stop = async () => {
    stopping = true
    stopHints()
    stopPoll()
    cancelAlarm()
    await polled
    await pumping
    await Promise.all(reservations)
    for (const turn of running.keys()) turn.drain()
    await settled(clock, [...running.keys()], options.drainMs)
    for (const turn of [...running.keys()]) {
      turn.lose('draining')
      await store.release(turn.lease.fence, 0, false).catch(() => {})
      leave(turn, { kind: 'lost', reason: 'draining' })
    }
    await releaseAbandoned().catch(() => {})
    keeper.stop()
  }
  let stopped: Promise<void> | undefined
  return {
    reserve,
    stop() {
      stopped ??= stop()
      return stopped
    },
  }
}

function countEnding(turns: Iterable<RunningTurn>): number {
  let count = 0
  for (const turn of turns) if (turn.ending) count++
  return count
}

function isRunning(running: ReadonlyMap<RunningTurn, unknown>, id: string): boolean {
  for (const turn of running.keys()) if (turn.lease.fence.id === id && !turn.ending) return true
  return false
}

/** Resolves when all turns are done, or after `ms`. */
export function settled(clock: StoreClock, turns: readonly RunningTurn[], ms: number): Promise<void> {
  return new Promise((resolve) => {
    const cancel = clock.after(ms, resolve)
    void Promise.all(turns.map((turn) => turn.done)).then(() => {
      cancel()
      resolve()
    })
  })
}

/** Emits how a turn ended. */
export function report(emit: EmitEngineEvent, lease: Lease, end: TurnEnd, ms: number): void {
  const { task, fence } = lease
  const { id, epoch: turn } = fence
  emit({ kind: 'turn', id, turn, outcome: end.kind, ms }, task)
  if (end.kind === 'lost') emit({ kind: 'lost', id, turn, reason: end.reason }, task)
  if (end.kind === 'retry') emit({ kind: 'retry', id, turn, failures: end.failures, error: end.error }, task)
  if (end.kind === 'gave-up') {
    const { failures, error } = end
    emit({ kind: 'gave-up', id, turn, failures, ...(error !== undefined && { error }) }, task)
  }
}

/** How long a turn may still run after its task was cancelled elsewhere. */
const CHECK_MS = 500

interface LeaseKeeper {
  add(turn: RunningTurn, heldUntil: number): void
  /** True if its lease had not run out by our own clock. */
  remove(turn: RunningTurn): boolean
  /** Asks the store now which leases are held. */
  check(): void
  stop(): void
}

function startLeaseKeeper(
  store: TaskStore,
  clock: StoreClock,
  leaseMs: number,
  lose: (turn: RunningTurn, reason: 'cancelled or taken over' | 'lease ran out', wasHeld: boolean) => void,
  emit: EmitEngineEvent,
): LeaseKeeper {
  const heldUntil = new Map<RunningTurn, number>()
  let renewedAt = clock.elapsed()
  let checking = false
  let again = false

  const dropOverdue = () => {
    for (const [turn, until] of heldUntil) if (clock.elapsed() >= until) drop(turn, 'lease ran out')
  }
  const drop = (turn: RunningTurn, reason: 'cancelled or taken over' | 'lease ran out') => {
    const until = heldUntil.get(turn)
    if (heldUntil.delete(turn)) lose(turn, reason, isInTime(until))
  }
  const isInTime = (until = 0) => clock.elapsed() < until
  const ask = async () => {
    const turns = [...heldUntil.keys()]
    if (turns.length === 0) return
    const asked = clock.elapsed()
    const renew = asked - renewedAt >= leaseMs / 3
    const fences = turns.map((turn) => turn.lease.fence)
    const held = renew ? await store.renew(fences, leaseMs) : await store.held(fences)
    if (renew) renewedAt = asked
    for (const turn of turns) {
      if (!held.has(turn.lease.fence.id)) {
        if (!turn.ending) drop(turn, 'cancelled or taken over')
      } else if (renew && heldUntil.has(turn)) heldUntil.set(turn, asked + leaseMs)
    }
    await refresh(turns)
  }
  /** Brings answers to turns that wait for some. */
  const refresh = async (turns: readonly RunningTurn[]) => {
    const waiting = turns.filter((turn) => turn.waiting)
    if (waiting.length === 0) return
    const revisions = await store.revisions(waiting.map((turn) => turn.lease.fence.id))
    await Promise.all(waiting.map((turn) => turn.refresh(revisions.get(turn.lease.fence.id) ?? 0)))
  }
  const check = async () => {
    if (checking) return
    checking = true
    do {
      again = false
      dropOverdue()
      await ask().catch((error) => emit({ kind: 'store-error', during: 'renew', error }))
    } while (again)
    checking = false
  }
  let stop: (() => void) | undefined
  const tick = () => {
    if (heldUntil.size === 0) {
      stop?.()
      stop = undefined
      return
    }
    // Overdue turns are dropped even while the store does not respond.
    dropOverdue()
    void check()
  }
  return {
    add(turn, until) {
      heldUntil.set(turn, until)
      stop ??= repeat(clock, () => Math.min(CHECK_MS, leaseMs / 4), tick)
    },
    remove(turn) {
      const until = heldUntil.get(turn)
      heldUntil.delete(turn)
      return isInTime(until)
    },
    check() {
      again = true
      void check()
    },
    stop: () => stop?.(),
  }
}
