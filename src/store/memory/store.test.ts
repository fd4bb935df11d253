import { describeStoreContract } from '../../../test/support/store/store-contract.ts'
import { createMemoryStore } from './store.ts'

describeStoreContract(
  {
    name: 'memory',
    processes: false,
    async create() {
      return { address: undefined, open: (now) => createMemoryStore({ now }), close: async () => {} }
    },
  },
  5,
)
