import { copyFile, mkdtemp, rename, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { newTask } from '../../../../../test/support/store/store-harness.ts'
import type { Lease } from '../task-store.ts'
import { openSqlite } from './database.ts'
import { createSqliteStore } from './store.ts'

let folder: string
let file: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'rondo-sqlite-'))
  file = join(folder, 'deep', 'tasks.db')
})
afterEach(() => rm(folder, { recursive: true }))

const epochOf = async (path = file) => {
  const store = createSqliteStore({ file: path })
  const epoch = await store.once.epoch()
  await store.close()
  return epoch
}

it('the store creates no file before it is used, and one that only its user can read', async () => {
  const store = createSqliteStore({ file })
  await expect(stat(file)).rejects.toThrow(/ENOENT/)
  await store.ready()
  expect((await stat(file)).mode & 0o777).toBe(0o600)
  await store.close()
  await expect(store.ready()).rejects.toThrow(/closed/)
})

it('an error says what to do if the path is that of something else', async () => {
  const other = join(folder, 'package.json')
  await writeFile(other, '{ "name": "no database", "version": "1.0.0" }'.repeat(100))
  await expect(epochOf(other)).rejects.toThrow('The file is not a SQLite database: pass the path of another')
  await expect(epochOf(folder)).rejects.toThrow('The SQLite file cannot be opened: pass the path of a file')
})

