/** `io.modelcontextprotocol/relatedTaskIds`: advice of a client, which reaches the handler only if the tasks are the caller's own. */

import { createServer, type Server, type TaskOptions } from 'rondo'
import { expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { send, settled } from '../support/task-client.ts'

const KEY = 'io.modelcontextprotocol/relatedTaskIds'

function start(tasks: TaskOptions = { related: true }): Server {
  const server = createServer({
    name: 'related',
    version: '1',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    store: createMemoryStore(),
    tasks,
    authenticate: ({ headers }) => ({ subject: headers('x-user') ?? 'ada' }),
  })
  onTestFinished(() => server.close())
  server.tool('work', { task: 'always' }, () => 'done')
  server.tool('names', {}, (_args, ctx) => ctx.relatedTaskIds.join(' '))
  server.tool('asks', { task: 'always' }, async (_args, ctx) => {
    await ctx.ask('q', { message: 'Q?', schema: z.object({ a: z.string() }) })
    return ctx.relatedTaskIds.join(' ')
  })
  return server
}

const textOf = (result: unknown): unknown => (result as { content: { text: string }[] }).content[0]?.text

async function names(server: Server, related: unknown, user = 'ada', tool = 'names'): Promise<unknown> {
  const headers = { 'x-user': user }
  const { result } = await send(server, 'tools/call', { name: tool }, { headers, meta: { [KEY]: related } })
  return result && textOf(result)
}

it('E6 the handler gets the related tasks of the caller, and no others', async () => {
  const server = start()
  const taskId = String((await send(server, 'tools/call', { name: 'work' })).result?.taskId)
  expect(await names(server, [taskId, 'made-up', taskId, 'A'.repeat(22)])).toBe(taskId)
  expect(await names(server, [taskId], 'bob')).toBe('')
})

it.each([['text'], [7], [{}], [[1, null, {}]], [undefined], [[]]])(
  'a server ignores %o: related tasks are advice',
  async (related) => {
    expect(await names(start(), related)).toBe('')
  },
)

it('a server reads 16 related ids at most', async () => {
  const server = start()
  const taskId = String((await send(server, 'tools/call', { name: 'work' })).result?.taskId)
  const many = Array.from({ length: 16 }, (_, i) => `${i}`.padStart(22, 'x'))
  expect(await names(server, [...many, taskId])).toBe('')
  expect(await names(server, [...many.slice(1), taskId])).toBe(taskId)
})

it('the handler gets nothing without the option, not even the ids as they came', async () => {
  const server = start({})
  const taskId = String((await send(server, 'tools/call', { name: 'work' })).result?.taskId)
  expect(await names(server, [taskId])).toBe('')
})

it('the related tasks stay with the task that the call becomes', async () => {
  const server = start()
  const related = String((await send(server, 'tools/call', { name: 'work' })).result?.taskId)
  const { result } = await send(server, 'tools/call', { name: 'asks' }, { meta: { [KEY]: [related] } })
  const taskId = String(result?.taskId)
  await settled(server, taskId)
  const inputResponses = { q: { action: 'accept', content: { a: 'x' } } }
  await send(server, 'tasks/update', { taskId, inputResponses })
  expect(textOf((await settled(server, taskId)).result)).toBe(related)
})

it('E6 R6 the handler does not get a task that the token does not allow, and naming it confirms nothing', async () => {
  const effects: string[] = []
  const server = createServer({
    name: 'related',
    version: '1',
    log: 'off',
    dev: true,
    store: createMemoryStore(),
    tasks: { related: true },
    authenticate: ({ headers }) => ({ subject: 'ada', scopes: (headers('x-scopes') ?? '').split(' ') }),
  })
  onTestFinished(() => server.close())
  server.tool('names', {}, (_args, ctx) => ctx.relatedTaskIds.join(' '))
  server.tool('pay', { task: 'always', scopes: ['pay'] }, (_args, ctx) =>
    ctx.effect('pay', () => {
      effects.push('paid')
      return 'paid'
    }),
  )
  const call = (name: string, scopes: string, meta = {}) =>
    send(server, 'tools/call', { name }, { headers: { 'x-scopes': scopes }, meta })
  const taskId = String((await call('pay', 'pay')).result?.taskId)
  for (let i = 0; i < 3; i++)
    expect(textOf((await call('names', 'read', { [KEY]: [taskId] })).result)).toBe('')
  // The effect waits until somebody who may see the task has named it.
  expect(effects).toEqual([])
  expect(textOf((await call('names', 'read pay', { [KEY]: [taskId] })).result)).toBe(taskId)
  await expect.poll(() => effects).toEqual(['paid'])
})
