/** An engine over the in-memory store, with a manual clock. */

import {
  createLeaseEngine,
  type LeaseEngineOptions,
} from '../../../packages/rondo/src/store/engine/lease-engine.ts'
import { createMemoryStore } from '../../../packages/rondo/src/store/memory/store.ts'
import type { Store } from '../../../packages/rondo/src/store/store.ts'
import type { EngineEvent } from '../../../packages/rondo/src/store/task-engine.ts'
import { createEngineClock } from './engine-clock.ts'

export const LEASE = 9_000

export function createEngineBench() {
  const clock = createEngineClock()
  const store: Store = createMemoryStore({ now: clock.now })
  const events: EngineEvent[] = []
  return {
    clock,
    store,
    events,
    kinds: () => events.map(({ kind }) => kind),
    engineOn: (options: LeaseEngineOptions = {}, on: Store = store) =>
      createLeaseEngine(on, { clock, leaseMs: LEASE, onEvent: (event) => events.push(event), ...options }),
    /** The given store, with some of its methods replaced. */
    broken: (changes: Partial<Store['tasks']>): Store => ({
      ...store,
      tasks: { ...store.tasks, ...changes },
    }),
  }
}
