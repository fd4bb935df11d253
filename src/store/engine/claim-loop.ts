/**
 * The worker of a process: takes due tasks, runs their turns, and lets go when told to stop.
 *
 * Hints wake it at once; polling finds what no hint told. It asks for more only when there may be more: a claim that
 * gave less than it could have is the last one until the next hint or poll.
 */

import { repeat, type StoreClock } from '../../lib/clock.ts'
import type { LossReason, OnEngineEvent, RunTurn, Serving } from '../task-engine.ts'
import type { Hint, Lease, Taker, TaskStore } from '../task-store.ts'
import { type RunningTurn, runTurn, type TurnEnd, type TurnOptions } from './run-turn.ts'

export interface ClaimLoopOptions extends TurnOptions {
  readonly worker: string
  readonly leaseMs: number
  readonly pollMs: number
  readonly concurrency: number
  readonly drainMs: number
  /** How long a handler that ignores its signal keeps its place. */
  readonly graceMs: number
}

/** Tasks taken by one claim: it is one transaction, and the journals are read in one go. */
const MAX_CLAIM = 64

/** A place for a task that is just being created or answered, so that it need not wait to be claimed. */
export interface Place {
  readonly taker: Taker
  /** Runs the task in the place, or gives the place back. */
  fill(lease: Lease | undefined): void
}

export interface ClaimLoop extends Serving {
  /** Undefined if there is none, or if others wait already. */
  reserve(): Place | undefined
}

