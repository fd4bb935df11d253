import { afterAll, beforeAll, describe } from 'vitest'
import { sharePostgres, shareSqlite } from '../support/fleet-stores.ts'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { describeSessions } from './sessions.ts'

describe('a fleet that shares a SQLite file', () => describeSessions(shareSqlite))

describePostgres('a fleet that shares a PostgreSQL database', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())

  describe('with LISTEN', () => describeSessions(() => sharePostgres(server)))
  describe('by polling alone, as behind a pooler', () =>
    describeSessions(() => sharePostgres(server, { listen: false, pollMs: 50 })))
})
