/** Counts things by owner, and forgets owners that have none. */
export interface Tally {
  readonly total: number
  of(owner: string): number
  add(owner: string, change: 1 | -1): void
}

export function createTally(): Tally {
  const counts = new Map<string, number>()
  let total = 0
  return {
    get total() {
      return total
    },
    of: (owner) => counts.get(owner) ?? 0,
    add(owner, change) {
      const count = (counts.get(owner) ?? 0) + change
      total += change
      if (count > 0) counts.set(owner, count)
      else counts.delete(owner)
    },
  }
}
