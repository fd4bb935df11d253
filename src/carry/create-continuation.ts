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

import { canonicalJson } from '../lib/canonical-json.ts'
import type { Claims } from '../seal/claims.ts'
import {
  type Expected,
  type ExpectedTurn,
  type OpenedState,
  openState,
  type SealedState,
  sealState,
} from '../seal/state.ts'
import type { BlobStore } from '../store/blob-store.ts'
import type { Continuation, ContinuationMode, Finding, Sealer } from './continuation.ts'
import { getState, isHandle, type OpenedStored, putState, toHandle } from './stored-state.ts'

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
