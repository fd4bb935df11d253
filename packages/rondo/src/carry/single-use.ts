/**
 * Single use (B8): of all requests with the same state, one is accepted. The same request again, because its reply was
 * lost, gets the stored reply; any other is refused. A compare-and-set on (flow, round) in the store decides, after every
 * check of the state itself, so that a request that is refused anyway uses nothing up.
 *
 * A store that was emptied or restored has forgotten what was used. So its epoch is sealed into every state, and a state
 * of another epoch is refused. A flow belongs to the epoch in which its first state was handed out, and to none (`NO_EPOCH`)
 * if the store could not be reached then: nothing of it counts as single use, in later rounds either.
 *
 * A slot is claimed, renewed while the work lasts, and released if the work fails. A process that dies renews nothing, so
 * its slot becomes free when the hold expires.
 */

import { type ErrorCode, RondoError } from '../errors.ts'
import { repeat, type StoreClock, storeClock } from '../lib/clock.ts'
import { canonicalJson } from '../lib/json.ts'
import { drawId } from '../lib/random.ts'
import type { FlowCall } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import { notJson, whyNotJson } from '../replay/work.ts'
import { openEnvelope, sealEnvelope } from '../seal/envelope.ts'
import { LEASE_MS } from '../store/engine/lease-engine.ts'
import type { OnceAttempt, OnceClaim, OnceSlot, OnceStore } from '../store/store.ts'
import type { Sealed } from '../store/task-engine.ts'
import type { Beginning } from './carrier.ts'
import type { FlowHost } from './host.ts'

const MAX_REPLY_BYTES = 16 * 1024 * 1024

/** The epoch of a flow whose first state was handed out while the store was away. No store has it. */
export const NO_EPOCH = ''

/** Returns the epoch that a new flow belongs to. `isNeeded`: rejects if the store is away and has never been reached. */
export async function epochOf(host: FlowHost, isNeeded = false): Promise<string | undefined> {
  const epoch = await host.epoch()
  return epoch === undefined && isNeeded ? host.store?.once.epoch() : epoch
}

/** An epoch is used for this long before it is read again. */
const FRESH_MS = 1_000
/** The time that a round waits for a read, if an epoch is known and if none is. */
const PATIENCE_MS = 100
const FIRST_PATIENCE_MS = 2_000

/**
 * Remembers the epoch of a store, so that a round which uses nothing else of the store neither pays for it nor waits for it
 * while it is away. An epoch that has ended meanwhile re-enables nothing: the store refuses what names it.
 */
export function recallEpoch(
  once: Pick<OnceStore, 'epoch'>,
  clock: StoreClock = storeClock,
): FlowHost['epoch'] {
  let known: string | undefined
  let readAt = Number.NEGATIVE_INFINITY
  let reading: Promise<void> | undefined
  const read = async () => {
    try {
      known = await once.epoch()
    } catch {
      // The last known epoch stays.
    }
    reading = undefined
  }
  return async () => {
    if (clock.elapsed() - readAt < FRESH_MS) return known
    // One round waits; the others of the next second do not.
    if (known !== undefined) readAt = clock.elapsed()
    reading ??= read()
    let cancel = () => {}
    const patience = new Promise<void>((resolve) => {
      cancel = clock.idly(known === undefined ? FIRST_PATIENCE_MS : PATIENCE_MS, resolve)
    })
    await Promise.race([reading, patience]).finally(cancel)
    readAt = clock.elapsed()
    return known
  }
}

/** Errors after which the same request may succeed. Stored, they would be its reply for good. */
const PASSING: readonly ErrorCode[] = ['STORE_UNAVAILABLE', 'STORE_BUSY', 'LIMIT_TASKS']

/** Replies to the request through its slot. A first request has no state to use up. */
export async function replyOnce(
  host: FlowHost,
  once: OnceStore,
  call: FlowCall,
  beginning: Beginning,
  run: () => Promise<Reply>,
  clock: StoreClock = storeClock,
): Promise<Reply> {
  const { requestState, inputResponses } = call
  if (!beginning.anchored || requestState === undefined) return run()
  const digest = host.platform.digest(canonicalJson([requestState, inputResponses ?? null]))
  const slot = toSlot(beginning, beginning.flow, beginning.round, digest)
  const work = async () => {
    const reply = await run()
    if (reply.kind === 'error' && PASSING.includes(reply.error.code)) throw reply.error
    return sealReply(host, slot, reply)
  }
  const claim = await workOnce(once, slot, work, { holdMs: holdOf(host), clock })
  switch (claim.kind) {
    case 'stored':
      return openReply(host, slot, claim.response)
    case 'busy':
      throw busy('The same request is being processed', claim.retryMs)
    case 'refused':
      host.log({
        event: 'state_refused',
        flow: beginning.flow,
        round: beginning.round,
        method: call.method,
        ...(call.method !== 'resources/read' && { target: call.target }),
        reason: claim.reason,
      })
      throw new RondoError('STATE_INVALID')
  }
}

/**
 * Runs an effect unless it has already run in this flow on the same answers (`branch`), and returns its result. Throws
 * `STORE_BUSY`, which is not an outcome of the effect, if it is running elsewhere or its worker has just died.
 */
