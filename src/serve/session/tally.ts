/** Adds amounts up by owner, and forgets owners that have none. */
export interface Tally {
  readonly total: number
  of(owner: string): number
  add(owner: string, change: number): void
}

export function createTally(): Tally {
  const amounts = new Map<string, number>()
  let total = 0
  return {
    get total() {
      return total
    },
    of: (owner) => amounts.get(owner) ?? 0,
    add(owner, change) {
      const amount = (amounts.get(owner) ?? 0) + change
      total += change
      if (amount > 0) amounts.set(owner, amount)
      else amounts.delete(owner)
    },
  }
}

/** Bytes that somebody may keep for a while, out of a limited supply. */
export interface Keeper {
  /** False if there is no room. */
  take(bytes: number): boolean
  give(bytes: number): void
}

/** For what is gone by itself, with its request. */
export const UNCOUNTED: Keeper = { take: () => true, give: () => {} }
