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
  type ExpectedTurn,
  type OpenedState,
  openState,
  type SealedState,
  type StateLimits,
  sealState,
} from '../seal/state.ts'
import type { BlobStore } from '../store/store.ts'

export interface ContinuationOptions {
  readonly mode: Exclude<ContinuationMode, 'sealed'>
  readonly blobs: BlobStore
  randomId(): string
  tell(finding: Finding): void
}

interface Modes extends Omit<ContinuationOptions, 'tell'> {
  note(finding: Finding['finding'], facts?: Pick<Finding, 'reason' | 'flow'>): void
}

export function createContinuation(options: ContinuationOptions): Continuation {
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
    keep(sealer, claims, name) {
      of += 1
      return options.mode === 'stored'
        ? keepStored(modes, sealer, claims, name)
        : keepBoth(modes, sealer, claims, name)
    },
    open(sealer, state, expected, names) {
      of += 1
      return openAny(modes, sealer, state, expected, names)
    },
  }
}

async function keepStored(
  { blobs, randomId }: Modes,
  { audience, limits }: Sealer,
  claims: Claims,
  name: string = toHandle(randomId()),
): Promise<SealedState> {
  const tooLarge = await putState(blobs, audience, name, claims, limits)
  if (tooLarge !== undefined) return { kind: 'too-large', bytes: tooLarge }
  return { kind: 'sealed', token: name, bytes: name.length, keyId: 'stored' }
}

async function keepBoth(modes: Modes, sealer: Sealer, claims: Claims, name?: string): Promise<SealedState> {
  const { audience, keys, limits } = sealer
  const sealed = sealState(keys.ring, audience, claims, limits)
  if (sealed.kind === 'too-large') {
    modes.note('spilled', { flow: claims.flow })
    return keepStored(modes, sealer, claims, name)
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
  sealer: Sealer,
  state: unknown,
  expected: Expected | ExpectedTurn,
  names?: readonly string[],
): Promise<OpenedStored> {
  // A handle names its row itself.
  const filed = names === undefined || isHandle(state) ? [state] : names
  if (!filed.every((name) => typeof name === 'string')) return { kind: 'refused', reason: 'encoding' }
  if (filed.some(({ length }) => length > sealer.limits.maxBytes)) return { kind: 'refused', reason: 'size' }
  const stored = () => getFirst(modes, sealer, filed, expected)
  if (state === undefined || isHandle(state)) return stored()
  const { keys, audience, limits } = sealer
  const open = () => openState(keys.ring, audience, state, expected, limits)
  if (modes.mode === 'stored') return storedElseSealed(stored, open)
  return modes.mode === 'dual' ? compare(modes, open(), stored) : fallBack(modes, open(), stored)
}

async function getFirst(
  { blobs }: Modes,
  { audience, limits }: Sealer,
  names: readonly string[],
  expected: Expected | ExpectedTurn,
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

/*
 * Where a journal is between rounds: sealed, in the client's hands, unless the service is on its way there from a store
 * (F4). With no `Continuation` nothing is stored and nothing is waited for.
 */

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

export type OpenedStored = OpenedState | { readonly kind: 'refused'; readonly reason: 'missing' }

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