it('a store that is opened for reading only needs an existing file and writes nothing to it', async () => {
  const none = createSqliteStore({ file, readOnly: true })
  await expect(none.tasks.stats()).rejects.toMatchObject({ code: 'STORE_SCHEMA' })
  await none.close()
  await expect(stat(file)).rejects.toThrow(/ENOENT/)
  await epochOf()
  const store = createSqliteStore({ file, readOnly: true })
  expect(await store.tasks.stats()).toMatchObject({ due: 0 })
  await expect(store.tasks.create(newTask(), 10)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
  expect(await store.tasks.list({})).toEqual([])
  await store.close()
})

it('the store syncs every commit, and uses a write-ahead log only where SQLite resets it safely', async () => {
  await epochOf()
  const connection = openSqlite(file)
  const { version } = connection.prepare('SELECT sqlite_version() AS version').get() as { version: string }
  const { journal_mode } = connection.prepare('PRAGMA journal_mode').get() as { journal_mode: string }
  connection.close()
  const [major = 0, minor = 0, patch = 0] = version.split('.').map(Number)
  const isSafe = major > 3 || minor > 51 || (minor === 51 && patch >= 3)
  // The mode of a rollback journal is the connection's own; only the log is a property of the file.
  expect(journal_mode === 'wal').toBe(isSafe)
})

it('the store writes nothing to an existing file of its own when it opens it', async () => {
  await epochOf()
  const other = openSqlite(file)
  const change = () => other.read(() => other.prepare('PRAGMA data_version').get()?.data_version)
  const before = change()
  const store = createSqliteStore({ file })
  await store.ready()
  expect(change()).toBe(before)
  await store.tasks.create(newTask(), 10)
  expect(change()).not.toBe(before)
  await store.close()
  other.close()
})

it('B8 a file keeps its epoch over restarts, and gets a new one when the file was emptied or restored from a copy', async () => {
  const epoch = await epochOf()
  expect(await epochOf()).toBe(epoch)
  const copy = join(folder, 'copy.db')
  await copyFile(file, copy)
  await rename(copy, file)
  const restored = await epochOf()
  expect(restored).not.toBe(epoch)
  await rm(file)
  expect([epoch, restored]).not.toContain(await epochOf())
})

it('the store finds the tasks of one owner by index', async () => {
  await epochOf()
  const connection = openSqlite(file)
  const plan = connection
    .prepare(
      `EXPLAIN QUERY PLAN SELECT id FROM task WHERE tenant = ? AND principal = ? AND (created_at, id) < (?, ?)
      ORDER BY created_at DESC, id DESC LIMIT 1`,
    )
    .all('t', 'p', 1, 'x')
  connection.close()
  expect(JSON.stringify(plan)).toContain('task_owner')
  expect(JSON.stringify(plan)).not.toContain('TEMP B-TREE')
})

/** As a later release leaves the file. */
async function upgrade(version: number, minCompatible: number): Promise<void> {
  await epochOf()
  const connection = openSqlite(file)
  connection.exec(`PRAGMA user_version = ${version};
    UPDATE meta SET value = '${minCompatible}' WHERE key = 'min_compatible'`)
  connection.close()
}

it('the store starts on the file of a later release that earlier ones can use, and leaves its version alone', async () => {
  await upgrade(99, 6)
  const store = createSqliteStore({ file })
  const task = newTask()
  expect(await store.tasks.create(task, 10)).toMatchObject({ kind: 'created' })
  expect(await store.check?.()).toEqual({ version: 99, minCompatible: 6, supported: 11, problems: [] })
  await store.close()
  const reading = createSqliteStore({ file, readOnly: true })
  expect(await reading.tasks.list({})).toMatchObject([{ id: task.id }])
  await reading.close()
})

it('the store refuses the file of a later release that earlier ones cannot use, and one from before the first release', async () => {
  await upgrade(99, 98)
  for (const readOnly of [false, true]) {
    const store = createSqliteStore({ file, readOnly })
    await expect(store.tasks.list({})).rejects.toMatchObject({
      code: 'STORE_SCHEMA',
      message: expect.stringContaining('supports version 98; this one supports up to 11: upgrade Rondo'),
    })
    expect((await store.check?.())?.problems).toHaveLength(1)
    await store.close()
  }
  await upgradeTo5()
  const store = createSqliteStore({ file })
  await expect(store.ready()).rejects.toThrow('from before the first release of Rondo')
  await store.close()
})

async function upgradeTo5(): Promise<void> {
  const connection = openSqlite(file)
  connection.exec("PRAGMA user_version = 5; DELETE FROM meta WHERE key = 'min_compatible'")
  connection.close()
}

it('the store builds an index that is missing, and says so before', async () => {
  await epochOf()
  const connection = openSqlite(file)
  connection.exec('DROP INDEX task_status')
  connection.close()
  const store = createSqliteStore({ file })
  expect(await store.check?.()).toMatchObject({
    problems: ['The index task_status is missing: rondo store migrate builds it'],
  })
  await store.migrate?.()
  expect(await store.check?.()).toMatchObject({ version: 11, problems: [] })
  await store.close()
})

it('the store upgrades the file of a release without labels, and that release can still use it', async () => {
  await epochOf()
  const connection = openSqlite(file)
  connection.exec(`DROP TRIGGER task_alarm; DROP TABLE alarm; DROP TRIGGER task_label_gone; DROP TABLE task_label; ALTER TABLE task DROP COLUMN labels;
    PRAGMA user_version = 9`)
  connection.close()
  const store = createSqliteStore({ file })
  const { id, owner } = newTask()
  const taker = { worker: 'w', leaseMs: 1000 }
  const { lease } = (await store.tasks.create(newTask({ id, owner }), 10, taker)) as { lease?: Lease }
  expect(lease && (await store.operator?.label(lease.fence, 'sealed', ['tag']))).toBe(true)
  expect(await store.tasks.list({ labels: [['tag']] })).toMatchObject([{ id }])
  expect(await store.check?.()).toMatchObject({ version: 11, minCompatible: 8, problems: [] })
  await store.close()
})

it('the store shrinks the file when sweeps have deleted what it held', async () => {
  let at = 1_800_000_000_000
  const store = createSqliteStore({ file, now: () => at })
  const head = 'x'.repeat(1_000_000)
  for (let i = 0; i < 12; i++) await store.tasks.create(newTask({ head, ttlMs: 1000 }), 100)
  at += 1000
  expect(await store.sweep(100)).toBe(12)
  const before = (await stat(file)).size
  await store.sweep(100)
  const { size } = await stat(file)
  await store.close()
  expect(before).toBeGreaterThan(12_000_000)
  expect(Math.min(size, (await stat(file)).size)).toBeLessThan(before - 4_000_000)
})
