/** True for what JSON calls an object: neither null nor an array. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function'
}

/* Small questions about parsed JSON whose shape is not known yet. */

export function isText(value: unknown): value is string {
  return typeof value === 'string'
}

/** Milliseconds since the epoch. */
export function isTime(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value)
}

export function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}

/** A copy without a prototype, each value narrowed; undefined if one of them does not fit. */
export function toMap<T>(
  value: unknown,
  narrow: (member: unknown) => T | undefined,
): Record<string, T> | undefined {
  if (!isRecord(value)) return undefined
  const map: Record<string, T> = Object.create(null)
  for (const [key, member] of Object.entries(value)) {
    const narrowed = narrow(member)
    if (narrowed === undefined) return undefined
    map[key] = narrowed
  }
  return map
}
