import { storeContract, storeControls } from '@rondo/store-kit'
import { describe, it } from 'vitest'
import { createKeyValueStore, type KeyValue, type Values } from './store-key-value.ts'

/** Stands for your database: texts by key, and one transaction at a time, which is undone if it throws. */
function createDatabase(): KeyValue {
  let texts = new Map<string, string>()
  let last: Promise<unknown> = Promise.resolve()
  const run = async <T>(body: (values: Values) => Promise<T>): Promise<T> => {
    const copy = new Map(texts)
    const result = await body({
      get: async (key) => copy.get(key),
      list: async (prefix) => [...copy].filter(([key]) => key.startsWith(prefix)).map(([, text]) => text),
      put: async (key, text) => void copy.set(key, text),
      delete: async (key) => void copy.delete(key),
    })
    texts = copy
    return result
  }
  return {
    transaction(body) {
      const mine = last.then(() => run(body))
      last = mine.catch(() => {})
      return mine
    },
    close: async () => {},
  }
}

// #region contract
const harness = {
  name: 'key-value',
  // An empty database for each case. Every handle that a case opens sees the same data.
  async create() {
    const database = createDatabase()
    return { open: (now?: () => number) => createKeyValueStore(database, now), close: () => database.close() }
  },
}

for (const { group, name, run } of [...storeContract(harness), ...storeControls(harness)])
  describe(group, () => {
    it(name, run)
  })
// #endregion
