/**
 * A handler that sets labels has the result and the effect keys that it has without them, under every carrier (R10), and a task is
 * found by them: by an operator with the keys, and by nobody else (M5).
 */

import { createServer, generateKey, parseKeys, type Server, type ServerOptions } from 'rondo'
import { type ConnectOptions, connect, type FlowOptions } from 'rondo/client'
import type { Store } from 'rondo/store'
import { createBench } from 'rondo/testing'
import { afterEach, describe, expect, it } from 'vitest'
import { labelTags } from '../../packages/rondo/src/carry/task/label.ts'
import { openTask } from '../../packages/rondo/src/carry/task/operate.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { openSqlite } from '../../packages/rondo/src/store/sqlite/database.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import { send, settled } from '../support/task-client.ts'

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

const keys = generateKey('old')
const randomId = () => 'the-same-in-every-carrier'

function serve(store: Store, ran: string[], labels: boolean, options: Partial<ServerOptions> = {}): Server {
  const server = createServer({ name: 'orders', version: '1', keys, log: 'off', store, ...options })
  server.tool('ship', { task: 'auto', taskPollMs: 20 }, async (_args, ctx) => {
    if (labels) ctx.label({ order: '4711', state: 'new' })
    await ctx.effect('reserve', ({ key }) => void ran.push(`reserve ${key}`))
    if (labels) ctx.label({ state: 'reserved' })
    if (!(await ctx.confirm('sure', 'Ship?'))) return 'kept'
    if (labels) ctx.label({ state: 'shipped' })
    await ctx.effect('ship', ({ key }) => void ran.push(`ship ${key}`))
    return 'shipped'
  })
  closing.push(() => server.close())
  return server
}

const find = (store: Store, name: string, value: string, with_ = keys) =>
  store.tasks.list({ labels: [labelTags(parseKeys(with_), name, value)] })

async function labelsIn(store: Store, id: string): Promise<unknown> {
  const stored = await store.operator?.read(id)
  const opened = stored && openTask(parseKeys(keys), stored)
  return opened && 'labels' in opened ? Object.fromEntries(opened.labels ?? []) : opened
}

const answers: ConnectOptions['answers'] = {
  elicitation: () => ({ action: 'accept', content: { confirm: true } }),
}
const pushes = { turns: false } as const
const asTask = { taskTtlMs: 60_000 }

const WAYS: [string, boolean, ConnectOptions, Partial<ServerOptions>, FlowOptions][] = [
  ['a token', false, { tasks: false }, {}, {}],
  ['a task', true, { mode: '2026-07-28' }, {}, {}],
  ['push', false, { mode: '2025-11-25' }, pushes, {}],
  ['push over 2025-06-18', false, { mode: '2025-06-18' }, pushes, {}],
  ['turns', false, { mode: '2025-11-25' }, {}, {}],
  ['a token of the draft', false, { mode: 'DRAFT-2026-v1' }, {}, {}],
  ['a task of the draft', true, { mode: 'DRAFT-2026-v1' }, {}, asTask],
  ['a task of 2025-11-25', true, { mode: '2025-11-25' }, pushes, asTask],
]

it.each(WAYS)(
  'M5 R10 labels change neither result nor keys under %s, and find the task if there is one',
  async (_name, isTask, client, options, flow) => {
    const ship = async (labels: boolean, how: ConnectOptions, given: Partial<ServerOptions>, call = {}) => {
      const ran: string[] = []
      const store = createMemoryStore()
      const server = serve(store, ran, labels, { ...given, randomId })
      const { url } = await server.listen({ port: 0, signals: false })
      const connected = await connect(url, { answers, ...how })
      closing.push(() => connected.close())
      const result = await connected.callTool('ship', {}, call)
      expect(result).toMatchObject({ content: [{ text: 'shipped' }] })
      expect(JSON.stringify(result)).not.toContain('4711')
      return { ran, store }
    }
    const reference = await ship(false, { tasks: false }, {})
    const labelled = await ship(true, client, options, flow)
    expect(labelled.ran).toEqual(reference.ran)
    const found = await find(labelled.store, 'order', '4711')
    expect(found).toHaveLength(isTask ? 1 : 0)
    for (const { id, status } of found) {
      expect(status).toBe('completed')
      expect(await labelsIn(labelled.store, id)).toEqual({ order: '4711', state: 'shipped' })
      expect(await find(labelled.store, 'state', 'new')).toEqual([])
    }
  },
)

/** All that is in a SQLite file, table by table. */
function dump(file: string): string {
  const connection = openSqlite(file)
  const tables = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").all()
  const rows = tables.map(({ name }) => [name, connection.prepare(`SELECT * FROM "${String(name)}"`).all()])
  connection.close()
  const text = JSON.stringify(rows, (_key, value) => (typeof value === 'bigint' ? String(value) : value))
  const decoded = (text.match(/[A-Za-z0-9+/_-]{16,}/g) ?? []).map((run) =>
    Buffer.from(run, 'base64url').toString('latin1'),
  )
  return [text, ...decoded].join('\n')
}

