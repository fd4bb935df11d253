/**
 * What a step gives must survive the journal. A value that JSON would silently change (a Date, a Map, a NaN) is refused
 * on the first run, where the author sees it, and not on the second, where the user would.
 */

const MAX_DEPTH = 64

function describe(value: unknown): string {
  if (typeof value === 'number') return String(value)
  if (typeof value !== 'object' || value === null) return `a ${typeof value}`
  const name: unknown = value.constructor?.name
  return typeof name === 'string' && name !== '' ? `a ${name}` : 'an object of a class'
}

function isPlain(value: object): boolean {
  const proto = Object.getPrototypeOf(value)
  return proto === Object.prototype || proto === null
}

/** Where and what in `value` would not come back from JSON as it was; undefined if all of it does. */
export function findNonJson(value: unknown, path = '', depth = 0): string | undefined {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return undefined
  if (typeof value === 'number' && Number.isFinite(value)) return undefined
  const where = path === '' ? 'the value itself' : path
  if (typeof value !== 'object') return `${where} is ${describe(value)}`
  if (depth === MAX_DEPTH) return `${where} is nested deeper than ${MAX_DEPTH} levels`
  if (Array.isArray(value)) {
    for (const [i, item] of value.entries()) {
      const found = findNonJson(item, `${path}[${i}]`, depth + 1)
      if (found !== undefined) return found
    }
    return undefined
  }
  if (!isPlain(value)) return `${where} is ${describe(value)}`
  for (const [name, item] of Object.entries(value)) {
    if (item === undefined) continue
    const found = findNonJson(item, path === '' ? name : `${path}.${name}`, depth + 1)
    if (found !== undefined) return found
  }
  return undefined
}

/** A copy that shares nothing with the original: what a handler does to it does not reach the journal. */
export function copyJson<T>(value: T): T {
  return typeof value === 'object' && value !== null ? JSON.parse(JSON.stringify(value)) : value
}
