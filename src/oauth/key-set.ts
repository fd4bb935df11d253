/**
 * The public keys of one issuer. They are fetched when a token needs them, and at most once per cooldown: a token with an
 * unknown key id, or any number of them, cannot cause a storm of requests. Requests share one fetch that is under way.
 *
 * keys 1: At most one fetch per cooldown; while there are no keys at all, one per `RETRY_MS`.
 * keys 2: Keys that are older than `maxAgeMs` are fetched again. If that fails, they serve on for `staleMs`.
 * keys 3: Only public keys for signatures count. A private key in the set is a leak, and whoever reads it can sign.
 */

import { isRecord } from '../lib/json.ts'
import { addressProblem, discover, type Fetch, fetchJson, RemoteFault, type RemoteLimits } from './remote.ts'

/** A key as it is published, narrowed to what is looked at here. */
export type PublishedKey = Readonly<Record<string, unknown>>

export interface KeySetOptions {
  readonly issuer: string
  /** Where the keys are, or the keys themselves. Default: the `jwks_uri` of the issuer's metadata. */
  readonly jwks?: string | { readonly keys: readonly PublishedKey[] }
  readonly fetch: Fetch
  readonly now: () => number
  readonly cooldownMs: number
  readonly maxAgeMs: number
  readonly limits?: RemoteLimits
}

export interface KeySet {
  /** Returns the keys, as fresh as the cooldown allows if `isKnown` finds none among those that are held. Rejects with a `RemoteFault`. */
  keys(isKnown: (keys: readonly PublishedKey[]) => boolean): Promise<readonly PublishedKey[]>
}

const RETRY_MS = 5_000
const STALE_MS = 60 * 60_000

interface Held {
  readonly keys: readonly PublishedKey[]
  readonly at: number
}

export function createKeySet(options: KeySetOptions): KeySet {
  const { jwks, now, cooldownMs, maxAgeMs } = options
  if (typeof jwks === 'object') return { keys: async () => jwks.keys }
  let held: Held | undefined
  let triedAt: number | undefined
  let fault: unknown
  let fetching: Promise<void> | undefined
  let address = jwks

  const load = async (): Promise<void> => {
    try {
      address ??= await findAddress(options)
      const set = await fetchJson(options.fetch, address, options.limits)
      if (!Array.isArray(set.keys)) throw new RemoteFault(`${address} is not a set of keys`)
      held = { keys: set.keys.filter(isRecord), at: now() }
      fault = undefined
    } catch (error) {
      fault = error
      // The metadata may have changed.
      address = jwks
    } finally {
      fetching = undefined
    }
  }
  const mayTry = (): boolean =>
    triedAt === undefined ||
    now() - triedAt >= (held === undefined ? Math.min(RETRY_MS, cooldownMs) : cooldownMs)

  return {
    async keys(isKnown) {
      const isFresh = held !== undefined && now() - held.at < maxAgeMs
      if (!(isFresh && held !== undefined && isKnown(held.keys))) {
        if (fetching === undefined && mayTry()) {
          triedAt = now()
          fetching = load()
        }
        await fetching
      }
      if (held !== undefined && now() - held.at < maxAgeMs + STALE_MS) return held.keys
      throw fault ?? new RemoteFault(`The keys of "${options.issuer}" are not known yet`)
    },
  }
}

async function findAddress({ issuer, fetch, limits }: KeySetOptions): Promise<string> {
  const { jwks_uri: address } = await discover(fetch, issuer, limits)
  const problem = addressProblem(issuer, address, 'jwks_uri')
  if (problem !== undefined) throw new RemoteFault(problem)
  return address as string
}
