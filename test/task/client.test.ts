/** Our client follows tasks of our server. */

import { createServer, type Server, type ServerOptions } from 'rondo'
import { type ConnectOptions, connect, parsePending } from 'rondo/client'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { abortTask } from '../support/abort-task.ts'
import { send, settled } from '../support/task-client.ts'

const servers: Server[] = []
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

const text = { type: 'object', properties: { value: { type: 'string' } }, required: ['value'] } as const
const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='

function start(options: Partial<ServerOptions> = {}): Server & { readonly methods: string[] } {
  const store = createMemoryStore()
  const server = createServer({ name: 's', version: '1', keys, log: 'off', store, ...options })
  server.tool('greet', { task: 'always', taskPollMs: 50 }, async (_args, ctx) => {
    ctx.status('thinking')
    const { value: first } = await ctx.ask('first', { message: 'First?', schema: text })
    const { value: last } = await ctx.ask('last', { message: 'Last?', schema: text })
    return `Hello ${first} ${last}`
  })
  server.tool('later', { taskPollMs: 50 }, async (_args, ctx) => {
    const { value } = await ctx.ask('first', { message: 'First?', schema: text })
    await ctx.background()
    return `Later ${value}`
  })
  server.tool('waits', { task: 'always', taskPollMs: 50 }, (_args, ctx) =>
    ctx.step(
      'long',
      ({ signal }) =>
        new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
    ),
  )
  servers.push(server)
  const methods: string[] = []
  return {
    ...server,
    methods,
    fetch(request) {
      methods.push(request.headers.get('mcp-method') ?? '')
      return server.fetch(request)
    },
  }
}

const answering: ConnectOptions = {
  answers: {
    elicitation: {
      form: (_params, { key }) => ({ action: 'accept', content: { value: key.toUpperCase() } }),
    },
  },
}

describe.each(['listening', 'polling'] as const)('a client that follows by %s', (how) => {
  const tasks = how === 'polling' ? 'poll' : true

  it('C6 E3 E4 completes a task with two questions', async () => {
    const server = start()
    const client = await connect(server, { ...answering, tasks })
    const told: string[] = []
    const result = await client.callTool('greet', {}, { onTask: ({ status }) => void told.push(status) })
    expect(result).toMatchObject({ content: [{ text: 'Hello FIRST LAST' }] })
    expect(told.filter((status) => status === 'input_required').length).toBeGreaterThanOrEqual(2)
    expect(told.at(-1)).toBe('completed')
    expect(server.methods.includes('subscriptions/listen')).toBe(how === 'listening')
    await client.close()
  })

  it('D9 C6 answers rounds first and follows the task that they become', async () => {
    const client = await connect(start(), { ...answering, tasks })
    expect(await client.callTool('later')).toMatchObject({ content: [{ text: 'Later FIRST' }] })
    await client.close()
  })

  it('C12 cancels the task on the server when the caller aborts', async () => {
    const client = await connect(start(), { tasks })
    const taskId = await abortTask(client)
    expect(await client.task(taskId).get()).toMatchObject({ status: 'cancelled' })
    await client.close()
  })
})

describe('a task of our client', () => {
  it('C11 E9 is started at one instance and finished at another', async () => {
    const store = createMemoryStore()
    const first = await connect(start({ store }))
    const begun = await first.start({ method: 'tools/call', name: 'greet' })
    if (begun.status !== 'task') throw new Error(begun.status)
    const asked = await first.resume(begun.pending)
    if (asked.status !== 'input_required') throw new Error(asked.status)
    const text = JSON.stringify(asked.pending)
    await first.close()

    const second = await connect(start({ store }), answering)
    expect(await second.finish(parsePending(text))).toMatchObject({ content: [{ text: 'Hello FIRST LAST' }] })
    await second.close()
  })

  it('E3 can be read and answered by a client that knows only its id', async () => {
    const client = await connect(start())
    const begun = await client.start({ method: 'tools/call', name: 'greet' })
    const task = client.task((begun.status === 'task' && begun.pending.task?.taskId) || '')
    for (const key of ['first', 'last']) {
      await expect.poll(async () => Object.keys((await task.get()).inputRequests ?? {})).toEqual([key])
      await task.answer({ [key]: { action: 'accept', content: { value: key } } })
    }
    await expect.poll(() => task.get()).toMatchObject({ result: { content: [{ text: 'Hello first last' }] } })
    await client.close()
  })

  it('R3 accepts an unsolicited response for a plain question, and never for a confirmation', async () => {
    const server = start()
    server.tool('both', { task: 'always' }, async (_args, ctx) => {
      const { value } = await ctx.ask('first', { message: 'First?', schema: text })
      return (await ctx.confirm('sure', 'Sure?')) ? `yes ${value}` : `no ${value}`
    })
    const inputResponses = {
      first: { action: 'accept', content: { value: 'x' } },
      sure: { action: 'accept', content: { confirm: true } },
    }
    const { result } = await send(server, 'tools/call', { name: 'both', inputResponses })
    const { inputRequests } = await settled(server, String(result?.taskId))
    expect(Object.keys(inputRequests ?? {})).toEqual(['sure'])
  })

  it('E1 is not created for a client that does not declare tasks', async () => {
    const client = await connect(start(), { ...answering, tasks: false })
    await expect(client.callTool('greet')).rejects.toMatchObject({ peer: { code: -32021 } })
    expect(await client.callTool('later')).toMatchObject({ content: [{ text: 'Later FIRST' }] })
    await client.close()
  })

  it('E4 can be subscribed to', async () => {
    const client = await connect(start())
    const begun = await client.start({ method: 'tools/call', name: 'greet' })
    const taskId = begun.status === 'task' ? begun.pending.task?.taskId : undefined
    if (taskId === undefined) throw new Error('no task')
    const seen: string[] = []
    for await (const change of client.subscribe({ taskIds: [taskId] })) {
      if (change.kind !== 'task') continue
      seen.push(change.task.status)
      if (change.task.status === 'input_required') await client.task(taskId).cancel()
      if (change.task.status === 'cancelled') break
    }
    expect(seen.at(-1)).toBe('cancelled')
    await client.close()
  })
})
