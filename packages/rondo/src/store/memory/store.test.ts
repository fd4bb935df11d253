import { describeStoreContract } from '../../../../../test/support/store/store-contract.ts'
import type { Store } from '../store.ts'
import { createMemoryStore } from './store.ts'

describeStoreContract(
  {
    name: 'memory',
    async create() {
      // Handles that go by one clock share what is in memory.
      const stores = new Map<unknown, Store>()
      return {
        open(now) {
          const store = stores.get(now) ?? createMemoryStore({ now })
          stores.set(now, store)
          return store
        },
        close: async () => stores.clear(),
      }
    },
  },
  { modelRuns: 5 },
)
