/** A PostgreSQL store that is set up wrongly: the line in the log says what is wrong and what to do. */

import { spawnSync } from 'node:child_process'
import pg from 'pg'
import { createServer } from 'rondo'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createJsonLog } from '../../packages/rondo/src/log/json.ts'
import {
  createPostgresStore,
  type PostgresStoreOptions,
} from '../../packages/rondo/src/store/postgres/store.ts'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { processFile } from '../support/process-file.ts'
import { send } from '../support/task-client.ts'

/** The log messages of a server whose store cannot create a task. */
async function messagesOf(options: PostgresStoreOptions): Promise<string[]> {
  const lines: string[] = []
  const store = createPostgresStore({ retryMs: 200, listen: false, ...options })
  const server = createServer({
    name: 'desk',
    version: '1',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    store,
    log: createJsonLog({ write: (line) => void lines.push(line) }),
  })
  server.tool('work', { task: 'always' }, () => 'done')
  const { error } = await send(server, 'tools/call', { name: 'work' })
  expect(JSON.stringify(error)).not.toMatch(/PostgreSQL|Grant|password/)
  await server.close()
  await store.close()
  expect(lines.join()).not.toContain('hunter2')
  return lines.flatMap((line) => JSON.parse(line).error?.message ?? [])
}

describePostgres('a PostgreSQL store that is set up wrongly', () => {
  let server: TestPostgres
  const run = async (text: string) => {
    const client = new pg.Client({ connectionString: server.connectionString })
    await client.connect()
    try {
      return (await client.query(text)).rows
    } finally {
      await client.end()
    }
  }
  const as = (user: string) => server.connectionString.replace('rondo@', `${user}@`)
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
    await run("CREATE ROLE locked LOGIN PASSWORD 'correct'; CREATE ROLE guest LOGIN")
    const [row] = await run('SHOW hba_file')
    const lines = "('host all locked all scram-sha-256'), ('host all all all trust')"
    await run(`COPY (SELECT * FROM (VALUES ${lines}) line) TO '${row?.hba_file}'`)
    await run('SELECT pg_reload_conf()')
  })
  afterAll(() => server.stop())

  it.each([
    [
      'a database that does not exist',
      () => server.connectionString.replace(/postgres$/, 'nowhere'),
      /database "nowhere" does not exist\. Create the database, or correct its name in connectionString/,
    ],
    [
      'a wrong password',
      () => as('locked:hunter2'),
      /authentication failed for user "locked"\. Correct the user and the password in connectionString/,
    ],
    [
      'a missing password',
      () => as('locked'),
      /requires a password\. Set it in connectionString or PGPASSWORD/,
    ],
    [
      'a port where nothing listens',
      () => 'postgres://rondo:hunter2@127.0.0.1:1/postgres',
      /refused the connection at 127\.0\.0\.1:1\. Start the server, or correct host and port/,
    ],
    [
      'a role that may not create the tables',
      () => as('guest'),
      /permission denied for database postgres\. Grant the role the right/,
    ],
  ])(
    'R11 the log says what to do about a fault of the database: %s',
    async (_what, connectionString, message) => {
      const messages = await messagesOf({ connectionString: connectionString() })
      expect(messages.length).toBeGreaterThan(0)
      for (const each of messages) expect(each).toMatch(message)
    },
  )

  it('R11 a program stops with advice if its database does not exist', () => {
    const connectionString = server.connectionString.replace(/postgres$/, 'nowhere')
    const program = processFile('test/support/newcomer-process.ts')
    const { status, stdout, stderr } = spawnSync(process.execPath, [program, '0', connectionString], {
      encoding: 'utf8',
    })
    expect(stderr).toContain('Create the database, or correct its name in connectionString')
    expect(stdout).not.toContain('Serving')
    expect(status).toBe(1)
  })

  it('R11 the log says what to do about a role that may not use a table', async () => {
    const owner = createPostgresStore({ connectionString: server.connectionString, schema: 'shared' })
    await owner.ready()
    await owner.close()
    await run('GRANT USAGE ON SCHEMA shared TO guest; GRANT SELECT ON shared.meta TO guest')
    const messages = await messagesOf({ connectionString: as('guest'), schema: 'shared' })
    expect(messages.length).toBeGreaterThan(0)
    for (const each of messages)
      expect(each).toMatch(/permission denied for table task\. Grant the role the right/)
  })
})
