/** `tasks/list` of 2025-11-25: callers see their own tasks, and no others. */

import { createServer } from 'rondo'
import { describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { connectOlder, type OlderClient } from '../support/older-client.ts'

import {
  capabilitiesOf,
  create,
  errorOf,
  keys,
  resultOf,
  servers,
  start,
  type Task,
  until,
} from '../support/session-tasks.ts'

async function list(client: OlderClient, cursor?: string) {
  const result = resultOf(await client.call('tasks/list', cursor === undefined ? {} : { cursor }))
  return result as unknown as { tasks: Task[]; nextCursor?: string }
}

describe('tasks/list', () => {
  it('is declared to authenticated callers only', async () => {
    const connect = await start()
    const requests = { tools: { call: {} } }
    expect(capabilitiesOf(await connect('ada')).tasks).toEqual({ list: {}, cancel: {}, requests })
    const anonymous = await connect()
    expect(capabilitiesOf(anonymous).tasks).toEqual({ cancel: {}, requests })
    expect(errorOf(await anonymous.call('tasks/list'))?.code).toBe(-32601)
    const earlier = await connect('ada', { version: '2025-06-18' })
    expect(capabilitiesOf(earlier).tasks).toBeUndefined()
    expect(errorOf(await earlier.call('tasks/list'))?.code).toBe(-32601)
  })

  it('is not declared without a store', async () => {
    const server = createServer({ name: 'plain', version: '1', keys, log: 'off' })
    server.tool('never', {}, () => 'at once')
    servers.push(server)
    const { url } = await server.listen({ port: 0, signals: false, graceMs: 200 })
    const client = await connectOlder(url)
    expect(capabilitiesOf(client).tasks).toBeUndefined()
    expect(resultOf(await client.call('tools/call', { name: 'never', task: {} }))).toMatchObject({
      content: [{ text: 'at once' }],
    })
  })

  it('E6 shows no task that the token of the request does not allow', async () => {
    const server = createServer({
      name: 'scoped',
      version: '1',
      keys,
      log: 'off',
      store: createMemoryStore(),
      authenticate: ({ headers }) => ({ subject: 'ada', scopes: (headers('x-scopes') ?? '').split(' ') }),
    })
    server.tool('only', { task: 'always' }, () => 'for everybody')
    server.tool('pay', { task: 'always', scopes: ['pay'] }, () => 'for some')
    servers.push(server)
    const { url } = await server.listen({ port: 0, signals: false, graceMs: 200 })
    const connect = (scopes: string) => connectOlder(url, { headers: { 'x-scopes': scopes } })
    const payer = await connect('read pay')
    const [open, paid] = [await create(payer, 'only'), await create(payer, 'pay')]
    const ids = async (client: OlderClient) => (await list(client)).tasks.map(({ taskId }) => taskId)
    expect((await ids(payer)).sort()).toEqual([paid.taskId, open.taskId].sort())
    expect(await ids(await connect('read'))).toEqual([open.taskId])
  })

  it('E6 shows the caller its own tasks from any session, newest first, ended ones too', async () => {
    const connect = await start()
    const ada = await connect('ada')
    const bob = await connect('bob')
    const first = await create(ada, 'waits')
    const second = await create(ada, 'only')
    await create(bob)
    await until(ada, second.taskId, 'completed')
    await ada.call('tasks/cancel', { taskId: first.taskId })
    const elsewhere = await connect('ada')
    const { tasks, nextCursor } = await list(elsewhere)
    expect(nextCursor).toBeUndefined()
    expect(new Set(tasks.map(({ taskId, status }) => `${taskId} ${status}`))).toEqual(
      new Set([`${second.taskId} completed`, `${first.taskId} cancelled`]),
    )
    expect(tasks[0]).toEqual(resultOf(await ada.call('tasks/get', { taskId: tasks[0]?.taskId })))
    expect((await list(bob)).tasks).toHaveLength(1)
  })

  it('shows no task that has expired', async () => {
    let now = 1_800_000_000_000
    const store = createMemoryStore({ now: () => now })
    const connect = await start({ store, now: () => now })
    const ada = await connect('ada')
    await create(ada, 'only')
    expect((await list(ada)).tasks).toHaveLength(1)
    now += 60_000
    expect((await list(ada)).tasks).toEqual([])
  })

  it('T17 accepts a cursor only from the caller that received it', async () => {
    const connect = await start({ pageSize: 2 })
    const ada = await connect('ada')
    const bob = await connect('bob')
    const mine = new Set<string>()
    for (let i = 0; i < 5; i++) mine.add((await create(ada)).taskId)
    const seen: string[] = []
    let cursor: string | undefined
    let pages = 0
    do {
      const page = await list(ada, cursor)
      seen.push(...page.tasks.map(({ taskId }) => taskId))
      cursor = page.nextCursor
      pages += 1
      if (cursor === undefined) break
      const flipped = `${cursor.slice(0, -1)}${cursor.endsWith('A') ? 'B' : 'A'}`
      for (const [client, wrong] of [
        [bob, cursor],
        [ada, flipped],
      ] as const) {
        expect(errorOf(await client.call('tasks/list', { cursor: wrong }))?.code).toBe(-32602)
      }
    } while (pages < 10)
    expect(pages).toBe(3)
    expect(seen).toHaveLength(5)
    expect(new Set(seen)).toEqual(mine)
    for (const wrong of ['', 'p1', 7]) {
      expect(errorOf(await ada.call('tasks/list', { cursor: wrong }))?.code).toBe(-32602)
    }
  })
})
