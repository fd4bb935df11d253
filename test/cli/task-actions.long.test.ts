/** `rondo tasks` acts: what an operator does to the tasks of a server, from another process. Needs the build. */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createServer, generateKey, type Server, type ServerOptions } from 'rondo'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { createPostgresDatabase } from '../support/store/postgres-database.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import { type Database, until } from '../support/store/store-harness.ts'
import { follow, send, settled } from '../support/task-client.ts'
import { useCliHome } from '../support/use-cli.ts'

const home = useCliHome()
const keys = generateKey('k')
const SECRET = 'CANARY'

/** The world outside: how often each step and effect ran, and under which keys. */
interface World {
  readonly ran: string[]
  broken: boolean
}

function describeActions(open: () => Promise<{ database: Database; words: string[] }>): void {
  let database: Database
  let store: string[]
  let world: World
  let servers: Server[]
  let ring: string[]

  const start = (options: Partial<ServerOptions> = {}): Server => {
    const server = createServer({
      name: 'shop',
      version: '1',
      keys,
      log: 'off',
      store: database.open(),
      authenticate: () => ({ subject: 'ada' }),
      ...options,
    })
    server.tool('order', { task: 'always' }, async (_args, ctx) => {
      await ctx.step('look up', () => {
        world.ran.push('look up')
        return SECRET
      })
      await ctx.effect('reserve', ({ key }) => void world.ran.push(`reserve ${key}`))
      await ctx.step('price', () => {
        world.ran.push('price')
        return world.broken ? Number.NaN : 7
      })
      await ctx.effect('pay', ({ key }) => void world.ran.push(`pay ${key}`))
      return 'ordered'
    })
    server.tool(
      'asks',
      { task: 'always' },
      async (_args, ctx) => `sure: ${await ctx.confirm('sure', 'Sure?')}`,
    )
    servers.push(server)
    return server
  }
  const begin = async (server: Server, name: string): Promise<string> =>
    String((await send(server, 'tools/call', { name })).result?.taskId)
  const tasks = (action: string, ...more: string[]) => home.run(['tasks', action, ...store, ...more])
  const json = async (action: string, ...more: string[]) =>
    (await home.json(['tasks', action, ...store, ...more])).value as Record<string, unknown>
  const failNew = async (server: Server): Promise<string> => {
    world.broken = true
    const id = await begin(server, 'order')
    expect(await settled(server, id)).toMatchObject({ status: 'failed' })
    return id
  }

  beforeEach(async () => {
    const opened = await open()
    database = opened.database
    store = opened.words
    world = { ran: [], broken: false }
    servers = []
    await database.open().ready()
    const file = join(home.path, 'ring')
    writeFileSync(file, keys)
    ring = ['--keys', file]
  })
  afterEach(async () => {
    await Promise.all(servers.map((server) => server.close()))
    await database.close()
  })

  it('M4 rondo tasks show opens the journal with the keys, and values only if asked', async () => {
    const id = await failNew(start())
    const plain = await tasks('show', id)
    expect(plain.stdout).toMatch(/^status +failed$/m)
    expect(plain.stdout).toMatch(/^journal kept until +20/m)
    expect(plain.stdout).not.toContain('look up')
    const opened = await tasks('show', id, ...ring)
    expect(opened.stdout).toMatch(/^tool +order$/m)
    expect(opened.stdout).toMatch(/^entry +\{"kind":"step","key":"look up"/m)
    expect(opened.stdout).not.toContain(SECRET)
    expect((await tasks('show', id, ...ring, '--content')).stdout).toContain(SECRET)
    const other = join(home.path, 'other')
    writeFileSync(other, generateKey('other'))
    expect((await tasks('show', id, '--keys', other)).stdout).toMatch(/does not open with these keys/)
  })

  it('M4 rondo tasks retry continues a failed task from its journal, under the same keys', async () => {
    const server = start()
    const id = await failNew(server)
    world.broken = false
    const ran = await tasks('retry', id, '--as', 'ann')
    expect(ran).toMatchObject({ code: 0, stderr: `Task ${id} is due again.\n` })
    const ended = await settled(server, id)
    expect(ended).toMatchObject({ status: 'completed', result: { content: [{ text: 'ordered' }] } })
    expect(world.ran.map((line) => line.split(' ')[0])).toEqual(['look', 'reserve', 'price', 'price', 'pay'])
    expect((await tasks('retry', id)).code).toBe(EXITS.failed.code)
    expect((await json('log')).actions).toMatchObject([{ who: 'ann', action: 'retry', subject: id }])
  })

  it('M4 rondo tasks retry --from starts a new branch with new keys, and only after a confirmation', async () => {
    const server = start()
    const id = await failNew(server)
    world.broken = false
    const unsure = await tasks('retry', id, '--from', 'reserve', ...ring)
    expect(unsure).toMatchObject({ code: EXITS.refused.code })
    expect(unsure.stderr).toMatch(/run again under new keys.*\n.*Pass --yes/)
    expect((await json('show', id)).task).toMatchObject({ status: 'failed' })
    const wrong = await tasks('retry', id, '--from', 'ship', '--yes', ...ring)
    expect(wrong.stderr).toContain('it has recorded look up, reserve')
    expect((await tasks('retry', id, '--from', 'reserve', '--yes')).stderr).toContain('--keys')
    expect((await tasks('retry', id, '--from', 'reserve', '--yes', ...ring)).code).toBe(0)
    expect(await settled(server, id)).toMatchObject({ status: 'completed' })
    const reserved = world.ran.filter((line) => line.startsWith('reserve'))
    expect(reserved).toHaveLength(2)
    expect(new Set(reserved).size).toBe(2)
    expect(world.ran.filter((line) => line === 'look up')).toHaveLength(1)
  })

  it('M4 rondo tasks cancel and fail end an open task, and its owner reads why', async () => {
    const server = start()
    const [cancelled, failed] = [await begin(server, 'asks'), await begin(server, 'asks')]
    for (const id of [cancelled, failed]) await settled(server, id)
    expect((await tasks('cancel', cancelled)).code).toBe(0)
    expect(await tasks('cancel', cancelled)).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('already'),
    })
    expect(await settled(server, cancelled)).toMatchObject({ status: 'cancelled' })
    expect((await tasks('fail', failed, '--message', 'Closed for repairs', ...ring)).code).toBe(0)
    expect(await settled(server, failed)).toMatchObject({
      status: 'failed',
      error: { message: 'Closed for repairs' },
    })
    expect((await tasks('purge', failed)).code).toBe(0)
    expect((await tasks('purge', failed)).code).toBe(EXITS.stored.code)
    expect((await send(server, 'tasks/get', { taskId: failed })).error).toBeDefined()
  })

  it('M4 rondo tasks pause stops the tasks of one tool on every instance, until it continues', async () => {
    const [first, second] = [start(), start()]
    expect((await tasks('pause', 'order')).code).toBe(EXITS.usage.code)
    expect((await tasks('pause', 'order', ...ring)).code).toBe(0)
    expect((await tasks('pause', 'order', ...ring)).stderr).toContain('paused already')
    expect((await tasks('stats')).stdout).toMatch(/^paused +order +its tasks wait/m)
    const ids = [await begin(first, 'order'), await begin(second, 'order')]
    const free = await begin(second, 'asks')
    expect(await follow(first, free, { sure: { confirm: true } })).toMatchObject({ status: 'completed' })
    expect(world.ran).toEqual([])
    expect((await tasks('continue', 'order', ...ring)).code).toBe(0)
    for (const id of ids) expect(await settled(first, id)).toMatchObject({ status: 'completed' })
  })

  it('M4 rondo tasks list finds tasks by tool, owner, status and age; by tool in the clear only if the server says so', async () => {
    const server = start()
    const id = await begin(server, 'asks')
    await settled(server, id)
    const found = async (...more: string[]) =>
      ((await json('list', ...more)).tasks as { id: string }[]).map((task) => task.id)
    expect(await found('--tool', 'asks')).toEqual([])
    expect(await found('--tool', 'asks', ...ring)).toEqual([id])
    expect(await found('--tool', 'order', ...ring)).toEqual([])
    const named = await begin(start({ tasks: { listTools: true } }), 'asks')
    await until('the question', async () => (await found('--status', 'input_required')).length === 2)
    expect(await found('--tool', 'asks')).toEqual([named])
    const { owner } = (await json('show', id)).task as { owner: { tenant: string; principal: string } }
    expect(await found('--owner', `${owner.tenant}/${owner.principal}`)).toEqual([named, id])
    expect(await found('--owner', `other/${owner.principal}`)).toEqual([])
    expect(await found('--older-than', '1h')).toEqual([])
    expect((await found('--older-than', '0s')).length).toBe(2)
  })

  it.each([
    [['cancel'], 'Name the id of a task'],
    [['pause'], 'Name a tool'],
    [['show'], 'Name the id of a task'],
    [['list', '--older-than', 'long'], 'takes an age'],
    [['list', '--owner', 'ada'], 'TENANT/TAG'],
  ])('rondo tasks %j is refused with a sentence', async ([action = '', ...more], message) => {
    await database.open().ready()
    const ran = await tasks(action, ...more)
    expect(ran.code).toBe(EXITS.usage.code)
    expect(ran.stderr).toContain(message)
  })
}

describe('the tasks of a server with SQLite', () => {
  describeActions(async () => {
    const database = await createSqliteDatabase()
    return { database, words: [database.file] }
  })

  it('are not acted on in Restate, and the sentence says so', async () => {
    const ran = await home.run(['tasks', 'cancel', 'restate+http://127.0.0.1:9', 'x'])
    expect(ran).toMatchObject({ code: EXITS.usage.code })
    expect(ran.stderr).toContain('Restate has no part for operators')
  })
})

describePostgres('the tasks of a server with PostgreSQL', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())

  describeActions(async () => {
    const database = createPostgresDatabase(server)
    const schema = database.address?.kind === 'postgres' ? database.address.schema : ''
    return { database, words: [server.connectionString, '--schema', schema] }
  })
})
