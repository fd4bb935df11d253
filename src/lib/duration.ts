/** Spans of time as people write them: a number of milliseconds, or text such as `'90 s'`, `'3 days'`, `'1 h 30 min'`. */

/** Milliseconds, or text such as `'90 s'`, `'15 min'`, `'3 days'`, `'1 h 30 min'`. */
export type Duration = number | string

const UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  millisecond: 1,
  s: 1000,
  sec: 1000,
  second: 1000,
  m: 60_000,
  min: 60_000,
  minute: 60_000,
  h: 3_600_000,
  hour: 3_600_000,
  d: 86_400_000,
  day: 86_400_000,
  w: 604_800_000,
  week: 604_800_000,
}

const PART = /\s*(\d{1,15}(?:\.\d{1,9})?)\s*([a-z]+)\s*/y

/** Returns whole milliseconds of 0 or more, or undefined for anything that is not a span of time. */
export function toMilliseconds(duration: unknown): number | undefined {
  const ms = typeof duration === 'string' ? parse(duration) : duration
  return typeof ms === 'number' && Number.isFinite(ms) && ms >= 0 ? Math.ceil(ms) : undefined
}

function parse(text: string): number | undefined {
  if (text.length > 100) return undefined
  const lower = text.toLowerCase()
  let total = 0
  PART.lastIndex = 0
  while (PART.lastIndex < lower.length) {
    const [, count, unit = ''] = PART.exec(lower) ?? []
    const ms = count === undefined ? undefined : msOf(unit)
    if (ms === undefined) return undefined
    total += Number(count) * ms
  }
  return lower.trim() === '' ? undefined : total
}

function msOf(unit: string): number | undefined {
  const singular = unit.length > 2 && unit.endsWith('s') ? unit.slice(0, -1) : unit
  return Object.hasOwn(UNITS, singular) ? UNITS[singular] : undefined
}

const NAMES = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
  ['second', 1000],
] as const

/** Says how long a span is, in its two largest units: "3 days", "1 hour 30 minutes". */
export function describeDuration(ms: number): string {
  let rest = Math.max(0, ms)
  const parts: string[] = []
  for (const [name, size] of NAMES) {
    const count = Math.floor(rest / size)
    rest -= count * size
    if (count > 0) parts.push(`${count} ${name}${count === 1 ? '' : 's'}`)
    else if (parts.length > 0) break
  }
  return parts.length > 0 ? parts.slice(0, 2).join(' ') : `${Math.ceil(rest)} ms`
}
