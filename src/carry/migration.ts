/**
 * The modes in which a service moves from stored state to sealed state (F4).
 *
 *   stored        the client holds a short handle, the store has the journal; a sealed state that is not in the store
 *                 is opened, for it is of a later mode
 *   dual          sealed and stored; both are opened and compared, and the store is believed
 *   sealed-first  sealed and stored; the store is asked only where the seal's key is gone, or the journal was too
 *                 large for a seal
 *
 * Each mode opens what the modes beside it handed out, so a fleet may change one instance at a time. What an operator
 * must see before the next step is told as findings, each with its count.
 */

import { hash } from 'node:crypto'
import { canonicalJson } from '../lib/canonical-json.ts'
import { createKeyRing, type KeyRing } from '../seal/key-ring.ts'
import {
  type Claims,
  type Expected,
  type ExpectedExtension,
  type OpenedState,
  openState,
  type SealedState,
  type StateLimits,
  sealState,
} from '../seal/state.ts'
import type { BlobStore } from '../store/store.ts'
import type { OpenedStored, StateCarrier, StateHost } from './host.ts'
import { sealedStates } from './token.ts'

export interface MigrationOptions {
  readonly mode: Exclude<MigrationMode, 'sealed'>
  readonly blobs: BlobStore
  randomId(): string
  tell(finding: Finding): void
}

interface Modes extends Omit<MigrationOptions, 'tell'> {
  note(finding: Finding['finding'], facts?: Pick<Finding, 'reason' | 'flow'>): void
}

/** States are sealed and not stored; handles that an earlier mode handed out still open. */
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
  const modes: Modes = {
    ...options,
    note(finding, facts) {
      const count = (counts.get(finding) ?? 0) + 1
      counts.set(finding, count)
      options.tell({ finding, ...facts, count, of })
    },
  }
  return {
    stores: true,
    keep(host, claims, name) {
      of += 1
      return options.mode === 'stored'
        ? keepStored(modes, host, claims, name)
        : keepBoth(modes, host, claims, name)
    },
    open(host, state, expected, names) {
      of += 1
      return openAny(modes, host, state, expected, names)
    },
  }
}

async function keepStored(
  { blobs, randomId }: Modes,
  { audience, limits }: StateHost,
  claims: Claims,
  name: string = toHandle(randomId()),
): Promise<SealedState> {
  const tooLarge = await putState(blobs, audience, name, claims, limits)
  if (tooLarge !== undefined) return { kind: 'too-large', bytes: tooLarge }
  return { kind: 'sealed', token: name, bytes: name.length, keyId: 'stored' }
}

async function keepBoth(modes: Modes, host: StateHost, claims: Claims, name?: string): Promise<SealedState> {
  const { audience, keys, limits } = host
  const sealed = sealState(keys.ring, audience, claims, limits)
  if (sealed.kind === 'too-large') {
    modes.note('spilled', { flow: claims.flow })
    return keepStored(modes, host, claims, name)
  }
  try {
    await putState(modes.blobs, audience, name ?? sealed.token, claims, limits)
  } catch (error) {
    modes.note('store_failed', { flow: claims.flow, reason: nameOf(error) })
  }
  return sealed
}

async function openAny(
  modes: Modes,
  host: StateHost,
  state: unknown,
  expected: Expected | ExpectedExtension,
  names?: readonly string[],
): Promise<OpenedStored> {
  // A handle names its row itself.
  const filed = names === undefined || isHandle(state) ? [state] : names
  if (!filed.every((name) => typeof name === 'string')) return { kind: 'refused', reason: 'encoding' }
  if (filed.some(({ length }) => length > host.limits.maxBytes)) return { kind: 'refused', reason: 'size' }
  const stored = () => getFirst(modes, host, filed, expected)
  if (state === undefined || isHandle(state)) return stored()
  const { keys, audience, limits } = host
  const open = () => openState(keys.ring, audience, state, expected, limits)
  if (modes.mode === 'stored') return storedElseSealed(stored, open)
  return modes.mode === 'dual' ? compare(modes, open(), stored) : fallBack(modes, open(), stored)
}

async function getFirst(
  { blobs }: Modes,
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

/** A state that another mode handed out without storing it is opened, so that the way back ends no call. */
async function storedElseSealed(
  stored: () => Promise<OpenedStored>,
  open: () => OpenedState,
): Promise<OpenedStored> {
  const found = await stored()
  return found.kind === 'refused' && found.reason === 'missing' ? open() : found
}

async function fallBack(
  modes: Modes,
  sealed: OpenedState,
  stored: () => Promise<OpenedStored>,
): Promise<OpenedStored> {
  if (sealed.kind === 'open' || sealed.reason !== 'key') return sealed
  const opened = await stored()
  if (opened.kind === 'refused') return sealed
  modes.note('fell_back', { reason: sealed.reason, flow: opened.claims.flow })
  return opened
}

async function compare(
  modes: Modes,
  sealed: OpenedState,
  read: () => Promise<OpenedStored>,
): Promise<OpenedStored> {
  const stored = await read().catch((error): undefined => {
    modes.note('store_failed', { reason: nameOf(error) })
  })
  if (stored === undefined) return sealed
  if (sealed.kind === 'open' && stored.kind === 'open') {
    const { flow } = stored.claims
    if (canonicalJson(sealed.claims) !== canonicalJson(stored.claims)) modes.note('differs', { flow })
    return stored
  }
  if (sealed.kind === 'open') {
    if (stored.kind === 'refused')
      modes.note('not_stored', { reason: stored.reason, flow: sealed.claims.flow })
    return sealed
  }
  if (stored.kind === 'open') modes.note('not_sealed', { reason: sealed.reason, flow: stored.claims.flow })
  return stored.kind === 'open' ? stored : sealed
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : typeof error
}

export type MigrationMode = 'stored' | 'dual' | 'sealed-first' | 'sealed'

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

/*
 * Claims in a store, filed under a name that the client holds: a short handle, or the sealed state itself.
 *
 * M1 The store sees neither the name nor the claims: the row's id is a digest of the name, and the row is sealed under a
 *    key that is derived from it. Whoever reads the database learns nothing; whoever alters a name finds nothing.
 * M2 The key ring plays no part, so a row opens also when the keys of its time are gone.
 * M3 What comes out passes the same checks as a sealed state: time, principal, request.
 */

export interface StoredLimits extends StateLimits {
  /** Bytes of one journal in the store, sealed. */
  readonly maxStoredBytes: number
}

const HANDLE = 'h1.'

/** A name for a row, drawn from `id`, which nobody can guess. */
export function toHandle(id: string): string {
  return HANDLE + id
}

function isHandle(state: unknown): state is string {
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
