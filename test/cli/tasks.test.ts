/** `rondo tasks`: what an operator sees of a store, and that looking changes nothing. Needs the build. */

import { createHash, randomBytes } from 'node:crypto'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import { openSlots } from '../../packages/rondo/src/store/input-slots.ts'
import { openSqlite } from '../../packages/rondo/src/store/sqlite/database.ts'
import type { Store } from '../../packages/rondo/src/store/store.ts'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import type { Printed } from '../support/run-cli.ts'
import { createPostgresDatabase } from '../support/store/postgres-database.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import { claimNew, type Database, inputs, newTask } from '../support/store/store-harness.ts'
import { useCliHome } from '../support/use-cli.ts'

const SECRET = 'SEALED'
const home = useCliHome()

/** One done, three parked (for answers, until a time, for an event), one running, one due; returns their ids. */
async function fill(
  store: Store,
): Promise<Record<'parked' | 'sleeping' | 'hooked' | 'running' | 'due' | 'done', string>> {
  const sealed = { head: SECRET, message: SECRET, journal: [SECRET, SECRET] }
  const done = await claimNew(store, sealed)
  await store.tasks.settle(done.fence, { kind: 'complete', result: SECRET })
  const parked = await claimNew(store, sealed)
  await store.tasks.park(parked.fence, openSlots([], inputs('who', 'w\u202ehy')))
  const sleeping = await claimNew(store, sealed)
  await store.tasks.park(sleeping.fence, [], Date.now() + 600_000)
  const hooked = await claimNew(store, sealed)
  await store.tasks.park(hooked.fence, openSlots([], inputs('paid'), 'hook'))
  const running = await claimNew(store, sealed, 600_000)
  // As one in 64 is.
  const due = newTask({ head: SECRET, id: `-${randomBytes(15).toString('base64url')}` })
  await store.tasks.create(due, 10)
  return {
    parked: parked.fence.id,
    sleeping: sleeping.fence.id,
    hooked: hooked.fence.id,
    running: running.fence.id,
    due: due.id,
    done: done.fence.id,
  }
}