describe('the labels of a task', () => {
  const begin = async (server: Server) =>
    String((await send(server, 'tools/call', { name: 'ship', arguments: {} })).result?.taskId)
  /** Without an effect before its question, the task waits for the question as soon as it has run. */
  const asking = (
    store: Store,
    label: (ctx: { label(given: object): void }) => void,
    options = {},
  ): Server => {
    const server = createServer({ name: 'orders', version: '1', keys, log: 'off', store, ...options })
    server.tool('ship', { task: 'always' }, async (_args, ctx) => {
      label(ctx as never)
      return `sure: ${await ctx.confirm('sure', 'Ship?')}`
    })
    closing.push(() => server.close())
    return server
  }

  it('M5 are in no row of the database and in no reply, and a wrong name, value or key finds nothing', async () => {
    const database = await createSqliteDatabase()
    closing.push(() => database.close())
    const store = database.open()
    const server = asking(store, (ctx) => ctx.label({ 'canary-name': 'canary-value' }))
    const id = await begin(server)
    const task = await settled(server, id)
    expect(JSON.stringify(task)).not.toContain('canary')
    expect(await find(store, 'canary-name', 'canary-value')).toMatchObject([{ id }])
    expect(await find(store, 'canary-name', 'canary')).toEqual([])
    expect(await find(store, 'canary', '-namecanary-value')).toEqual([])
    expect(await find(store, 'canary-name', 'canary-value', generateKey('old'))).toEqual([])
    expect(JSON.stringify(await store.tasks.list({}))).not.toContain('canary')
    expect(dump(database.file)).toContain(id)
    expect(dump(database.file)).not.toContain('canary')
    // Control: the same search finds a label that was not sealed.
    const [lease] = await claimAnswered(store, server, id)
    await store.operator?.label(lease.fence, 'canary', ['tag'])
    expect(dump(database.file)).toContain('canary')
  })

  const claimAnswered = async (store: Store, server: Server, id: string) => {
    await server.close()
    const { owner } = (await store.tasks.list({ id }))[0] ?? { owner: { tenant: '', principal: '' } }
    const { lease } = await store.tasks.deliver(id, owner, new Map([['sure', 'sealed']]), {
      worker: 'w',
      leaseMs: 10_000,
    })
    if (!lease) throw new Error('The task was not claimed')
    return [lease] as const
  }

  it('M5 are found after the keys were rotated, and new ones have the tag of the new key', async () => {
    const store = createMemoryStore()
    const old = asking(store, (ctx) => ctx.label({ order: '4711' }))
    const id = await begin(old)
    await settled(old, id)
    await old.close()
    const both = `${generateKey('new')},${keys}`
    const server = asking(store, (ctx) => ctx.label({ order: '4711' }), { keys: both })
    expect(await find(store, 'order', '4711', both)).toMatchObject([{ id }])
    const second = await begin(server)
    await settled(server, second)
    const found = (await find(store, 'order', '4711', both)).map((task) => task.id)
    expect(new Set(found)).toEqual(new Set([id, second]))
    expect(await find(store, 'order', '4711', keys)).toMatchObject([{ id }])
  })

  it('M5 cost one write, however often the task is replayed', async () => {
    const store = createMemoryStore()
    let writes = 0
    const { operator } = store
    if (!operator) throw new Error('no operator')
    const counting: Store = {
      ...store,
      operator: {
        ...operator,
        label(...given) {
          writes += 1
          return operator.label(...given)
        },
      },
    }
    const server = asking(counting, (ctx) => {
      ctx.label({ order: '4711' })
      ctx.label({ customer: 'ada' })
    })
    const id = await begin(server)
    await settled(server, id)
    const before = writes
    expect(before).toBeGreaterThan(0)
    expect(before).toBeLessThanOrEqual(2)
    await send(server, 'tasks/update', {
      taskId: id,
      inputResponses: { sure: { action: 'accept', content: { confirm: true } } },
    })
    for (let i = 0; i < 2_000 && (await settled(server, id)).status !== 'completed'; i++)
      await new Promise((resolve) => setTimeout(resolve, 2))
    expect((await settled(server, id)).status).toBe('completed')
    expect(writes).toBe(before)
    expect(await labelsIn(store, id)).toEqual({ order: '4711', customer: 'ada' })
  })

  it('M5 are shown by rondo/testing, and only of a task', async () => {
    const bench = createBench((options) => {
      const server = createServer({ name: 'orders', version: '1', ...options })
      server.tool('ship', { task: 'auto' }, async (_args, ctx) => {
        ctx.label({ order: '4711' })
        return `sure: ${await ctx.confirm('sure', 'Ship?')}`
      })
      return server
    })
    const task = bench.task('ship')
    expect(await task.labels()).toEqual({})
    await task.next()
    expect(await task.labels()).toEqual({ order: '4711' })
    expect(await task.run({ sure: { confirm: true } })).toMatchObject({ text: 'sure: true' })
    expect(await task.labels()).toEqual({ order: '4711' })
    expect(await bench.tool('ship').run({ sure: { confirm: true } })).toMatchObject({ text: 'sure: true' })
  })

  it.each([
    ['in rounds', { tasks: false }],
    ['in a task', { mode: '2026-07-28' }],
  ] as const)(
    'M5 are refused with a sentence %s if the store has no part for operators',
    async (_name, how) => {
      const told: string[] = []
      const { operator: _, ...store } = createMemoryStore()
      const server = createServer({
        name: 'orders',
        version: '1',
        keys,
        store,
        log: (event) => 'error' in event && told.push(String(event.error)),
      })
      closing.push(() => server.close())
      server.tool('ship', { task: 'auto', taskPollMs: 20 }, (_args, ctx) => {
        ctx.label({ order: '4711' })
        return 'shipped'
      })
      const { url } = await server.listen({ port: 0, signals: false })
      const client = await connect(url, how)
      closing.push(() => client.close())
      expect(await client.callTool('ship', {})).toMatchObject({ isError: true })
      expect(told.join()).toContain(
        'ctx.label needs a store with a part for operators, such as SQLite or PostgreSQL',
      )
    },
  )
})
