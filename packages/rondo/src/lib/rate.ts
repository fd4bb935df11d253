/**
 * Returns a function that says how often something may happen: `most` times within `ms`, for each kind. It returns undefined
 * if this time is one too many, else how many of its kind were left out before it. Kinds are remembered for good, so they
 * must be few.
 */
export function createRate(ms: number, now: () => number, most = 1): (kind?: string) => number | undefined {
  const kinds = new Map<string, { since: number; passed: number; leftOut: number }>()
  return (kind = '') => {
    const at = now()
    const last = kinds.get(kind)
    // A clock that was set back must not silence anything for as long.
    const isCurrent = last !== undefined && Math.abs(at - last.since) < ms
    const current = isCurrent ? last : { since: at, passed: 0, leftOut: last?.leftOut ?? 0 }
    kinds.set(kind, current)
    if (current.passed >= most) {
      current.leftOut += 1
      return undefined
    }
    current.passed += 1
    const { leftOut } = current
    current.leftOut = 0
    return leftOut
  }
}
