/** The longest life of a task: a leap year. */
import { misuse } from '../errors.ts'

const MAX_TTL_MS = 366 * 86_400_000

/** The longest interval a client could be told: what fits into a timer. */
const MAX_POLL_MS = 2 ** 31 - 1

/** Refuses times that no task can have, by the names under which they were given, when they are given. */
export function assertTaskTimes(times: {
  readonly ttl?: readonly [name: string, ms: number | undefined]
  readonly poll?: readonly [name: string, ms: number | undefined]
}): void {
  assertMs(times.ttl, MAX_TTL_MS)
  assertMs(times.poll, MAX_POLL_MS)
}

function assertMs(time: readonly [name: string, ms: number | undefined] | undefined, max: number): void {
  const [name, ms] = time ?? []
  if (ms === undefined || (Number.isSafeInteger(ms) && ms >= 1 && ms <= max)) return
  throw misuse(`${name} is a whole number of milliseconds from 1 to ${max}; got ${ms}.`)
}
