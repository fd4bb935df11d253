/** Clean-up at the end of a run: the functions that the handler passed to `ctx.defer`. */

import { RondoError } from '../errors.ts'
import { type Mark, type RunState, runMarked } from './run-state.ts'

export type Deferred = () => void | Promise<void>

/** Runs the last registered first, each after the one before it has settled. The call waits for them, but not forever. */
export function runDeferred(
  run: RunState,
  deferred: Deferred[],
  onError: (error: unknown) => void = () => {},
): Promise<void> {
  const { maxDeferMs } = run.limits
  const mark: Mark = { run, label: 'function passed to ctx.defer' }
  const report = (error: unknown): void => {
    try {
      onError(error)
    } catch {
      // There is nobody left to report to.
    }
  }
  const one = async (fn: Deferred): Promise<void> => {
    try {
      await runMarked(mark, fn)
    } catch (error) {
      report(error)
    }
  }
  const all = async (): Promise<void> => {
    for (let fn = deferred.pop(); fn; fn = deferred.pop()) await one(fn)
  }
  return new Promise((resolve) => {
    const cancel = run.platform.after(maxDeferMs, () => {
      const detail = `A function passed to ctx.defer has not settled within ${maxDeferMs} ms (limits.maxDeferMs). The call continues without it.`
      report(new RondoError('LIMIT_DEFER', detail))
      for (const fn of deferred.splice(0).reverse()) void one(fn)
      resolve()
    })
    all().then(() => {
      cancel()
      resolve()
    })
  })
}
