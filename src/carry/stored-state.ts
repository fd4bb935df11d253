/**
 * Claims in a store, filed under a name that the client holds: a short handle, or the sealed state itself.
 *
 * M1 The store sees neither the name nor the claims: the row's id is a digest of the name, and the row is sealed under a
 *    key that is derived from it. Whoever reads the database learns nothing; whoever alters a name finds nothing.
 * M2 The key ring plays no part, so a row opens also when the keys of its time are gone.
 * M3 What comes out passes the same checks as a sealed state: time, principal, request.
 */

import { hash } from 'node:crypto'
import type { Claims } from '../seal/claims.ts'
import { createKeyRing, type KeyRing } from '../seal/key-ring.ts'
import {
  type Expected,
  type ExpectedTurn,
  type OpenedState,
  openState,
  type StateLimits,
  sealState,
} from '../seal/state.ts'
import type { BlobStore } from '../store/blob-store.ts'

export interface StoredLimits extends StateLimits {
  /** Bytes of one journal in the store, sealed. */
  readonly maxStoredBytes: number
}

export type OpenedStored = OpenedState | { readonly kind: 'refused'; readonly reason: 'missing' }

const HANDLE = 'h1.'

/** A name for a row, drawn from `id`, which nobody can guess. */
export function toHandle(id: string): string {
  return HANDLE + id
}

export function isHandle(state: unknown): state is string {
  return typeof state === 'string' && state.startsWith(HANDLE)
}

/** The size of a row that would be too large, or undefined when it is stored. */
export async function putState(
  blobs: BlobStore,
  audience: string,
  name: string,
  claims: Claims,
  limits: StoredLimits,
): Promise<number | undefined> {
  const sealed = sealState(keyOf(name), audience, claims, { ...limits, maxBytes: limits.maxStoredBytes })
  if (sealed.kind === 'too-large') return sealed.bytes
  await blobs.put(idOf(name), sealed.token, claims.roundExpires)
  return undefined
}

export async function getState(
  blobs: BlobStore,
  audience: string,
  name: string,
  expected: Expected | ExpectedTurn,
  limits: StoredLimits,
): Promise<OpenedStored> {
  const sealed = await blobs.get(idOf(name))
  if (sealed === undefined) return { kind: 'refused', reason: 'missing' }
  return openState(keyOf(name), audience, sealed, expected, { ...limits, maxBytes: limits.maxStoredBytes })
}

function idOf(name: string): string {
  return hash('sha256', `rondo stored state id\0${name}`, 'base64url')
}

function keyOf(name: string): KeyRing {
  const secret = hash('sha256', `rondo stored state key\0${name}`, 'buffer')
  return createKeyRing([{ name: 'stored', secret }])
}
