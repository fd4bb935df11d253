/**
 * Collects the calls of one moment (everything until the event loop comes round) and runs them together: a thousand
 * small queries become a few. Each caller gets its own result; if the run fails, all of its callers get the error.
 */
export function createMomentBatch<T, R>(
  run: (items: readonly T[]) => Promise<readonly R[]>,
  max = 256,
): (item: T) => Promise<R> {
  interface Waiting {
    readonly item: T
    readonly resolve: (result: R) => void
    readonly reject: (error: unknown) => void
  }
  const waiting: Waiting[] = []
  const flush = async () => {
    const batch = waiting.splice(0, max)
    if (waiting.length > 0) setImmediate(flush)
    try {
      const results = await run(batch.map(({ item }) => item))
      batch.forEach(({ resolve }, i) => {
        resolve(results[i] as R)
      })
    } catch (error) {
      for (const { reject } of batch) reject(error)
    }
  }
  return (item) =>
    new Promise((resolve, reject) => {
      if (waiting.length === 0) setImmediate(flush)
      waiting.push({ item, resolve, reject })
    })
}
