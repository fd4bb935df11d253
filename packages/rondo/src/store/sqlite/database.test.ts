import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createSqliteDatabase } from '../../../../../test/support/store/sqlite-database.ts'
import { newTask, until } from '../../../../../test/support/store/store-harness.ts'
import { type CommitQueue, createCommitQueue, openSqlite, type SqliteConnection } from './database.ts'
import { openDatabase } from './schema.ts'
import { createStoreOn } from './store.ts'

let database: Awaited<ReturnType<typeof createSqliteDatabase>>
let connection: SqliteConnection
let commits: number
let queue: CommitQueue
beforeEach(async () => {
  database = await createSqliteDatabase()
  connection = openDatabase(database.file)
  commits = 0
  queue = createCommitQueue(counted, 60_000)
})
afterEach(async () => {
  connection.close()
  await database.close()
})

function counted(): SqliteConnection {
  const exec = (sql: string) => {
    if (sql === 'COMMIT') commits++
    connection.exec(sql)
  }
  return { ...connection, exec }
}

const put = (id: string) => {
  const statement = connection.prepare('INSERT INTO blob (id, sealed, expires_at) VALUES (?, ?, 9)')
  return () => statement.run(id, 'x')
}
const count = () => Number(connection.prepare('SELECT count(*) AS n FROM blob').get()?.n)

describe('group commit', () => {
  it('puts the writes of one turn of the event loop into one transaction', async () => {
    await Promise.all(Array.from({ length: 100 }, (_, i) => queue.write(put(`${i}`))))
    expect(commits).toBe(1)
    await queue.write(put('later'))
    expect(commits).toBe(2)
    expect(count()).toBe(101)
  })

  it('limits the size of a transaction', async () => {
    await Promise.all(Array.from({ length: 600 }, (_, i) => queue.write(put(`${i}`))))
    expect(commits).toBe(3)
  })

  it('fails only the faulty write, and resolves the others after their commit', async () => {
    const broken = () => {
      put('half')()
      throw new TypeError('broken')
    }
    const results = await Promise.allSettled([
      queue.write(put('a')),
      queue.write(broken),
      queue.write(put('b')),
    ])
    expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    expect((results[1] as PromiseRejectedResult).reason).toMatchObject({ message: 'broken' })
    expect(count()).toBe(2)
  })

  it('fails the second of two writes that conflict', async () => {
    const results = await Promise.allSettled([queue.write(put('same')), queue.write(put('same'))])
    expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected'])
    expect((results[1] as PromiseRejectedResult).reason).toMatchObject({ code: 'STORE_UNAVAILABLE' })
  })
})

it('the database closes after the queued writes, even if each write is followed by another', async () => {
  let ended = 0
  const busy = async (name: string) => {
    for (let i = 0; ; i++) await queue.write(put(`${name} ${i}`))
  }
  const loops = ['a', 'b', 'c'].map((name) => busy(name).catch(() => ended++))
  await until('some writes', () => commits > 3)
  const last = queue.write(put('last'))
  await queue.close()
  expect(await last).toBe(1)
  await Promise.all(loops)
  expect(ended).toBe(3)
  await expect(queue.write(put('late'))).rejects.toThrow(/closed/)
})

describe('a file that another process holds', () => {
  const hold = () => {
    const other = openSqlite(database.file)
    other.exec('BEGIN EXCLUSIVE')
    return () => {
      other.exec('COMMIT')
      other.close()
    }
  }

  it('is waited for without blocking this process', async () => {
    const letGo = hold()
    const write = queue.write(put('a'))
    const read = queue.read(() => count())
    let turns = 0
    await until('some turns of the event loop', () => ++turns > 5)
    letGo()
    expect(await write).toBe(1)
    expect(await read).toBeLessThanOrEqual(1)
  })

  it('does not make writes run twice when it is locked between them', async () => {
    let letGo = () => {}
    let runs = 0
    const exec = (sql: string) => {
      connection.exec(sql)
      if (sql === 'COMMIT' && ++commits === 1) letGo = hold()
    }
    queue = createCommitQueue(() => ({ ...connection, exec }), 60_000)
    const first = queue.write(() => {
      runs += 1
      return put('a')()
    })
    const faulty = queue.write(() => {
      throw new TypeError('broken')
    })
    const last = queue.write(put('b'))
    expect(await first).toBe(1)
    letGo()
    await expect(faulty).rejects.toThrow('broken')
    expect(await last).toBe(1)
    // Once with the others, which was undone, and once alone.
    expect(runs).toBe(2)
    expect(count()).toBe(2)
  })

  it('is not kept locked by a read that failed', async () => {
    // With a write-ahead log no look is ever refused.
    connection.exec('PRAGMA journal_mode = PERSIST')
    queue = createCommitQueue(counted, 50)
    const [refused, other] = ['id', 'sealed'].map((column) =>
      connection.prepare(`SELECT ${column} FROM blob`),
    )
    const letGo = hold()
    await expect(queue.read(() => refused?.all())).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
    letGo()
    expect(await queue.read(() => other?.all())).toEqual([])
    hold()()
  })

  it('fails a write after the time allowed, and is used again when it is free', async () => {
    queue = createCommitQueue(counted, 50)
    const letGo = hold()
    await expect(queue.write(put('a'))).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
    letGo()
    expect(await queue.write(put('a'))).toBe(1)
  })
})

it('a full disk fails the write and loses nothing acknowledged; writes succeed again when there is space', async () => {
  const limit = (pages: number) => connection.prepare(`PRAGMA max_page_count = ${pages}`).get()
  const store = createStoreOn(() => connection, {})
  const acknowledged: string[] = []
  limit(60)
  let failure: unknown
  for (let i = 0; i < 200 && failure === undefined; i++) {
    const task = newTask({ head: 'x'.repeat(4000) })
    await store.tasks.create(task, 1000).then(
      () => acknowledged.push(task.id),
      (error) => {
        failure = error
      },
    )
  }
  expect(failure).toMatchObject({ code: 'STORE_UNAVAILABLE' })
  expect(acknowledged.length).toBeGreaterThan(5)
  limit(10_000)
  await store.tasks.create(newTask(), 1000)
  expect((await store.tasks.revisions(acknowledged)).size).toBe(acknowledged.length)
  expect(connection.prepare('PRAGMA integrity_check').get()?.integrity_check).toBe('ok')
})
