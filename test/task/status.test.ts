/** What `ctx.status` reports to the client of a task: each status once, however often the handler runs. */

import { createServer } from 'rondo'
import { expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../src/store/memory/store.ts'
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
