/**
 * Single use (B8): of all requests that bring the same state, one gets through. The same request again, because its reply
 * was lost, gets the stored reply; any other is refused. A compare-and-set on (flow, round) in the store decides, after
 * every check of the state itself, so that a request which would be refused anyway uses nothing up.
 *
 * A store that was emptied or restored has forgotten what was used. So its epoch is sealed into every state, and a state
 * of another epoch is refused.
 */

import { randomBytes } from 'node:crypto'
import { type ErrorCode, RondoError } from '../errors.ts'
import { canonicalJson } from '../lib/canonical-json.ts'
import { repeat, type StoreClock, storeClock } from '../lib/clock.ts'
import type { FlowCall } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import { notJson, whyNotJson } from '../replay/work.ts'
import { openEnvelope, sealEnvelope } from '../seal/envelope.ts'
import { LEASE_MS } from '../store/engine/lease-engine.ts'
import type { OnceAttempt, OnceClaim, OnceSlot, OnceStore } from '../store/store.ts'
import type { Sealed } from '../store/task-engine.ts'
import type { FlowHost } from './host.ts'
import type { Beginning } from './round.ts'

const MAX_REPLY_BYTES = 16 * 1024 * 1024

/** Answers the request through its slot. A first request has no state to use up. */
export async function answerOnce(
  host: FlowHost,
  once: OnceStore,
  call: FlowCall,
  beginning: Beginning,
  answer: () => Promise<Reply>,
): Promise<Reply> {
  const { requestState, inputResponses } = call
  if (!beginning.anchored || requestState === undefined) return answer()
  const digest = host.platform.digest(canonicalJson([requestState, inputResponses ?? null]))
  const slot = toSlot(beginning, beginning.flow, beginning.round, digest)
  const work = async () => sealReply(host, slot, await answer())
  const claim = await workOnce(once, slot, work, { holdMs: holdOf(host) })
  switch (claim.kind) {
    case 'stored':
      return openReply(host, slot, claim.response)
    case 'busy':
      throw busy('The same request is being answered right now', claim.retryMs)
    case 'refused':
      host.log({ event: 'state_refused', method: call.method, target: call.target, reason: claim.reason })
      throw new RondoError('STATE_INVALID')
  }
}

/**
 * Runs an effect that has not run in this flow on the same answers (`branch`); hands back what it gave if it has. Where it is just running, or its worker
 * died a moment ago, that cannot be told: an error which is no outcome of the effect.
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
    // A result that cannot be recorded fills the slot all the same: the effect has run, and must not run again.
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
      throw busy('This call is at work elsewhere, or its worker died', claim.retryMs)
    case 'refused':
      throw new RondoError('STATE_INVALID', `Whether the effect "${key}" has run is lost (${claim.reason})`)
  }
}

/** Twice a lease: doing an effect twice is worse than waiting, so whoever takes over a task waits for its effect as well. */
const holdOf = ({ leaseMs }: FlowHost): number => 2 * leaseMs

/** `retryMs`: after this time a worker that died is known to be dead. One that lives takes as long as it takes. */
function busy(what: string, retryMs: number): RondoError {
  const seconds = Math.max(1, Math.ceil(retryMs / 1000))
  const detail = `${what}. Send the request again in ${seconds} s`
  return new RondoError('STORE_BUSY', detail, { data: { retryAfterMs: seconds * 1000 } })
}

function toSlot({ journal, flowExpires }: Beginning, flow: string, round: number, digest: string): OnceSlot {
  return { flow, round, digest, epoch: journal.epoch ?? '', expiresAt: flowExpires }
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

/*
 * How a slot of single use is taken and kept: claimed, renewed for as long as the work takes, and let go where the work
 * failed. A process that dies renews nothing, so its slot is free again when the hold is over.
 */

export interface ClaimOnceOptions {
  /** How long to wait for the response of the same request that came a moment earlier. */
  waitMs?: number
  /** How long the slot is ours without a renewal before the same request may try again. Renewed three times as often. */
  holdMs?: number
  clock?: StoreClock
}

/**
 * Gives what the slot holds, after having done the work if it held nothing. If the same request is being answered right
 * now, waits a little for its response.
 */
export async function workOnce(
  store: OnceStore,
  slot: OnceSlot,
  work: () => Promise<Sealed>,
  { waitMs = 5_000, holdMs = 2 * LEASE_MS, clock = storeClock }: ClaimOnceOptions = {},
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
  clock: StoreClock,
): Promise<OnceClaim> {
  const until = clock.elapsed() + waitMs
  for (let pause = 5; ; pause = Math.min(pause * 2, 200)) {
    const claim = await store.claim(slot, attempt)
    if (claim.kind !== 'busy' || clock.elapsed() + pause > until) return claim
    await new Promise<void>((resolve) => void clock.after(pause, resolve))
  }
}
