/**
 * Tasks that outlive a release: instances of the old one and the new one work on the same store.
 */

import { createServer, type LogEvent, type Server, type ServerOptions } from 'rondo'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import { createTime, until } from '../support/store/store-harness.ts'
import { send, settled } from '../support/task-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const servers: Server[] = []
const MINUTE = 60_000

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

/** A release with these tools, and the number of turns of its worker. */
function release(tools: readonly string[], options: Partial<ServerOptions>) {
  const turns: string[] = []
  const server = createServer({
    name: 'deploy',
    version: '1',
    keys,
    log: 'off',
    ...options,
    tasks: {
      onEvent: (event) => {
        if (event.kind === 'turn') turns.push(event.outcome)
      },
      ...options.tasks,
    },
  })
  for (const tool of tools) server.tool(tool, { task: 'always' }, () => `by ${tool}`)
  servers.push(server)
  return { server, turns }
}

describe('a task whose tool this instance does not have', () => {
  it('E9 waits for an instance that has the tool, however often one without it claims the task', async () => {
    const now = createTime()
    const store = createMemoryStore({ now })
    const old = release(['other'], { store, now })
    const next = release(['fresh'], { store, now, tasks: { concurrency: 0 } })
    const { result } = await send(next.server, 'tools/call', { name: 'fresh' })
    const taskId = String(result?.taskId)
    for (let i = 1; i <= 8; i++) {
      await send(old.server, 'tasks/get', { taskId })
      await until(`turn ${i}`, () => old.turns.length >= i)
      now.pass(MINUTE)
    }
    await old.server.close()
    const [left] = await store.tasks.list({ id: taskId })
    expect(left).toMatchObject({ status: 'working', failures: 0 })
    const { server } = release(['fresh'], { store, now })
    expect(await settled(server, taskId)).toMatchObject({ result: { content: [{ text: 'by fresh' }] } })
  })

  it('fails with a reason if no instance has had the tool for a quarter of an hour', async () => {
    const now = createTime()
    const store = createMemoryStore({ now })
    const gone = release(['removed'], { store, now, tasks: { concurrency: 0 } })
    const { result } = await send(gone.server, 'tools/call', { name: 'removed' })
    const taskId = String(result?.taskId)
    const left = release(['other'], { store, now })
    await send(left.server, 'tasks/get', { taskId })
    await until('a turn', () => left.turns.length > 0)
    now.pass(16 * MINUTE)
    expect(await settled(left.server, taskId)).toMatchObject({
      status: 'failed',
      error: { code: -32602, message: expect.stringContaining('removed') },
    })
  })
})

describe.each(['memory', 'sqlite'])('a task whose key this instance does not have (%s)', (kind) => {
  const other = 'other:YWJjZGVmZ2hpamFiY2RlZmdoaWphYmNkZWZnaGlqYWI='
  const cleaning: (() => Promise<void>)[] = []

  afterEach(async () => {
    // The servers first: they use the store.
    await Promise.all(servers.splice(0).map((server) => server.close()))
    await Promise.all(cleaning.splice(0).map((clean) => clean()))
  })

  async function openStore(now: () => number) {
    if (kind === 'memory') return createMemoryStore({ now })
    const database = await createSqliteDatabase()
    cleaning.push(database.close)
    return database.open(now)
  }

  /** Has the worker of an instance claim the task this often, two minutes apart. */
  async function claims(
    { server, turns }: ReturnType<typeof release>,
    taskId: string,
    times: number,
    now: ReturnType<typeof createTime>,
  ) {
    for (let i = 1; i <= times; i++) {
      await send(server, 'tasks/get', { taskId })
      await until(`turn ${i}`, () => turns.length >= i)
      now.pass(2 * MINUTE)
    }
  }

  it('E9 is left to the others, however often and for however long this one claims it', async () => {
    const now = createTime()
    const store = await openStore(now)
    const mine = release(['work'], { store, now, tasks: { concurrency: 0 } })
    const { result } = await send(mine.server, 'tools/call', { name: 'work' })
    const taskId = String(result?.taskId)
    const logged: LogEvent[] = []
    const foreign = release(['work'], { store, now, keys: other, log: (event) => logged.push(event) })
    await claims(foreign, taskId, 9, now)
    await foreign.server.close()
    expect(new Set(foreign.turns)).toEqual(new Set(['release']))
    const [left] = await store.tasks.list({ id: taskId })
    expect(left).toMatchObject({ status: 'working', failures: 0 })
    expect(logged).toContainEqual(
      expect.objectContaining({
        event: 'warning',
        message: expect.stringContaining('does not open: key. All'),
      }),
    )
    const { server } = release(['work'], { store, now })
    expect(await settled(server, taskId)).toMatchObject({ result: { content: [{ text: 'by work' }] } })
  })

  it('E9 is left to the others if only the answer was sealed with a newer key', async () => {
    const now = createTime()
    const store = await openStore(now)
    const asking = (options: Partial<ServerOptions>) => {
      const made = release([], { store, now, ...options })
      made.server.tool(
        'asks',
        { task: 'always' },
        async (_args, ctx) => `${await ctx.confirm('sure', 'Go on?')}`,
      )
      return made
    }
    const old = asking({})
    const { result } = await send(old.server, 'tools/call', { name: 'asks' })
    const taskId = String(result?.taskId)
    expect(await settled(old.server, taskId)).toMatchObject({ status: 'input_required' })
    const newer = asking({ keys: `${other},${keys}`, tasks: { concurrency: 0 } })
    const inputResponses = { sure: { action: 'accept', content: { confirm: true } } }
    const before = old.turns.length
    await send(newer.server, 'tasks/update', { taskId, inputResponses })
    for (let i = 1; i <= 6; i++) {
      await until(`turn ${i}`, () => old.turns.length >= before + i)
      now.pass(2 * MINUTE)
    }
    await old.server.close()
    expect(new Set(old.turns.slice(before))).toEqual(new Set(['release']))
    expect((await store.tasks.list({ id: taskId }))[0]).toMatchObject({ status: 'working', failures: 0 })
    const { server } = asking({ keys: `${other},${keys}` })
    expect(await settled(server, taskId)).toMatchObject({ result: { content: [{ text: 'true' }] } })
  })

  it('fails as before if the key is known and the state is not the one that was sealed', async () => {
    const now = createTime()
    const store = await openStore(now)
    const mine = release(['work'], { store, now, tasks: { concurrency: 0 } })
    const { result } = await send(mine.server, 'tools/call', { name: 'work' })
    const taskId = String(result?.taskId)
    // A key of the same name with another secret: to this instance, the state looks as if somebody had changed it.
    const foreign = release(['work'], { store, now, keys: keys.replace('MDEy', 'MDEz') })
    await claims(foreign, taskId, 5, now)
    expect(foreign.turns).toEqual(['retry', 'retry', 'retry', 'retry', 'gave-up'])
    expect((await store.tasks.list({ id: taskId }))[0]).toMatchObject({ status: 'failed' })
  })
})
