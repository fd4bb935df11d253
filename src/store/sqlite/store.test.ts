import { expect, it } from 'vitest'
import { describeProcessContract } from '../../../test/support/store/process-contract.ts'
import { createSqliteDatabase } from '../../../test/support/store/sqlite-database.ts'
import { describeStoreContract } from '../../../test/support/store/store-contract.ts'
import { createSqliteStore } from './store.ts'

const harness = { name: 'SQLite', create: createSqliteDatabase }
describeStoreContract(harness, { modelRuns: 30 })
describeProcessContract(harness)

it.each([{}, { file: '' }, { path: 'tasks.db' }])(
  'requires the path of a file, and says how to pass it: %j',
  (options) => {
    expect(() => createSqliteStore(options as never)).toThrow(/createSqliteStore\({ file:/)
  },
)
