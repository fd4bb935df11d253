/**
 * Tasks of the accepted proposal (`DRAFT-2026-v1`): the client requests one, waits for its result, and answers in between.
 */

import { createServer, type Server, type ServerOptions } from 'rondo'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { connectOlder, type Message, type OlderClient } from '../support/older-client.ts'

const DRAFT = 'DRAFT-2026-v1'
const ISO_8601 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/
const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const servers: Server[] = []

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

function start(options: Partial<ServerOptions> = {}): Server {
  const server = createServer({
    name: 'echo',
    version: '1.0.0',
    keys,
    log: 'off',
    store: createMemoryStore(),
    ...options,
  })
  const text = { type: 'object', properties: { input: { type: 'string' } }, required: ['input'] }
  server.tool('echo', { task: 'auto', taskPollMs: 100 }, async (_args, ctx) => {
    ctx.status('Echo is waiting')
    const { input } = await ctx.ask('echo_input', {
      message: 'Please provide the input string to echo back',
      schema: text,
    })
    return `Echo: ${input}`
  })
  server.tool('later', {}, async (_args, ctx) => {
    const { input } = await ctx.ask('name', { message: 'Name?', schema: text })
    await ctx.background()
    return `Hello ${input}`
  })
  server.tool('waits', { task: 'auto' }, async (_args, ctx) => {
    await ctx.step(
      'long',
      ({ signal }) =>
        new Promise((_, reject) => {
          const stop = () => reject(new Error('aborted'))
          if (signal.aborted) stop()
          signal.addEventListener('abort', stop)
        }),
    )
  })
  servers.push(server)
  return server
}

async function connect(server: Server, version = DRAFT, answer?: () => unknown): Promise<OlderClient> {
  const { url } = await server.listen({ port: 0, signals: false })
  const options = { version, capabilities: { elicitation: {} }, ...(answer ? { answer } : {}) }
  return connectOlder(url, options)
}

const resultOf = (message: Message): Record<string, unknown> => {
  if (!message.result) throw new Error(`no result: ${JSON.stringify(message)}`)
  return message.result as Record<string, unknown>
}
const codeOf = (message: Message): unknown => (message.error as { code?: number } | undefined)?.code
const about = (taskId: unknown) => ({ 'io.modelcontextprotocol/related-task': { taskId } })
const answer = (input: unknown) => ({ echo_input: { action: 'accept', content: { input } } })

async function create(client: OlderClient, name = 'echo'): Promise<Record<string, unknown>> {
  return resultOf(await client.call('tools/call', { name, task: { ttl: 60_000 } })).task as Record<
    string,
    unknown
  >
}

