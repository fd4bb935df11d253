/**
 * Runs work on hostile input and fails if it takes excessive time. The bound is far above what linear work takes on the
 * slowest machine and far below what quadratic or exponential work takes on these inputs; it says nothing about speed.
 */

const OUT_OF_HAND_MS = 5_000

export function hasAnEnd<T>(work: () => T): T {
  const start = process.cpuUsage()
  const result = work()
  const { user, system } = process.cpuUsage(start)
  const ms = (user + system) / 1000
  if (ms > OUT_OF_HAND_MS) throw new Error(`took ${Math.round(ms)} ms of CPU time`)
  return result
}
