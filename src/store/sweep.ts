import type { Clock } from './clock.ts'
import { repeat } from './clock.ts'
import type { OnEngineEvent } from './engine-event.ts'
import type { Store } from './store.ts'

/** Deletes expired rows from time to time, in batches with room between them; gives a function that ends it. */
export function startSweep(
  store: Store,
  clock: Clock,
  everyMs: number,
  batch: number,
  tell: OnEngineEvent,
): () => void {
  let more = false
  const wait = () => (more ? 50 : everyMs * (0.8 + Math.random() * 0.4))
  return repeat(clock, wait, async () => {
    try {
      const count = await store.sweep(batch)
      more = count >= batch
      if (count > 0) tell({ kind: 'swept', count })
    } catch (error) {
      more = false
      tell({ kind: 'store-error', during: 'sweep', error })
    }
  })
}