function describeOperator(open: () => Promise<{ database: Database; words: string[] }>): void {
  let database: Database
  let words: string[]
  let ids: Awaited<ReturnType<typeof fill>>
  const [list, json] = [
    (...more: string[]) => home.run(['tasks', ...words, ...more]),
    (...more: string[]) => home.json(['tasks', ...words, ...more]),
  ]
  const idsIn = (value: Printed) => (value.tasks as { id: string }[]).map(({ id }) => id)
  beforeEach(async () => {
    const opened = await open()
    database = opened.database
    words = opened.words
    ids = await fill(database.open())
  })
  afterEach(() => database.close())

  it('rondo tasks lists tasks without their content, newest first', async () => {
    const { stdout, stderr, code } = await list()
    const lines = stdout.trimEnd().split('\n')
    expect(lines[0]).toMatch(/^task +status +age +expires +failures +entries +worker +waits for +owner$/)
    expect(lines).toHaveLength(7)
    expect(lines[1]).toMatch(
      new RegExp(`^${ids.due} +working +now +in \\d+ min +0 +0 +- +a worker +tracker/alice$`),
    )
    expect(stdout).toMatch(new RegExp(`^${ids.running} +working .* worker +- +tracker/alice$`, 'm'))
    const waits = { parked: 'answer who, answer why', sleeping: 'time 20[^ ]+Z', hooked: 'event paid' }
    for (const [name, text] of Object.entries(waits))
      expect(stdout).toMatch(
        new RegExp(`^${ids[name as keyof typeof waits]} +\\w+ .* 2 +- +${text} +tracker/alice$`, 'm'),
      )
    expect(stdout).not.toContain(SECRET)
    expect([code, stderr]).toEqual([0, ''])
  })

  it('rondo tasks lists by status, page by page', async () => {
    const first = (await json('--limit', '5')).value
    expect(idsIn(first)).toHaveLength(5)
    const second = (await json('--limit', '5', '--after', String(first.next))).value
    expect(idsIn(second)).toEqual([ids.done])
    expect(second.next).toBeUndefined()
    expect((await list('--limit', '1')).stderr).toMatch(/^For the next page: --after \d+\.\S+\n$/)
    expect(idsIn((await json('--status', 'input_required')).value)).toEqual([ids.parked])
    expect(await list('--status', 'failed')).toMatchObject({ code: 0, stdout: '' })
  })

  it('rondo tasks shows one task, and reports one that does not exist', async () => {
    const { stdout, stderr } = await list(ids.parked)
    expect(stderr).toBe('')
    expect(stdout).toMatch(/^open questions +who, why$/m)
    expect(stdout).toMatch(/^owner's tag +alice$/m)
    expect((await list(ids.hooked)).stdout).toMatch(/^waits for +event paid$/m)
    expect((await list(ids.sleeping)).stdout).toMatch(/^waits for +time 20/m)
    expect((await json(ids.running)).value.task).toMatchObject({ id: ids.running, worker: 'worker' })
    expect((await json(ids.due)).value.task).toMatchObject({ id: ids.due })
    const none = await list('nosuchtask')
    expect(none).toMatchObject({ code: EXITS.stored.code, stdout: '' })
    expect(none.stderr).toContain('has no task nosuchtask')
  })

  it('rondo tasks counts due, running and parked tasks', async () => {
    expect((await json('--stats')).value.stats).toMatchObject({ due: 1, running: 1, parked: 3 })
    const { stdout } = await list('--stats')
    expect(stdout).toMatch(/^due +1, the oldest for \d+\.\d s +wait for a worker\nrunning +1 .*\nparked +3 /)
  })

  it('rondo tasks reports what it cannot find without the keys', async () => {
    expect((await list('--tool', 'refund')).stderr).toMatch(/has no such tasks\. .* pass --keys FILE/)
    expect((await list(ids.parked, '--content')).stderr).toMatch(/^rondo: The content is sealed\. .*--keys/)
  })

  it('rondo tasks refuses an unknown action, and suggests one', async () => {
    const { code, stderr } = await home.run(['tasks', 'lst', ...words])
    expect([code, stderr]).toEqual([EXITS.usage.code, 'rondo: Unknown action "lst". Did you mean "list"?\n'])
  })

  it.each([
    ['--status', 'sleeping'],
    ['--limit', '0'],
    ['--limit', '2.5'],
    ['--after', 'somewhere'],
  ])('rondo tasks refuses %s %s', async (option, value) => {
    expect(await list(option, value)).toMatchObject({ code: EXITS.usage.code, stdout: '' })
  })
}

describe('a SQLite file that is in use', () => {
  describeOperator(async () => {
    const database = await createSqliteDatabase()
    return { database, words: [database.file] }
  })
})

describe('a SQLite file', () => {
  let folder: string
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'rondo-tasks-'))
  })
  afterEach(() => rmSync(folder, { recursive: true }))

  const digest = (file: string) => createHash('sha256').update(readFileSync(file)).digest('hex')

  it('is not changed by reading it, even if it lacks an index or is a copy', async () => {
    const database = await createSqliteDatabase()
    const store = database.open()
    await fill(store)
    await store.close()
    const copy = join(folder, 'copy.db')
    writeFileSync(copy, readFileSync(database.file))
    await database.close()
    const connection = openSqlite(copy)
    connection.exec('DROP INDEX task_owner')
    connection.close()
    const before = [digest(copy), readdirSync(folder)]
    for (const words of [[], ['--stats'], ['nosuchtask']]) await home.run(['tasks', copy, ...words])
    expect((await home.run(['tasks', copy])).stdout.split('\n')).toHaveLength(8)
    expect([digest(copy), readdirSync(folder)]).toEqual(before)
  })

  it('R11 with a damaged row is listed with the others, and one line names the row', async () => {
    const database = await createSqliteDatabase()
    const store = database.open()
    const { parked } = await fill(store)
    await store.close()
    const connection = openSqlite(database.file)
    connection.prepare("UPDATE task SET inputs = '{' WHERE id = ?").run(parked)
    connection.close()
    const ran = await home.run(['tasks', database.file])
    expect(ran.code).toBe(0)
    expect(ran.stdout.split('\n')).toHaveLength(8)
    expect(ran.stderr).toBe(
      `The row of task ${parked} is damaged and cannot be run: delete it from the table task\n`,
    )
    await database.close()
  })

  it('that does not exist is not created', async () => {
    const file = join(folder, 'deep', 'none.db')
    const ran = await home.run(['tasks', file])
    expect(ran).toMatchObject({ code: EXITS.stored.code, stdout: '' })
    expect(ran.stderr).toBe(`rondo: No such file: ${file}\n`)
    expect(existsSync(join(folder, 'deep'))).toBe(false)
  })

  it('that is not a store is refused and not changed', async () => {
    const files = ['empty.db', 'text.db', 'other.db', 'newer.db'].map((name) => join(folder, name))
    const [empty = '', text = '', other = '', newer = ''] = files
    writeFileSync(empty, '')
    writeFileSync(text, 'no database at all '.repeat(100))
    const strange = openSqlite(other)
    strange.exec('CREATE TABLE task (id TEXT); PRAGMA user_version = 1')
    strange.close()
    const future = openSqlite(newer)
    future.exec(
      'CREATE TABLE task (a); CREATE TABLE meta (key, value); CREATE TABLE journal (a); PRAGMA user_version = 99',
    )
    future.close()
    const before = files.map(digest)
    for (const file of files) {
      const ran = await home.run(['tasks', file])
      expect(ran, file).toMatchObject({ code: EXITS.stored.code, stdout: '' })
      expect(ran.stderr).toMatch(file === newer ? /has version 99/ : /is not a Rondo store/)
    }
    expect((await home.run(['tasks', folder])).stderr).toContain('is not a file')
    expect((await home.run(['tasks', 'mysql://x'])).code).toBe(EXITS.usage.code)
    expect(files.map(digest)).toEqual(before)
    expect(readdirSync(folder)).toHaveLength(4)
  })
})

