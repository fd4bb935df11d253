/** `rondo store`: the tables of a store, from outside. Needs the build. */

import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import { openSqlite } from '../../packages/rondo/src/store/sqlite/database.ts'
import { createSqliteStore } from '../../packages/rondo/src/store/sqlite/store.ts'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { useCliHome } from '../support/use-cli.ts'

const home = useCliHome()

describe('rondo store with a SQLite file', () => {
  let folder: string
  let file: string
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'rondo-store-'))
    file = join(folder, 'tasks.db')
  })
  afterEach(() => rmSync(folder, { recursive: true }))

  const epoch = async () => {
    const store = createSqliteStore({ file })
    try {
      return await store.once.epoch()
    } finally {
      await store.close()
    }
  }

  it('rondo store creates the tables, finds a missing index, and builds it', async () => {
    expect(await home.run(['store', 'check', file])).toMatchObject({ code: EXITS.stored.code })
    expect(existsSync(file)).toBe(false)
    expect(await home.run(['store', 'migrate', file])).toMatchObject({ code: 0 })
    expect(await home.run(['store', 'check', file])).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('No problems found.'),
    })
    const connection = openSqlite(file)
    connection.exec('DROP INDEX task_status')
    connection.close()
    expect(await home.run(['store', 'check', file])).toMatchObject({
      code: EXITS.failed.code,
      stdout: expect.stringContaining('The index task_status is missing: rondo store migrate builds it.'),
    })
    const migrated = await home.json(['store', 'migrate', file])
    expect(migrated.value.store).toMatchObject({ problems: [] })
  })

  it('B8 starts a new epoch, and only in a store', async () => {
    const before = await epoch()
    const renewed = await home.json(['store', 'renew-epoch', file])
    expect(renewed.value.epoch).not.toBe(before)
    expect(await epoch()).toBe(renewed.value.epoch)
    const empty = join(folder, 'empty.db')
    writeFileSync(empty, '')
    const ran = await home.run(['store', 'renew-epoch', empty])
    expect(ran).toMatchObject({ code: EXITS.stored.code, stdout: '' })
    expect(ran.stderr).toContain('rondo store migrate creates one')
  })

  it('refuses what is no action and no store', async () => {
    const lines = [
      ['vacuum', file],
      ['check', 'restate+http://x'],
      ['check', file, 'x'],
    ]
    const codes = await Promise.all(lines.map(async (words) => (await home.run(['store', ...words])).code))
    expect(codes).toEqual(lines.map(() => EXITS.usage.code))
  })
})

describePostgres('rondo store with PostgreSQL', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())

  it('creates the tables, finds a missing index, builds it, and starts a new epoch', async () => {
    const run = (...words: string[]) =>
      home.run(['store', ...words, server.connectionString, '--schema', 'ops'])
    expect((await run('renew-epoch')).code).toBe(EXITS.stored.code)
    expect((await run('migrate')).code).toBe(0)
    const client = new pg.Client({ connectionString: server.connectionString })
    await client.connect()
    await client.query('DROP INDEX ops.task_status')
    const epoch = async () =>
      (await client.query("SELECT value FROM ops.meta WHERE key = 'epoch'")).rows[0]?.value
    const before = await epoch()
    expect((await run('check')).stdout).toContain('The index task_status is missing')
    expect((await run('migrate')).code).toBe(0)
    expect((await run('check')).code).toBe(0)
    expect((await run('renew-epoch')).code).toBe(0)
    expect(await epoch()).not.toBe(before)
    await client.end()
  })
})