export async function effectOnce(
  { host, beginning }: { readonly host: FlowHost; readonly beginning: Beginning },
  once: OnceStore,
  { key, branch }: { readonly key: string; readonly branch: string },
  run: () => unknown,
  waitMs?: number,
): Promise<unknown> {
  const { flow } = beginning
  const slot = toSlot(beginning, branch === '' ? `${flow}/${key}` : `${flow}@${branch}/${key}`, 0, 'effect')
  const work = async () => {
    const value = await run()
    const why = whyNotJson(value)
    // A result that cannot be recorded fills the slot too: the effect has run and must not run again.
    return sealJson(host, slot, why === undefined ? { value } : { why })
  }
  const claim = await workOnce(once, slot, work, { waitMs, holdMs: holdOf(host) })
  switch (claim.kind) {
    case 'stored': {
      const { value, why } = openJson<{ value?: unknown; why?: string }>(host, slot, claim.response)
      if (why !== undefined) throw notJson('effect', key, why)
      return value
    }
    case 'busy':
      throw busy('This call is running elsewhere, or its worker died', claim.retryMs)
    case 'refused':
      throw new RondoError(
        'STATE_INVALID',
        `It is unknown whether the effect "${key}" has run (${claim.reason})`,
      )
  }
}

/** Twice a lease: running an effect twice is worse than waiting, so a worker that takes over a task waits for its effect too. */
const holdOf = ({ leaseMs }: FlowHost): number => 2 * leaseMs

/** `retryMs`: after this time a dead worker is known to be dead. A live one may take longer. */
function busy(what: string, retryMs: number): RondoError {
  const seconds = Math.max(1, Math.ceil(retryMs / 1000))
  const detail = `${what}. Retry in ${seconds} s`
  return new RondoError('STORE_BUSY', detail, { data: { retryAfterMs: seconds * 1000 } })
}

function toSlot({ journal, flowExpires }: Beginning, flow: string, round: number, digest: string): OnceSlot {
  return { flow, round, digest, epoch: journal.epoch ?? NO_EPOCH, expiresAt: flowExpires }
}

function placeOf({ audience }: FlowHost, { flow, round }: OnceSlot): string {
  return JSON.stringify(['once', flow, round, audience])
}

function sealJson(host: FlowHost, slot: OnceSlot, value: unknown): string {
  return sealEnvelope(host.keys.ring, placeOf(host, slot), JSON.stringify(value)).token
}

function openJson<T>(host: FlowHost, slot: OnceSlot, sealed: string): T {
  const opened = openEnvelope(host.keys.ring, placeOf(host, slot), sealed, MAX_REPLY_BYTES)
  if (opened.kind === 'refused')
    throw new RondoError('STATE_INVALID', `A stored reply does not open: ${opened.reason}`)
  return JSON.parse(opened.plaintext.toString('utf8'))
}

type StoredReply =
  | Exclude<Reply, { kind: 'error' }>
  | { kind: 'failed'; code: ErrorCode; detail: string; data: unknown }

function sealReply(host: FlowHost, slot: OnceSlot, reply: Reply): string {
  if (reply.kind !== 'error') return sealJson(host, slot, reply)
  const { code, message, data } = reply.error
  return sealJson(host, slot, {
    kind: 'failed',
    code,
    detail: message.slice(code.length + 3),
    data,
  } satisfies StoredReply)
}

function openReply(host: FlowHost, slot: OnceSlot, sealed: string): Reply {
  const stored = openJson<StoredReply>(host, slot, sealed)
  if (stored.kind !== 'failed') return stored
  return { kind: 'error', error: new RondoError(stored.code, stored.detail, { data: stored.data }) }
}

export interface ClaimOnceOptions {
  /** The time to wait if the same request is being processed. */
  waitMs?: number
  /** The slot stays claimed for this long without a renewal. It is renewed three times in that time. */
  holdMs?: number
  clock?: StoreClock
}

/** Returns what the slot holds, after doing the work if it is empty. Waits a little if the slot is claimed. */
export async function workOnce(
  store: OnceStore,
  slot: OnceSlot,
  work: () => Promise<Sealed>,
  { waitMs = 5_000, holdMs = 2 * LEASE_MS, clock = storeClock }: ClaimOnceOptions = {},
): Promise<Exclude<OnceClaim, { readonly kind: 'first' }>> {
  const attempt = { claimant: drawId(), holdMs }
  const claim = await claimWithin(store, slot, attempt, waitMs, clock)
  if (claim.kind !== 'first') return claim
  const hold = async (ms: number) => {
    // If a renewal fails, the next one follows; work that has lost its slot cannot be undone.
    await store.renew(slot, { ...attempt, holdMs: ms }).catch(() => {})
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

async function claimWithin(
  store: OnceStore,
  slot: OnceSlot,
  attempt: OnceAttempt,
  waitMs: number,
  clock: StoreClock,
): Promise<OnceClaim> {
  const until = clock.elapsed() + waitMs
  for (let pause = 5; ; pause = Math.min(pause * 2, 200)) {
    const asked = clock.elapsed()
    const claim = await store.claim(slot, attempt)
    // A process that froze meanwhile reads a reply that is no longer true.
    if (claim.kind === 'first' && clock.elapsed() - asked >= attempt.holdMs)
      return { kind: 'busy', retryMs: attempt.holdMs }
    if (claim.kind !== 'busy' || clock.elapsed() + pause > until) return claim
    await new Promise<void>((resolve) => void clock.after(pause, resolve))
  }
}
