import { afterAll, beforeAll } from 'vitest'
import { describePostgres } from '../../../test/support/postgres.ts'
import { startPostgres, type TestPostgres } from '../../../test/support/postgres-server.ts'
import { createPostgresDatabase } from '../../../test/support/store/postgres-database.ts'
import { describeStoreContract } from '../../../test/support/store/store-contract.ts'

describePostgres('PostgreSQL', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())

  // Creates that run at the same moment do not see each other: as many as there are connections.
  describeStoreContract(
    {
      name: 'PostgreSQL',
      limitSlack: 10,
      processes: true,
      create: async () => createPostgresDatabase(server),
    },
    10,
  )
})
