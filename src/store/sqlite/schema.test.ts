import { copyFile, mkdtemp, rename, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { newTask } from '../../../test/support/store/store-harness.ts'
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

it('creates no file before it is used, and one that only its user can read', async () => {
  const store = createSqliteStore({ file })
  await expect(stat(file)).rejects.toThrow(/ENOENT/)
  await store.ready()
  expect((await stat(file)).mode & 0o777).toBe(0o600)
  await store.close()
  await expect(store.ready()).rejects.toThrow(/closed/)
})

it('says what to do if the path is that of something else', async () => {
  const other = join(folder, 'package.json')
  await writeFile(other, '{ "name": "no database", "version": "1.0.0" }'.repeat(100))
  await expect(epochOf(other)).rejects.toThrow('The file is not a SQLite database: pass the path of another')
  await expect(epochOf(folder)).rejects.toThrow('The SQLite file cannot be opened: pass the path of a file')
})

it('opened for reading only, needs an existing file and writes nothing to it', async () => {
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

it('syncs every commit, and uses a write-ahead log only where SQLite resets it safely', async () => {
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

it('B8 keeps its epoch over restarts, and gets a new one when the file was emptied or restored from a copy', async () => {
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

it('upgrades a file of the first version, and finds the tasks of one owner by index', async () => {
  const store = createSqliteStore({ file })
  const task = newTask()
  await store.tasks.create(task, 10)
  await store.close()
  const before = openSqlite(file)
  before.exec(`DROP INDEX task_owner; DROP INDEX task_worker; ALTER TABLE task DROP COLUMN known; DROP TABLE record; DROP TABLE bus;
    PRAGMA user_version = 1`)
  before.close()
  const again = createSqliteStore({ file })
  expect(await again.tasks.list({ owner: task.owner })).toMatchObject([{ id: task.id }])
  // Nobody could tell whether its owner knows it, so it is not held back.
  expect(await again.tasks.claim('worker', 1000, 1)).toMatchObject([{ task: { id: task.id, known: true } }])
  await again.close()
  const after = openSqlite(file)
  const plan = after
    .prepare(
      `EXPLAIN QUERY PLAN SELECT id FROM task WHERE tenant = ? AND principal = ? AND (created_at, id) < (?, ?)
      ORDER BY created_at DESC, id DESC LIMIT 1`,
    )
    .all('t', 'p', 1, 'x')
  after.close()
  expect(JSON.stringify(plan)).toContain('task_owner')
  expect(JSON.stringify(plan)).not.toContain('TEMP B-TREE')
})

it('refuses a file of a newer release', async () => {
  await epochOf()
  const connection = openSqlite(file)
  connection.exec('PRAGMA user_version = 99')
  connection.close()
  const store = createSqliteStore({ file })
  await expect(store.tasks.create(newTask(), 10)).rejects.toMatchObject({ code: 'STORE_SCHEMA' })
})