async function until(client: OlderClient, taskId: unknown, status: string): Promise<Record<string, unknown>> {
  for (let i = 0; i < 30_000; i++) {
    const task = resultOf(await client.call('tasks/get', { taskId }))
    if (task.status === status) return task
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
  throw new Error(`the task never became ${status}`)
}

describe('the echo example of the proposal', () => {
  it('D1 D2 D3 D4 D5 goes from the call to the result, message by message', async () => {
    const client = await connect(start())
    const task = await create(client)
    expect(task).toEqual({
      taskId: expect.stringMatching(/^[\w-]{22,}$/),
      status: 'working',
      statusMessage: 'Started',
      createdAt: expect.stringMatching(ISO_8601),
      lastUpdatedAt: expect.stringMatching(ISO_8601),
      ttl: 60_000,
      pollInterval: expect.any(Number),
    })
    const { taskId } = task
    const waiting = await until(client, taskId, 'input_required')
    expect(Object.keys(waiting).sort()).toEqual(
      [
        'createdAt',
        'lastUpdatedAt',
        'pollInterval',
        'resultType',
        'status',
        'statusMessage',
        'taskId',
        'ttl',
      ].sort(),
    )
    expect(resultOf(await client.call('tasks/result', { taskId }))).toEqual({
      resultType: 'input_required',
      inputRequests: {
        echo_input: {
          method: 'elicitation/create',
          params: {
            mode: 'form',
            message: 'Please provide the input string to echo back',
            requestedSchema: {
              type: 'object',
              properties: { input: { type: 'string' } },
              required: ['input'],
            },
          },
        },
      },
      _meta: about(taskId),
    })
    const ack = await client.call('tasks/input_response', {
      inputResponses: answer('Hello World!'),
      _meta: about(taskId),
    })
    expect(resultOf(ack)).toEqual({ resultType: 'complete', _meta: about(taskId) })
    await until(client, taskId, 'completed')
    expect(resultOf(await client.call('tasks/result', { taskId }))).toMatchObject({
      resultType: 'complete',
      content: [{ type: 'text', text: 'Echo: Hello World!' }],
      _meta: about(taskId),
    })
  })

  it('D6 acknowledges invalid answers, and the task keeps asking', async () => {
    const client = await connect(start())
    const { taskId } = await create(client)
    await until(client, taskId, 'input_required')
    for (const inputResponses of [
      { echo_input: { action: 'accept', content: { not_requested_parameter: 'x' } } },
      { other: { action: 'accept', content: {} } },
      {},
    ]) {
      const ack = await client.call('tasks/input_response', { inputResponses, _meta: about(taskId) })
      expect(resultOf(ack)).toEqual({ resultType: 'complete', _meta: about(taskId) })
      const asked = resultOf(await client.call('tasks/result', { taskId }))
      expect(Object.keys(asked.inputRequests as object)).toEqual(['echo_input'])
    }
  })

  it('D6 refuses answers to a task that has no open question', async () => {
    const client = await connect(start())
    const { taskId } = await create(client, 'waits')
    const refused = await client.call('tasks/input_response', {
      inputResponses: answer('x'),
      _meta: about(taskId),
    })
    expect(codeOf(refused)).toBe(-32602)
    expect(codeOf(await client.call('tasks/input_response', { inputResponses: {} }))).toBe(-32602)
    await client.call('tasks/cancel', { taskId })
  })

  it('D7 tasks/result waits until the task asks, and again until it ends', async () => {
    const client = await connect(start())
    const { taskId } = await create(client)
    expect(resultOf(await client.call('tasks/result', { taskId })).resultType).toBe('input_required')
    await client.call('tasks/input_response', { inputResponses: answer('again'), _meta: about(taskId) })
    expect(resultOf(await client.call('tasks/result', { taskId }))).toMatchObject({
      content: [{ text: 'Echo: again' }],
    })
  })

  it('D8 tasks/cancel ends a task, even one with an open question', async () => {
    const client = await connect(start())
    for (const name of ['echo', 'waits']) {
      const { taskId } = await create(client, name)
      expect(resultOf(await client.call('tasks/cancel', { taskId })).status).toBe('cancelled')
      expect(codeOf(await client.call('tasks/result', { taskId }))).toBe(-32602)
    }
    expect(codeOf(await client.call('tasks/get', { taskId: 'AAAAAAAAAAAAAAAAAAAAAA' }))).toBe(-32602)
  })

  it('D9 starts with rounds and becomes a task', async () => {
    const client = await connect(start())
    const asked = resultOf(await client.call('tools/call', { name: 'later', task: { ttl: 60_000 } }))
    expect(asked).toMatchObject({ resultType: 'input_required', inputRequests: { name: {} } })
    const { task } = resultOf(
      await client.call('tools/call', {
        name: 'later',
        task: { ttl: 60_000 },
        requestState: asked.requestState,
        inputResponses: { name: { action: 'accept', content: { input: 'Ada' } } },
      }),
    ) as { task: { taskId: string } }
    expect(resultOf(await client.call('tasks/result', { taskId: task.taskId }))).toMatchObject({
      content: [{ text: 'Hello Ada' }],
    })
  })

  it('uses rounds if the client does not request a task', async () => {
    const client = await connect(start())
    expect(resultOf(await client.call('tools/call', { name: 'echo' })).resultType).toBe('input_required')
  })
})

describe('2025-11-25', () => {
  it('F1 pushes the questions of a task while tasks/result waits', async () => {
    const client = await connect(start(), '2025-11-25', () => ({
      action: 'accept',
      content: { input: 'pushed' },
    }))
    const { taskId } = await create(client)
    expect(resultOf(await client.call('tasks/result', { taskId }))).toMatchObject({
      content: [{ text: 'Echo: pushed' }],
      _meta: about(taskId),
    })
    expect(client.asked.map(({ method }) => method)).toEqual(['elicitation/create'])
  })

  it('declares which tools may be tasks', async () => {
    const client = await connect(start(), '2025-11-25')
    const { tools } = resultOf(await client.call('tools/list')) as {
      tools: { name: string; execution: object }[]
    }
    expect(tools.find(({ name }) => name === 'echo')?.execution).toEqual({ taskSupport: 'optional' })
    expect(tools.find(({ name }) => name === 'later')?.execution).toEqual({ taskSupport: 'forbidden' })
  })
})

describe('waiting for a result', () => {
  it('D7 E6 is refused for a malformed id as for an unknown one', async () => {
    const client = await connect(start())
    const unknown = await client.call('tasks/result', { taskId: 'A'.repeat(22) })
    expect(codeOf(unknown)).toBe(-32602)
    expect((await client.call('tasks/result', { taskId: 'nonsense' })).error).toEqual(unknown.error)
  })

  it('D7 stops polling the store once the client has its result', async () => {
    const store = createMemoryStore()
    const { onHint } = store.tasks
    let listening = 0
    const counted = (listener: Parameters<typeof onHint>[0]) => {
      const stop = onHint(listener)
      listening += 1
      return () => {
        listening -= 1
        stop()
      }
    }
    // This instance runs no tasks, so a client that listens waits for a result.
    const tasks = { ...store.tasks, onHint: counted }
    const client = await connect(start({ store: { ...store, tasks }, tasks: { concurrency: 0 } }))
    const worker = start({ store })
    await connect(worker)
    for (let i = 0; i < 5; i++) {
      const { taskId } = await create(client)
      expect(resultOf(await client.call('tasks/result', { taskId }))).toHaveProperty('inputRequests')
      await client.call('tasks/cancel', { taskId })
      expect(codeOf(await client.call('tasks/result', { taskId }))).toBe(-32602)
    }
    expect(listening).toBe(0)
  })
})
