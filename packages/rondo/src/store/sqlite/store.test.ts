import { expect, it } from 'vitest'
import { describeProcessContract } from '../../../../../test/support/store/process-contract.ts'
import { createSqliteDatabase } from '../../../../../test/support/store/sqlite-database.ts'
import { describeStoreContract } from '../../../../../test/support/store/store-contract.ts'
import { createPostgresStore } from '../postgres/store.ts'
import { createSqliteStore } from './store.ts'

const harness = { name: 'SQLite', create: createSqliteDatabase }
describeStoreContract(harness, { modelRuns: 30 })
describeProcessContract(harness)

it.each([{}, { file: '' }, 'tasks.db', null])(
  'createSqliteStore requires the path of a file, and says how to pass it: %j',
  (options) => {
    expect(() => createSqliteStore(options as never)).toThrow(/createSqliteStore\({ file:/)
  },
)

it('createSqliteStore refuses a URL as a file, and PostgreSQL one under the wrong name', () => {
  expect(() => createSqliteStore({ file: 'postgres://db/app' })).toThrow(
    /not a postgres URL.*createPostgresStore/,
  )
  expect(() => createPostgresStore({ url: 'postgres://db/app' } as never)).toThrow(/mean "connectionString"/)
})
