import pg from 'pg'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { describePostgres } from '../../../../../test/support/postgres.ts'
import { startPostgres, type TestPostgres } from '../../../../../test/support/postgres-server.ts'
import { createPostgresDatabase } from '../../../../../test/support/store/postgres-database.ts'

describePostgres('PostgreSQL', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())

  it('I3 a write of a record sums up the records of its owner only if they may exceed the limit', async () => {
    const database = createPostgresDatabase(server)
    onTestFinished(() => database.close())
    const { records } = database.open()
    const put = (id: string, maxBytes: number) =>
      records?.put({ id, owner: 'alice', sealed: 'x', version: 0, ttlMs: 60_000, maxBytes })
    expect(await put('first', 10_000)).toBe('stored')
    // A row that no write has counted: who adds up finds it.
    const client = new pg.Client({ connectionString: server.connectionString })
    await client.connect()
    const { schema } = database.address as { schema: string }
    const insert = `INSERT INTO ${schema}.record VALUES ('uncounted', 'alice', $1, 1, 0, $2)`
    await client.query(insert, ['x'.repeat(20_000), Date.now() + 60_000])
    await client.end()
    expect(await put('second', 10_000)).toBe('stored')
    expect(await put('third', 600)).toBe('limit')
    expect(await put('third', 10_000)).toBe('stored')
  })
})
