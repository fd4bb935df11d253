/**
 * How big a parsed JSON value is, without recursion and without writing it out: characters of its strings and keys plus
 * 8 for every value. Stops at the limit, so that a hostile value costs no more than a big honest one. A value nested
 * deeper than `JSON.stringify` can be trusted with is infinitely big.
 */

const PER_VALUE = 8
const MAX_DEPTH = 64

export function measureJson(root: unknown, limit: number): number {
  let size = 0
  const open: [value: unknown, depth: number][] = [[root, 0]]
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const [value, depth] = next
    size += PER_VALUE
    if (typeof value === 'string') size += value.length
    else if (typeof value === 'object' && value !== null) {
      if (depth >= MAX_DEPTH) return Number.POSITIVE_INFINITY
      for (const [key, child] of Object.entries(value)) {
        size += key.length
        open.push([child, depth + 1])
      }
    }
    if (size + open.length * PER_VALUE > limit) return Number.POSITIVE_INFINITY
  }
  return size
}
