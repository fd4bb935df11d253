/**
 * An extension that limits how often a caller may call a tool. Each caller has a bucket for each tool: it is full at first,
 * every call takes one, and it fills again at a constant rate.
 *
 * rate 1: A call that is refused has done nothing, and its reply says when to try again.
 * rate 2: Later rounds have a bucket of their own, ten times as large, because clients give a call about ten rounds. So a call
 *         that was let in can end, and a state that is redeemed again and again is refused.
 * rate 3: Buckets are in the memory of one instance, and bounded: of the callers beyond, the one that was idle longest is evicted.
 * rate 4: All tools that do not exist share one bucket of a caller, so made-up names neither fill the memory nor evict buckets.
 */

import { misuse, RondoError } from '../errors.ts'
import { defineOptions, flag, number, type OptionsOf, unchecked } from '../options.ts'
import { principalTag } from '../seal/state.ts'
import type { Extension } from './extension.ts'

/** A number of calls in a time. */
export interface CallRate {
  readonly calls: number
  readonly perMs: number
}

export interface RateLimitOptions {
  /** How often one caller may call each tool. Default: 60 calls in 60 s. */
  each?: CallRate
  /** Other rates for single tools, by name. Default: none. */
  tools?: Readonly<Record<string, CallRate>>
  /**
   * Replies with the error of a draft of the specification (-32023, SEP-3304) instead of -32000. Published revisions reserve that code,
   * so turn it on only if your clients know it. Default: `false`.
   */
  drafts?: boolean
  /** Buckets that are kept. Default: 100,000. */
  maxBuckets?: number
}

const OPTIONS = defineOptions('rateLimit', {
  each: unchecked<CallRate>({ calls: 60, perMs: 60_000 }),
  tools: unchecked<Readonly<Record<string, CallRate>>>({}),
  drafts: flag(false),
  maxBuckets: number(100_000, { min: 1 }),
} satisfies OptionsOf<RateLimitOptions>)

/** Rounds for which there is room after each call. */
const LATER_ROUNDS = 10

/** `RateLimited` of SEP-3304. */
const RATE_LIMITED = -32023

class RateLimited extends RondoError {
  readonly #isDraft: boolean

  constructor(retryAfterMs: number, isDraft: boolean) {
    const headers = { 'Retry-After': String(Math.ceil(retryAfterMs / 1_000)) }
    super('LIMIT_RATE', undefined, { data: { retryAfterMs }, headers })
    this.#isDraft = isDraft
  }

  override get rpc(): number {
    return this.#isDraft ? RATE_LIMITED : super.rpc
  }
}

/**
 * Limits how often a caller may call a tool: pass it to `server.use`. Anonymous callers have one bucket together, so
 * authenticate callers first.
 *
 * @example
 * ```ts
 * server.use(rateLimit({ tools: { search: { calls: 10, perMs: 60_000 } } }))
 * ```
 */
export function rateLimit(options: RateLimitOptions = {}): Extension {
  const { each, tools, drafts, maxBuckets } = OPTIONS.read(options)
  for (const [name, rate] of Object.entries({ each, ...tools })) {
    if (!(rate?.calls >= 1 && rate.perMs > 0))
      throw misuse(`rateLimit: ${name} must be { calls, perMs } with at least one call.`)
  }
  const buckets = new Map<string, { level: number; at: number }>()
  let now: () => number = Date.now
  let hasTool: (name: string) => boolean = () => true

  /** Takes a call from the bucket. Returns how long to wait if it is empty. */
  const take = (key: string, { calls, perMs }: CallRate): number | undefined => {
    const at = now()
    const known = buckets.get(key) ?? { level: calls, at }
    // A clock that was set back fills nothing.
    const filled = (Math.max(0, at - known.at) * calls) / perMs
    const level = Math.min(calls, known.level + filled)
    buckets.delete(key)
    const [oldest] = buckets.keys()
    if (buckets.size >= maxBuckets && oldest !== undefined) buckets.delete(oldest)
    buckets.set(key, { level: level >= 1 ? level - 1 : level, at })
    return level >= 1 ? undefined : Math.ceil(((1 - level) * perMs) / calls)
  }

  return {
    name: 'rate-limit',
    attach(host) {
      now = () => host.now()
      hasTool = (name) => host.hasTool(name)
      return undefined
    },
    async around({ kind, method, target, continues, principal }, next) {
      if (kind !== 'request' || method !== 'tools/call' || target === undefined) return next()
      const rate = Object.hasOwn(tools, target) ? (tools[target] ?? each) : each
      const rounds = continues ? LATER_ROUNDS : 1
      const key = `${rounds} ${principalTag(principal)} ${hasTool(target) ? target : ''}`
      const wait = take(key, { calls: rate.calls * rounds, perMs: rate.perMs })
      if (wait !== undefined) throw new RateLimited(wait, drafts)
      return next()
    },
  }
}
