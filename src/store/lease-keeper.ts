/**
 * Keeps the leases of the turns that run in this process, and takes away the turns whose lease is gone.
 *
 * A lease goes when the task is cancelled, expires or is taken over, which the store tells; and when its time is over
 * by our own clock, which nobody has to tell: a process that was frozen or cut off stops by itself.
 */

import { type Clock, repeat } from './clock.ts'
import type { OnEngineEvent } from './engine-event.ts'
import type { RunningTurn } from './run-turn.ts'
import type { TaskStore } from './task-store.ts'

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

export function startLeaseKeeper(
  store: TaskStore,
  clock: Clock,
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
