/**
 * How a slot of single use is taken and kept: claimed, renewed for as long as the work takes, and let go where the work
 * failed. A process that dies renews nothing, so its slot is free again when the hold is over.
 */

import { randomBytes } from 'node:crypto'
import { type Clock, repeat, systemClock } from './clock.ts'
import { LEASE_MS } from './lease-engine.ts'
import type { OnceAttempt, OnceClaim, OnceSlot, OnceStore } from './once-store.ts'
import type { Sealed } from './task-engine.ts'

export interface ClaimOnceOptions {
  /** How long to wait for the response of the same request that came a moment earlier. */
  waitMs?: number
  /** How long the slot is ours without a renewal before the same request may try again. Renewed three times as often. */
  holdMs?: number
  clock?: Clock
}

/**
 * Gives what the slot holds, after having done the work if it held nothing. If the same request is being answered right
 * now, waits a little for its response.
 */
export async function workOnce(
  store: OnceStore,
  slot: OnceSlot,
  work: () => Promise<Sealed>,
  { waitMs = 5_000, holdMs = 2 * LEASE_MS, clock = systemClock }: ClaimOnceOptions = {},
): Promise<Exclude<OnceClaim, { readonly kind: 'first' }>> {
  const attempt = { claimant: randomBytes(12).toString('base64url'), holdMs }
  const claim = await claimPatiently(store, slot, attempt, waitMs, clock)
  if (claim.kind !== 'first') return claim
  const hold = async (ms: number) => {
    // One that fails is followed by the next; whoever lost its slot cannot undo what it has begun.
    await store.renew(slot, { ...attempt, holdMs: ms }).catch(() => false)
  }
  const stop = repeat(
    clock,
    () => holdMs / 3,
    () => hold(holdMs),
  )
  try {
    const response = await work().catch(async (error) => {
      await hold(0)
      throw error
    })
    return { kind: 'stored', response: await store.settle(slot, response) }
  } finally {
    stop()
  }
}

async function claimPatiently(
  store: OnceStore,
  slot: OnceSlot,
  attempt: OnceAttempt,
  waitMs: number,
  clock: Clock,
): Promise<OnceClaim> {
  const until = clock.elapsed() + waitMs
  for (let pause = 5; ; pause = Math.min(pause * 2, 200)) {
    const claim = await store.claim(slot, attempt)
    if (claim.kind !== 'busy' || clock.elapsed() + pause > until) return claim
    await new Promise<void>((resolve) => void clock.after(pause, resolve))
  }
}