describePostgres('a PostgreSQL database', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())

  describeOperator(async () => {
    const database = createPostgresDatabase(server)
    const schema = database.address?.kind === 'postgres' ? database.address.schema : ''
    return { database, words: [server.connectionString, '--schema', schema] }
  })

  it('rondo tasks without a store is refused, and none is created', async () => {
    const ran = await home.run(['tasks', server.connectionString])
    expect(ran).toMatchObject({ code: EXITS.stored.code, stdout: '' })
    expect(ran.stderr).toContain('no Rondo store in the schema "rondo"')
    const client = new pg.Client({ connectionString: server.connectionString })
    await client.connect()
    const { rows } = await client.query("SELECT 1 FROM pg_namespace WHERE nspname = 'rondo'")
    await client.end()
    expect(rows).toEqual([])
    const wrong = await home.run(['tasks', server.connectionString, '--schema', 'a b'])
    expect(wrong.code).toBe(EXITS.usage.code)
  })

  it('the command takes what the URL omits from the environment', async () => {
    const { host } = new URL(server.connectionString)
    const ran = await home.run(['tasks', `postgres://${host}/postgres`], { env: { PGUSER: 'rondo' } })
    expect(ran.stderr).toContain('no Rondo store')
  })

  it('T24 an error never shows the password', async () => {
    const { host } = new URL(server.connectionString)
    const addresses = [
      [`postgres://rondo:hunter2@${host}/postgres`, EXITS.stored.code],
      [`postgres://rondo:hunter2@${host}/nosuchdatabase`, EXITS.unreachable.code],
      ['postgres://rondo:hunter2@127.0.0.1:9/postgres', EXITS.unreachable.code],
      [`postgres://rondo:hunt/er2@127.0.0.1:9/postgres`, undefined],
      ['postgres://rondo@127.0.0.1:9/postgres?password=hunter2', EXITS.unreachable.code],
    ] as const
    for (const [address, code] of addresses) {
      const forms = [[], ['--json']].map((words) => home.run(['tasks', address, ...words]))
      for (const ran of await Promise.all(forms)) {
        expect(ran.stdout + ran.stderr, address).not.toMatch(/hunt/)
        expect(ran.code).toBe(code ?? ran.code)
        expect(ran.code).not.toBe(0)
      }
    }
  })

  it('the command says what to install if the package "pg" is missing', async () => {
    const hide = `export const resolve = (name, context, next) => {
      if (name === 'pg') throw Object.assign(new Error('gone'), { code: 'ERR_MODULE_NOT_FOUND' })
      return next(name, context)
    }`
    const asUrl = (script: string) => `data:text/javascript,${encodeURIComponent(script)}`
    const register = `import { register } from 'node:module'; register(${JSON.stringify(asUrl(hide))})`
    const env = { NODE_OPTIONS: `--import ${asUrl(register)}` }
    const ran = await home.run(['tasks', server.connectionString], { env })
    expect(ran).toMatchObject({ code: EXITS.usage.code, stdout: '' })
    expect(ran.stderr).toBe('rondo: The PostgreSQL store needs the package "pg": run npm install pg\n')
  })
})
