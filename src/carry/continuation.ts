/**
 * Where a journal is between rounds: sealed, in the client's hands, unless the service is on its way there from a store
 * (F4). With no `Continuation` nothing is stored and nothing is waited for.
 */

import type { Claims } from '../seal/claims.ts'
import type { KeyRing } from '../seal/key-ring.ts'
import { type Expected, type ExpectedTurn, openState, type SealedState, sealState } from '../seal/state.ts'
import type { BlobStore } from '../store/blob-store.ts'
import { getState, isHandle, type OpenedStored, type StoredLimits } from './stored-state.ts'

export type ContinuationMode = 'stored' | 'dual' | 'sealed-first' | 'sealed'

export interface Finding {
  readonly finding:
    | 'differs'
    /** The store had it, the seal did not open. */
    | 'not_sealed'
    /** The seal opened, the store had nothing. */
    | 'not_stored'
    /** The store was asked because the seal could not be opened. */
    | 'fell_back'
    /** Too large for a seal: a handle went out instead. */
    | 'spilled'
    | 'store_failed'
  readonly reason?: string
  readonly flow?: string
  /** How often this process found this so far, and in how many states that it kept or opened. */
  readonly count: number
  readonly of: number
}

/** What seals: the host of the call. */
export interface Sealer {
  readonly audience: string
  readonly keys: { readonly ring: KeyRing }
  readonly limits: StoredLimits
  /** Present also where states are sealed and nothing else: handles of an earlier mode are found in it. */
  readonly store?: { readonly blobs: BlobStore }
}

export interface Continuation {
  /** `name` is what the stored journal is filed under; unless given, the state itself. The first of `names` that is found counts. */
  keep(sealer: Sealer, claims: Claims, name?: string): Promise<SealedState>
  open(
    sealer: Sealer,
    state: unknown,
    expected: Expected | ExpectedTurn,
    names?: readonly string[],
  ): Promise<OpenedStored>
}

/** Seals a state, and stores it where the service says so. */
export function keepState(
  sealer: Sealer & { readonly continuation?: Continuation },
  claims: Claims,
  name?: string,
): SealedState | Promise<SealedState> {
  if (sealer.continuation) return sealer.continuation.keep(sealer, claims, name)
  return sealState(sealer.keys.ring, sealer.audience, claims, sealer.limits)
}

/** Opens what `keepState` gave. */
export function openKept(
  sealer: Sealer & { readonly continuation?: Continuation },
  state: unknown,
  expected: Expected | ExpectedTurn,
  names?: readonly string[],
): OpenedStored | Promise<OpenedStored> {
  const { audience, keys, limits, store } = sealer
  if (sealer.continuation) return sealer.continuation.open(sealer, state, expected, names)
  if (store && isHandle(state) && state.length <= limits.maxBytes)
    return getState(store.blobs, audience, state, expected, limits)
  return openState(keys.ring, audience, state, expected, limits)
}