export function startClaimLoop(
  store: TaskStore,
  run: RunTurn,
  clock: StoreClock,
  options: ClaimLoopOptions,
  tell: OnEngineEvent,
): ClaimLoop {
  const running = new Map<RunningTurn, number>()
  /** Places that tasks are being written for; each settles when it is filled or its task was handed back. */
  const places = new Set<Promise<unknown>>()
  let reserved = 0
  let stopping = false
  let mayBeDue = true
  let pumping: Promise<void> | undefined

  const leave = (turn: RunningTurn, end: TurnEnd) => {
    const began = running.get(turn)
    if (began === undefined) return
    running.delete(turn)
    if (keeper.remove(turn) && end.kind === 'lost') absolve(turn, end.reason)
    report(tell, turn.lease, end, clock.elapsed() - began)
    pump()
  }
  const start = (lease: Lease, heldUntil: number) => {
    const turn = runTurn(store, lease, run, options)
    running.set(turn, clock.elapsed())
    keeper.add(turn, heldUntil)
    void turn.done.then((end) => leave(turn, end))
  }
  /** Whoever took the task while our lease was good went by another clock: nothing has failed. */
  const absolve = (turn: RunningTurn, reason: LossReason) => {
    if (reason !== 'cancelled or taken over') return
    store
      .absolve?.(turn.lease.fence)
      .catch((error) => tell({ kind: 'store-error', during: 'absolve', error }))
  }
  const lose = (turn: RunningTurn, reason: LossReason, wasHeld: boolean) => {
    turn.lose(reason)
    if (wasHeld) absolve(turn, reason)
    clock.idly(options.graceMs, () => leave(turn, { kind: 'lost', reason }))
  }
  const keeper = startLeaseKeeper(store, clock, options.leaseMs, lose, tell)

  const free = () => (stopping ? 0 : options.concurrency - running.size - reserved)
  const wanted = () => mayBeDue && free() > 0
  const claim = async (count: number) => {
    const asked = clock.elapsed()
    reserved += count
    try {
      const leases = await store.claim(options.worker, options.leaseMs, count)
      if (leases.length > 0) tell({ kind: 'claimed', count: leases.length })
      for (const lease of leases) start(lease, asked + options.leaseMs)
      if (leases.length === count) mayBeDue = true
    } finally {
      reserved -= count
    }
  }
  const claimAll = async () => {
    while (wanted()) {
      mayBeDue = false
      await claim(Math.min(free(), MAX_CLAIM))
    }
  }
  const reserve = (): Place | undefined => {
    if (mayBeDue || free() <= 0) return undefined
    const asked = clock.elapsed()
    reserved++
    let close = (_handedBack?: Promise<unknown>) => {}
    const place = new Promise<unknown>((resolve) => {
      close = resolve
    })
    places.add(place)
    return {
      taker: { worker: options.worker, leaseMs: options.leaseMs },
      fill(lease) {
        reserved--
        places.delete(place)
        if (lease && stopping) close(store.release(lease.fence, 0, false).catch(() => false))
        else close()
        if (lease === undefined) pump()
        else if (!stopping) start(lease, asked + options.leaseMs)
      },
    }
  }
  const pump = () => {
    if (pumping !== undefined || !wanted()) return
    pumping = claimAll()
      .catch((error) => tell({ kind: 'store-error', during: 'claim', error }))
      .finally(() => {
        pumping = undefined
        pump()
      })
  }
  const look = async () => {
    await store.reclaim?.().catch((error) => tell({ kind: 'store-error', during: 'reclaim', error }))
    mayBeDue = true
    pump()
  }
  const stopHints = store.onHint((hint: Hint) => {
    if (hint.kind === 'changed') {
      if (hint.id === undefined || isRunning(running, hint.id)) keeper.check()
      return
    }
    mayBeDue = true
    pump()
  })
  const stopPoll = repeat(clock, () => options.pollMs * (0.8 + Math.random() * 0.4), look)
  const looked = look()

  const stop = async () => {
    stopping = true
    stopHints()
    stopPoll()
    await looked
    await pumping
    await Promise.all(places)
    for (const turn of running.keys()) turn.drain()
    await settled(clock, [...running.keys()], options.drainMs)
    for (const turn of [...running.keys()]) {
      turn.lose('draining')
      await store.release(turn.lease.fence, 0, false).catch(() => false)
      leave(turn, { kind: 'lost', reason: 'draining' })
    }
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

function isRunning(running: ReadonlyMap<RunningTurn, unknown>, id: string): boolean {
  for (const turn of running.keys()) if (turn.lease.fence.id === id && !turn.ending) return true
  return false
}

/** Resolves when all turns are done, or after `ms`. */
function settled(clock: StoreClock, turns: readonly RunningTurn[], ms: number): Promise<void> {
  return new Promise((resolve) => {
    const cancel = clock.after(ms, resolve)
    void Promise.all(turns.map((turn) => turn.done)).then(() => {
      cancel()
      resolve()
    })
  })
}

function report(tell: OnEngineEvent, lease: Lease, end: TurnEnd, ms: number): void {
  const { id } = lease.fence
  tell({ kind: 'turn', id, outcome: end.kind, ms })
  if (end.kind === 'lost') tell({ kind: 'lost', id, reason: end.reason })
  if (end.kind === 'retry') tell({ kind: 'retry', id, failures: end.failures, error: end.error })
  if (end.kind === 'gave-up') tell({ kind: 'gave-up', id, failures: end.failures })
}

/*
 * Keeps the leases of the turns that run in this process, and takes away the turns whose lease is gone.
 *
 * A lease goes when the task is cancelled, expires or is taken over, which the store tells; and when its time is over
 * by our own clock, which nobody has to tell: a process that was frozen or cut off stops by itself.
 */

/** How long after a cancellation elsewhere a turn may still run. */
const CHECK_MS = 500

export interface LeaseKeeper {
  add(turn: RunningTurn, heldUntil: number): void
  /** True if its lease was not over by our own clock. */
  remove(turn: RunningTurn): boolean
  /** Asks the store now, because something changed. */
  check(): void
  stop(): void
}

function startLeaseKeeper(
  store: TaskStore,
  clock: StoreClock,
  leaseMs: number,
  lose: (turn: RunningTurn, reason: 'cancelled or taken over' | 'lease ran out', wasHeld: boolean) => void,
  tell: OnEngineEvent,
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
    if (heldUntil.delete(turn)) lose(turn, reason, isLeft(until))
  }
  const isLeft = (until: number | undefined) => until !== undefined && clock.elapsed() < until
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
  }
  const check = async () => {
    if (checking) return
    checking = true
    do {
      again = false
      dropOverdue()
      await ask().catch((error) => tell({ kind: 'store-error', during: 'renew', error }))
    } while (again)
    checking = false
  }
  // The overdue are dropped even while the store does not answer.
  const tick = () => {
    dropOverdue()
    void check()
  }
  const stop = repeat(clock, () => Math.min(CHECK_MS, leaseMs / 4), tick)
  return {
    add: (turn, until) => void heldUntil.set(turn, until),
    remove(turn) {
      const until = heldUntil.get(turn)
      heldUntil.delete(turn)
      return isLeft(until)
    },
    check() {
      again = true
      void check()
    },
    stop,
  }
}
