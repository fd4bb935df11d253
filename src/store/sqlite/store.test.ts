import { expect, it } from 'vitest'
import { createSqliteDatabase } from '../../../test/support/store/sqlite-database.ts'
import { describeStoreContract } from '../../../test/support/store/store-contract.ts'
import { createSqliteStore } from './store.ts'

describeStoreContract({ name: 'SQLite', processes: true, create: createSqliteDatabase }, 30)

it.each([{}, { file: '' }, { path: 'tasks.db' }])(
  'requires the path of a file, and says how to pass it: %j',
  (options) => {
    expect(() => createSqliteStore(options as never)).toThrow(/createSqliteStore\({ file:/)
  },
)
