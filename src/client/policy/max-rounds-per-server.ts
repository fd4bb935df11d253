import type { RoundPolicy } from '../round-policy.ts'

export interface RoundBudget {
  /** Milliseconds after which a round no longer counts. Default: it always does. */
  readonly within?: number
  readonly now?: () => number
}

/**
 * Lets each server ask at most `limit` rounds, all its calls together. Give one policy to several clients and they share
 * the count.
 */
export function maxRoundsPerServer(limit: number, budget: RoundBudget = {}): RoundPolicy {
  const { within = Number.POSITIVE_INFINITY, now = Date.now } = budget
  const rounds = new Map<string, number[]>()
  return ({ server }) => {
    const name = server.name ?? server.target
    const time = now()
    const recent = (rounds.get(name) ?? []).filter((one) => time - one < within)
    if (recent.length >= limit) {
      return { kind: 'refuse', reason: `${name} has used up its ${limit} rounds` }
    }
    rounds.set(name, [...recent, time])
    return undefined
  }
}
