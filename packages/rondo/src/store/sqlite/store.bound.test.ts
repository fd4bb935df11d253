import { expect, it, onTestFinished } from 'vitest'
import { createSqliteDatabase } from '../../../../../test/support/store/sqlite-database.ts'
import { openSqlite } from './database.ts'

it('I3 a write of a record sums up the records of its owner only if they may exceed the limit', async () => {
  const database = await createSqliteDatabase()
  onTestFinished(() => database.close())
  const { records } = database.open()
  const put = (id: string, maxBytes: number) =>
    records?.put({ id, owner: 'alice', sealed: 'x', version: 0, ttlMs: 60_000, maxBytes })
  expect(await put('first', 10_000)).toBe('stored')
  // A row that no write has counted: who adds up finds it.
  const raw = openSqlite(database.file)
  raw
    .prepare("INSERT INTO record VALUES ('uncounted', 'alice', ?, 1, 0, ?)")
    .run('x'.repeat(20_000), Date.now() + 60_000)
  raw.close()
  expect(await put('second', 10_000)).toBe('stored')
  expect(await put('third', 600)).toBe('limit')
  expect(await put('third', 10_000)).toBe('stored')
})
