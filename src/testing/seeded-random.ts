/** Random numbers from a seed, for tests that print it and can be repeated. Not for secrets. */

export interface SeededRandom {
  /** A whole number from 0 up to, not including, `limit`. */
  below(limit: number): number
  pick<T>(from: readonly T[]): T
}

export function seededRandom(seed: number): SeededRandom {
  let state = seed >>> 0
  // mulberry32: a 32-bit counter through a mixing function.
  function next(): number {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return (mixed ^ (mixed >>> 14)) >>> 0
  }
  const below = (limit: number) => Math.floor((next() / 2 ** 32) * limit)
  return {
    below,
    pick(from) {
      const picked = from[below(from.length)]
      if (picked === undefined) throw new RangeError('nothing to pick from')
      return picked
    },
  }
}

/** `RONDO_SEED` if set, so that a failure can be repeated; otherwise a new seed. */
export function testSeed(): number {
  const given = Number(process.env.RONDO_SEED)
  return Number.isSafeInteger(given) && given > 0 ? given : Math.floor(Math.random() * 2 ** 32)
}
