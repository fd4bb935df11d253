/**
 * A carrier of states for services that migrate from stored to sealed state (F4), in one of these modes:
 *
 *   stored        the client holds a short handle and the store has the journal; a sealed state of a later mode opens too
 *   dual          sealed and stored; both are opened and compared, and the store wins
 *   sealed-first  sealed and stored; the store is read only if the seal's key is gone or the journal was too large for a seal
 *
 * Each mode opens the states of the modes next to it, so that a fleet can change one instance at a time. Findings tell the
 * operator, with counts, whether the next step is safe.
 *
 * Rows: a row's id is a digest of the handle or the sealed state that names it, and its key is derived from that name too.
 * The database learns neither the name nor the claims, and a row opens even if the key ring has changed. Its claims pass
 * the same checks as those of a sealed state.
 */

import { hash } from 'node:crypto'
import { canonicalJson } from '../lib/json.ts'
import type { Finding } from '../log/event.ts'
import { createKeyRing, type KeyRing } from '../seal/key-ring.ts'
import {
  type Claims,
  type Expected,
  type ExpectedExtension,
  type OpenedState,
  openState,
  type SealedState,
  sealState,
} from '../seal/state.ts'
import type { BlobStore } from '../store/store.ts'
import type { OpenedStored, StateCarrier, StateHost, StoredLimits } from './host.ts'
import { sealedStates } from './token.ts'

export type MigrationMode = 'stored' | 'dual' | 'sealed-first' | 'sealed'

export interface MigrationOptions {
  readonly mode: Exclude<MigrationMode, 'sealed'>
  readonly blobs: BlobStore
  randomId(): string
  report(finding: Finding): void
}

interface Migration extends Omit<MigrationOptions, 'report'> {
  note(finding: Finding['finding'], facts?: Pick<Finding, 'reason' | 'flow'>): void
}

/** For the mode `sealed`: states are sealed and not stored. Handles of an earlier mode still open. */
export function sealedWithHandles(blobs: BlobStore): StateCarrier {
  return {
    ...sealedStates,
    open(host, state, expected) {
      if (!isHandle(state) || state.length > host.limits.maxBytes) {
        return sealedStates.open(host, state, expected)
      }
      return getState(blobs, host.audience, state, expected, host.limits)
    },
  }
}

export function createMigration(options: MigrationOptions): StateCarrier {
  const counts = new Map<string, number>()
  let of = 0
  const migration: Migration = {
    ...options,
    note(finding, facts) {
      const count = (counts.get(finding) ?? 0) + 1
      counts.set(finding, count)
      options.report({ finding, ...facts, count, of })
    },
  }
  return {
    stores: true,
    keep(host, claims, name) {
      of += 1
      return options.mode === 'stored'
        ? keepStored(migration, host, claims, name)
        : keepBoth(migration, host, claims, name)
    },
    open(host, state, expected, names) {
      of += 1
      return openAny(migration, host, state, expected, names)
    },
  }
}

async function keepStored(
  { blobs, randomId }: Migration,
  { audience, limits }: StateHost,
  claims: Claims,
  name: string = toHandle(randomId()),
): Promise<SealedState> {
  const tooLarge = await putState(blobs, audience, name, claims, limits)
  if (tooLarge !== undefined) return { kind: 'too-large', bytes: tooLarge }
  return { kind: 'sealed', token: name, bytes: name.length, keyId: 'stored' }
}

async function keepBoth(
  migration: Migration,
  host: StateHost,
  claims: Claims,
  name?: string,
): Promise<SealedState> {
  const { audience, keys, limits } = host
  const sealed = sealState(keys.ring, audience, claims, limits)
  if (sealed.kind === 'too-large') {
    migration.note('spilled', { flow: claims.flow })
    return keepStored(migration, host, claims, name)
  }
  try {
    await putState(migration.blobs, audience, name ?? sealed.token, claims, limits)
  } catch (error) {
    migration.note('store_failed', { flow: claims.flow, reason: nameOf(error) })
  }
  return sealed
}

async function openAny(
  migration: Migration,
  host: StateHost,
  state: unknown,
  expected: Expected | ExpectedExtension,
  names?: readonly string[],
): Promise<OpenedStored> {
  // A handle is the name of its row.
  const filed = names === undefined || isHandle(state) ? [state] : names
  if (!filed.every((name) => typeof name === 'string')) return { kind: 'refused', reason: 'encoding' }
  if (filed.some(({ length }) => length > host.limits.maxBytes)) return { kind: 'refused', reason: 'size' }
  const stored = () => getFirst(migration, host, filed, expected)
  if (state === undefined || isHandle(state)) return stored()
  const { keys, audience, limits } = host
  const open = () => openState(keys.ring, audience, state, expected, limits)
  if (migration.mode === 'stored') return storedElseSealed(stored, open)
  return migration.mode === 'dual' ? compare(migration, open(), stored) : fallBack(migration, open(), stored)
}

async function getFirst(
  { blobs }: Migration,
  { audience, limits }: StateHost,
  names: readonly string[],
  expected: Expected | ExpectedExtension,
): Promise<OpenedStored> {
  for (const name of names) {
    const found = await getState(blobs, audience, name, expected, limits)
    if (found.kind === 'open' || found.reason !== 'missing') return found
  }
  return { kind: 'refused', reason: 'missing' }
}

/** Opens a state that another mode sealed without storing it, so that going back a mode ends no call. */
async function storedElseSealed(
  stored: () => Promise<OpenedStored>,
  open: () => OpenedState,
): Promise<OpenedStored> {
  const found = await stored()
  return found.kind === 'refused' && found.reason === 'missing' ? open() : found
}

async function fallBack(
  migration: Migration,
  sealed: OpenedState,
  stored: () => Promise<OpenedStored>,
): Promise<OpenedStored> {
  if (sealed.kind === 'open' || sealed.reason !== 'key') return sealed
  const opened = await stored()
  if (opened.kind === 'refused') return sealed
  migration.note('fell_back', { reason: sealed.reason, flow: opened.claims.flow })
  return opened
}

async function compare(
  migration: Migration,
  sealed: OpenedState,
  read: () => Promise<OpenedStored>,
): Promise<OpenedStored> {
  const stored = await read().catch((error): undefined => {
    migration.note('store_failed', { reason: nameOf(error) })
  })
  if (stored === undefined) return sealed
  if (sealed.kind === 'open' && stored.kind === 'open') {
    const { flow } = stored.claims
    if (canonicalJson(sealed.claims) !== canonicalJson(stored.claims)) migration.note('differs', { flow })
    return stored
  }
  if (sealed.kind === 'open') {
    if (stored.kind === 'refused')
      migration.note('not_stored', { reason: stored.reason, flow: sealed.claims.flow })
    return sealed
  }
  if (stored.kind === 'open')
    migration.note('not_sealed', { reason: sealed.reason, flow: stored.claims.flow })
  return stored.kind === 'open' ? stored : sealed
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : typeof error
}

const HANDLE = 'h1.'

/** The name of a row. `id` must be one that nobody can guess. */
export function toHandle(id: string): string {
  return HANDLE + id
}

function isHandle(state: unknown): state is string {
  return typeof state === 'string' && state.startsWith(HANDLE)
}

/** Returns the size of a row that is too large to be stored, or undefined if it was stored. */
async function putState(
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

async function getState(
  blobs: BlobStore,
  audience: string,
  name: string,
  expected: Expected | ExpectedExtension,
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
