/** Reports of `ctx.status` to the client of a task: each status once, however often the handler runs. */

import { createServer, type LogEvent, type ServerOptions } from 'rondo'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { send, settled } from '../support/task-client.ts'

const QUESTION = { message: 'Go on?', schema: z.object({ value: z.string() }) }

/** Counts the messages that reach the store. They are sealed there, so the handler records what it reported. */
function start() {
  const store = createMemoryStore()
  let told = 0
  const tasks = {
    ...store.tasks,
    status: (...given: Parameters<typeof store.tasks.status>) => {
      told += 1
      return store.tasks.status(...given)
    },
  }
  const server = createServer({
    name: 'report',
    version: '1',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    store: { ...store, tasks },
  })
  let runs = 0
  server.tool('report', { task: 'always' }, async (_args, ctx) => {
    runs += 1
    ctx.status('begins')
    // Held until the owner has named the task, so the handler reaches this point again.
    await ctx.effect('reserve', () => 1)
    for (const month of [1, 2, 3]) {
      ctx.status(`month ${month}`)
      await ctx.step(`month ${month}`, () => month)
    }
    await ctx.ask('q', QUESTION)
    ctx.status('publishes')
    await ctx.step('publish', () => 1)
    return 'done'
  })
  return { server, told: () => told, runs: () => runs }
}

it('a task names the hook that it waits for', async () => {
  const server = createServer({ name: 'shop', version: '1', log: 'off', store: createMemoryStore() })
  onTestFinished(() => server.close())
  server.tool('order', { task: 'always' }, async (_args, ctx) => {
    const payment = await ctx.hook('payment')
    return String(await payment.received())
  })
  const created = await send(server, 'tools/call', { name: 'order', arguments: {} })
  const taskId = String(created.result?.taskId)
  await expect
    .poll(async () => (await send(server, 'tasks/get', { taskId })).result?.statusMessage)
    .toBe('Waiting for the event of the hook "payment"')
})

it('a task reports each status message once, over turns that were held, parked and resumed', async () => {
  const { server, told, runs } = start()
  const created = await send(server, 'tools/call', { name: 'report', arguments: {} })
  const taskId = String(created.result?.taskId)
  const asking = await settled(server, taskId)
  expect(asking).toMatchObject({ status: 'input_required', statusMessage: 'month 3' })
  // The store may have received fewer: of several at once, the last is enough.
  const before = told()
  expect(before).toBeLessThanOrEqual(4)
  await send(server, 'tasks/update', {
    taskId,
    inputResponses: { q: { action: 'accept', content: { value: 'x' } } },
  })
  expect(await settled(server, taskId)).toMatchObject({ status: 'completed' })
  expect(told() - before).toBe(1)
  expect(runs()).toBeGreaterThan(1)
  await server.close()
})

/** A server whose step runs until it is released. */
function startGated(options: Partial<ServerOptions> = {}) {
  let open = (): void => {}
  const gate = new Promise<void>((resolve) => {
    open = resolve
  })
  const server = createServer({
    name: 'report',
    version: '1',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    store: createMemoryStore(),
    ...options,
  })
  onTestFinished(() => {
    // A server that closes waits for its steps.
    open()
    return server.close()
  })
  server.tool('silent', { task: 'always' }, async (_args, ctx) => {
    await ctx.step('count rows', () => gate)
    await ctx.ask('q', QUESTION)
    return 'done'
  })
  server.tool('told', { task: 'always' }, async (_args, ctx) => {
    ctx.status('by the author')
    await ctx.step('count rows', () => gate)
    await ctx.ask('q', QUESTION)
    await ctx.step('again', () => gate)
    return 'done'
  })
  server.tool('breaks', { task: 'always' }, async (_args, ctx) => {
    ctx.status('about to break')
    await Promise.all([ctx.step('twice', () => 1), ctx.step('twice', () => 2)])
  })
  const begin = async (name: string) =>
    String((await send(server, 'tools/call', { name, arguments: {} })).result?.taskId)
  const messageOf = async (taskId: string) =>
    (await send(server, 'tasks/get', { taskId })).result?.statusMessage
  return { server, open, begin, messageOf }
}

const ANSWER = { inputResponses: { q: { action: 'accept', content: { value: 'x' } } } }

describe('the status message without ctx.status', () => {
  it('G7 says from the creation on what happens: started, the step that runs, what it waits for, completed', async () => {
    const { server, open, messageOf } = startGated()
    const created = await send(server, 'tools/call', { name: 'silent', arguments: {} })
    expect(created.result?.statusMessage).toBe('Started')
    const taskId = String(created.result?.taskId)
    await vi.waitFor(async () => expect(await messageOf(taskId)).toBe('Running step "count rows"'), 120_000)
    open()
    expect(await settled(server, taskId)).toMatchObject({ statusMessage: 'Waiting for an answer to "q"' })
    await send(server, 'tasks/update', { taskId, ...ANSWER })
    expect(await settled(server, taskId)).toMatchObject({ status: 'completed', statusMessage: 'Completed' })
  })

  it('G7 says that a task was cancelled, and why one failed, whatever the author said before', async () => {
    const { server, begin, messageOf } = startGated()
    const cancelled = await begin('told')
    await vi.waitFor(async () => expect(await messageOf(cancelled)).toBe('by the author'), 120_000)
    await send(server, 'tasks/cancel', { taskId: cancelled })
    expect(await messageOf(cancelled)).toBe('Cancelled')
    const failed = await settled(server, await begin('breaks'))
    expect(failed.statusMessage).toBe((failed.error as { message: string }).message)
  })
})

it('G7 the message of ctx.status stays while steps run, and through replays', async () => {
  const { server, open, begin } = startGated()
  const taskId = await begin('told')
  open()
  expect(await settled(server, taskId)).toMatchObject({
    status: 'input_required',
    statusMessage: 'by the author',
  })
  await send(server, 'tasks/update', { taskId, ...ANSWER })
  expect(await settled(server, taskId)).toMatchObject({ status: 'completed', statusMessage: 'by the author' })
})

it('I2 the server logs a turn of a task that runs longer than limits.slowHandlerMs, and no other', async () => {
  const slow: Extract<LogEvent, { event: 'slow' }>[] = []
  // The round that created the task may be slow on a busy machine.
  const log = (event: LogEvent) =>
    void (event.event === 'slow' && event.task !== undefined && slow.push(event))
  const { server, open, begin } = startGated({ limits: { slowHandlerMs: 1_000 }, log })
  const taskId = await begin('silent')
  await vi.waitFor(() => expect(slow).toHaveLength(1), 120_000)
  expect(slow[0]).toMatchObject({ task: taskId, turn: expect.any(Number), target: 'silent', round: 1 })
  open()
  await settled(server, taskId)
  await send(server, 'tasks/update', { taskId, ...ANSWER })
  await settled(server, taskId)
  expect(slow).toHaveLength(1)
})
