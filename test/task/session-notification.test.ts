/** `notifications/tasks/status` in sessions of 2025-11-25 and of the draft: for the session that created a task or asked for it. */

import { createServer } from 'rondo'
import { describe, expect, it, vi } from 'vitest'
import { connect } from '../../packages/rondo/src/client/connect.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { connectOlder, type OlderClient, type OpenStream } from '../support/older-client.ts'
import {
  create,
  keys,
  openings,
  resultOf,
  servers,
  start,
  type Task,
  until,
} from '../support/session-tasks.ts'

const VERSIONS = ['2025-11-25', 'DRAFT-2026-v1'] as const

/** The next status of the task that the stream reports. */
async function nextStatus(stream: OpenStream): Promise<Task> {
  for (let message = await stream.next(); message; message = await stream.next()) {
    if (message.method === 'notifications/tasks/status') return message.params as Task
  }
  throw new Error('The stream has ended')
}

async function untilStatus(stream: OpenStream, status: string): Promise<Task> {
  for (;;) {
    const task = await nextStatus(stream)
    if (task.status === status) return task
  }
}

async function answer(client: OlderClient, taskId: string, version: string): Promise<void> {
  const content = { name: 'Ada' }
  if (version === '2025-11-25') return void (await client.call('tasks/result', { taskId }))
  await client.call('tasks/input_response', {
    inputResponses: { name: { action: 'accept', content } },
    _meta: { 'io.modelcontextprotocol/related-task': { taskId } },
  })
}

describe.each(VERSIONS)('a session of %s', (version) => {
  it('G7 is notified of the tasks that it created, in the form of tasks/get, until they have ended', async () => {
    const connectAs = await start()
    const given = { version, answer: () => ({ action: 'accept', content: { name: 'Ada' } }) }
    const client = await connectAs('ada', given)
    const stream = await client.get()
    const { taskId } = await create(client)
    const asks = await untilStatus(stream, 'input_required')
    const polled = resultOf(await client.call('tasks/get', { taskId }))
    expect({ ...polled, resultType: undefined }).toMatchObject({ ...asks })
    expect(asks).toMatchObject({ taskId, statusMessage: 'Waiting for an answer to "name"' })
    await answer(client, taskId, version)
    expect(await untilStatus(stream, 'completed')).toMatchObject({ taskId, statusMessage: 'Completed' })
    await stream.drop()
  })

  it('G7 is notified of a task of another session once it has asked for it, and not before', async () => {
    const connectAs = await start()
    const [one, other] = [await connectAs('ada', { version }), await connectAs('ada', { version })]
    const stream = await other.get()
    const gated = await create(one, 'gated')
    const watched = await create(one, 'waits')
    await other.call('tasks/get', { taskId: watched.taskId })
    await vi.waitUntil(() => openings.length > 0, 120_000)
    for (const open of openings.splice(0)) open()
    await until(one, gated.taskId, 'completed')
    await one.call('tasks/cancel', { taskId: watched.taskId })
    // The first that arrives is of the task it asked for, though the other one changed before.
    expect(await untilStatus(stream, 'cancelled')).toMatchObject({ taskId: watched.taskId })
    expect(other.received.some(({ params }) => (params as Task | undefined)?.taskId === gated.taskId)).toBe(
      false,
    )
    await stream.drop()
  })
})

it('G7 R6 a notification does not count as a request of the owner: the effect still waits', async () => {
  const store = createMemoryStore()
  let confirmed = 0
  const tasks = {
    ...store.tasks,
    confirm(...given: Parameters<typeof store.tasks.confirm>) {
      confirmed += 1
      return store.tasks.confirm(...given)
    },
  }
  const server = createServer({ name: 'pay', version: '1', keys, log: 'off', store: { ...store, tasks } })
  servers.push(server)
  let paid = 0
  server.tool('pay', { task: 'auto' }, async (_args, ctx) => {
    ctx.status('about to pay')
    await ctx.effect('pay', () => void paid++)
  })
  const { url } = await server.listen({ port: 0, signals: false })
  const client = await connectOlder(url, {})
  const stream = await client.get()
  const { taskId } = await create(client, 'pay')
  expect(await nextStatus(stream)).toMatchObject({ taskId, statusMessage: 'about to pay' })
  expect([confirmed, paid]).toEqual([0, 0])
  await until(client, taskId, 'completed')
  expect([confirmed, paid]).toEqual([1, 1])
  await stream.drop()
})

it('G7 nobody is watched for after the session has ended', async () => {
  const store = createMemoryStore()
  let listeners = 0
  const tasks = {
    ...store.tasks,
    onHint(listener: Parameters<typeof store.tasks.onHint>[0]) {
      listeners += 1
      const stop = store.tasks.onHint(listener)
      return () => {
        listeners -= 1
        stop()
      }
    },
  }
  const connectAs = await start({ store: { ...store, tasks }, tasks: { concurrency: 0 } })
  const client = await connectAs('ada')
  const { taskId } = await create(client, 'waits')
  await client.call('tasks/get', { taskId })
  expect(listeners).toBeGreaterThan(0)
  await client.remove()
  expect(listeners).toBe(0)
})

describe("Rondo's client", () => {
  it('G7 reports tasks of a session to a subscription', async () => {
    const server = createServer({ name: 'tasks', version: '1', keys, log: 'off', store: createMemoryStore() })
    servers.push(server)
    let open = (): void => {}
    const gate = new Promise<void>((resolve) => {
      open = resolve
    })
    server.tool('gated', { task: 'always' }, (_args, ctx) => ctx.step('gate', () => gate))
    const { url } = await server.listen({ port: 0, signals: false })
    await using client = await connect(url, { mode: '2025-11-25' })
    const started = await client.start({ method: 'tools/call', name: 'gated', arguments: {} })
    const taskId = started.status === 'task' ? (started.pending.task?.taskId ?? '') : ''
    const subscription = client.subscribe({ taskIds: [taskId] })
    expect(await subscription.filter).toEqual({ taskIds: [taskId] })
    open()
    for await (const change of subscription) {
      if (change.kind === 'task' && change.task.status === 'completed') break
    }
  })

  it.each(VERSIONS)('lists the tasks of its user in %s, page by page', async (mode) => {
    const server = createServer({
      name: 'tasks',
      version: '1',
      keys,
      log: 'off',
      store: createMemoryStore(),
      pageSize: 2,
      authenticate: ({ headers }) => ({ subject: headers('x-user') ?? '' }),
    })
    servers.push(server)
    server.tool('once', { task: 'always' }, () => 'done')
    const { url } = await server.listen({ port: 0, signals: false })
    await using ada = await connect(url, { mode, headers: { 'x-user': 'ada' } })
    await using bob = await connect(url, { mode, headers: { 'x-user': 'bob' } })
    for (let i = 0; i < 3; i++) await ada.callTool('once')
    const tasks = await ada.listTasks()
    expect(tasks.map(({ status }) => status)).toEqual(['completed', 'completed', 'completed'])
    expect(new Set(tasks.map(({ taskId }) => taskId)).size).toBe(3)
    expect(await bob.listTasks()).toEqual([])
  })

  it('says where there is no list: for anonymous callers, and at 2026-07-28', async () => {
    const server = createServer({ name: 'tasks', version: '1', keys, log: 'off', store: createMemoryStore() })
    servers.push(server)
    const { url } = await server.listen({ port: 0, signals: false })
    for (const mode of ['2025-11-25', '2026-07-28'] as const) {
      await using client = await connect(url, { mode })
      await expect(client.listTasks()).rejects.toMatchObject({ code: 'PEER_REVISION' })
    }
  })
})
