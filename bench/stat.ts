/** Medians, so that one busy moment of the machine does not distort a figure, and formatting of figures. */

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  const [low = Number.NaN, high = Number.NaN] = [sorted[middle - 1], sorted[middle]]
  return sorted.length % 2 === 1 ? high : (low + high) / 2
}

/** The subjects of one round run close together in time, so their ratios are steadier than the ratio of two medians. */
export function medianRatio(values: readonly number[], bases: readonly number[]): number {
  return median(values.map((value, round) => value / (bases[round] ?? Number.NaN)))
}

export function fixed(value: number, digits = 0): string {
  return Number.isFinite(value) ? value.toFixed(digits) : '–'
}

/** The part of a sorted list below which `share` of its values are. */
export function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
}

/** Lateness may grow by so much of the time that passes before a worker counts as too slow. */
const MAX_GROWTH = 0.03
/** Less is noise, in a short run. */
const NOISE_MS = 50

/**
 * True if work arrived faster than it was done: `late` has how late each piece began, in the order in which they were due,
 * evenly over `ms`. Such a worker gets later and later, so what it shows as median depends on how long one measures. The first
 * fifth is left out, since a worker may need a moment to find its pace.
 */
export function fellBehind(late: readonly number[], ms: number): boolean {
  const fifth = Math.floor(late.length / 5)
  const early = median(late.slice(fifth, 2 * fifth))
  const last = median(late.slice(-fifth))
  return last - early > Math.max(NOISE_MS, MAX_GROWTH * ms * 0.6)
}
