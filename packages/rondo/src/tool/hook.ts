/** Functions that an operator or author passes and that decide whether a request is served: they have a limit of time. */

import { misuse } from '../errors.ts'

/** The time limit of such a function. One that never settles would otherwise hold its request forever. */
export const HOOK_MS = 30_000

/** Rejects if the promise has not settled after `ms`; `hook` says whose it is. */
export function inTime<T>(verdict: Promise<T>, ms: number, hook: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(misuse(`${hook} did not settle within ${ms} ms`)), ms)
    verdict.then(resolve, reject).finally(() => clearTimeout(late))
  })
}
