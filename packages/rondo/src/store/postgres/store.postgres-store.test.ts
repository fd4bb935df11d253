import { afterAll, beforeAll } from 'vitest'
import { describePostgres } from '../../../../../test/support/postgres.ts'
import { startPostgres, type TestPostgres } from '../../../../../test/support/postgres-server.ts'
import { createPostgresDatabase } from '../../../../../test/support/store/postgres-database.ts'
import { describeProcessContract } from '../../../../../test/support/store/process-contract.ts'
import { describeStoreContract } from '../../../../../test/support/store/store-contract.ts'

describePostgres('PostgreSQL', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())

  const harness = { name: 'PostgreSQL', create: async () => createPostgresDatabase(server) }
  describeStoreContract(harness)
  describeProcessContract(harness)
})
