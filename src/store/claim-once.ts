import { randomBytes } from 'node:crypto'
import { type Clock, systemClock } from './clock.ts'
import type { OnceClaim, OnceSlot, OnceStore } from './once-store.ts'

export interface ClaimOnceOptions {
  /** How long to wait for the response of the same request that came a moment earlier. */
  waitMs?: number
  /** How long the slot is ours before the same request may try again. */
  holdMs?: number
  clock?: Clock
}

/** Claims a slot of single use; if the same request is being answered right now, waits a little for its response. */
export async function claimOnce(
  store: OnceStore,
  slot: OnceSlot,
  { waitMs = 5_000, holdMs = 60_000, clock = systemClock }: ClaimOnceOptions = {},
): Promise<OnceClaim> {
  const attempt = { claimant: randomBytes(12).toString('base64url'), holdMs }
  const until = clock.elapsed() + waitMs
  for (let pause = 5; ; pause = Math.min(pause * 2, 200)) {
    const claim = await store.claim(slot, attempt)
    if (claim.kind !== 'busy' || clock.elapsed() + pause > until) return claim
    await new Promise<void>((resolve) => void clock.after(pause, resolve))
  }
}
