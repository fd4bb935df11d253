/** Tasks of 2025-11-25 between the official package of the first generation and ours, in both directions. */

import type { Client as V1 } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { type ConnectOptions, connect, type TaskState } from 'rondo/client'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { processFile } from '../support/process-file.ts'
import { createTaskServer } from '../support/task-server.ts'
import { connectV1 } from '../support/v1-client.ts'
import { serveV1, type V1Http } from '../support/v1-server.ts'
import { createV1TaskServer } from '../support/v1-task-server.ts'

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

let v1: V1Http
beforeAll(async () => {
  v1 = await serveV1(createV1TaskServer)
})
afterAll(() => v1.close())

const answers: ConnectOptions['answers'] = {
  elicitation: {
    form: ({ message }) =>
      ({
        action: 'accept',
        content: message.startsWith('Who') ? { name: 'Ada' } : { mood: 'well' },
      }) as never,
  },
  sampling: () => ({ role: 'assistant', content: { type: 'text', text: 'Rest.' }, model: 'm' }),
  roots: [{ uri: 'file:///srv' }],
}
const textOf = (result: object) => (result as { content: { text: string }[] }).content[0]?.text

const stdio = {
  command: process.execPath,
  args: [processFile('test/support/v1-task-stdio.ts')],
  stderr: 'ignore',
} as const

describe.each([
  ['HTTP', () => v1.url],
  ['stdio', () => stdio],
] as const)('our client at their server over %s', (_name, target) => {
  const open = async () => {
    const client = await connect(target(), { answers })
    closers.push(() => client.close())
    return client
  }

  it('D10 requests a task if the tool requires one, and returns its result', async () => {
    const client = await open()
    expect(client.protocolVersion).toBe('2025-11-25')
    expect(textOf(await client.callTool('plain'))).toBe('done')
  })

  it('C5 D10 answers two questions of a task, one after the other', async () => {
    const client = await open()
    const seen: string[] = []
    const onTask = ({ status }: TaskState) => void seen.push(status)
    expect(textOf(await client.callTool('greet', {}, { onTask }))).toBe('Hello, Ada, well!')
    expect(seen).toContain('input_required')
  })

  it('C5 answers sampling and roots requests of a task', async () => {
    const client = await open()
    expect(JSON.parse(textOf(await client.callTool('consult')) ?? '')).toEqual({
      model: 'm',
      roots: [{ uri: 'file:///srv' }],
    })
  })

  it('D8 cancels a task', async () => {
    const client = await open()
    const begun = await client.start({ method: 'tools/call', name: 'hang' }, { taskTtlMs: 60_000 })
    if (begun.status !== 'task') throw new Error(begun.status)
    const task = client.task(begun.pending.task?.taskId ?? '')
    expect((await task.get()).status).toBe('working')
    await task.cancel()
    expect((await task.get()).status).toBe('cancelled')
    await task.cancel()
  })
})

describe('their client at our server', () => {
  async function open(user: string): Promise<V1> {
    const server = createTaskServer({
      authenticate: ({ headers }) => ({ subject: headers('x-user') ?? 'nobody' }),
    })
    const { url } = await server.listen({ port: 0, signals: false })
    closers.push(() => server.close())
    const requestInit = { headers: { 'x-user': user } }
    const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit })
    const connected = await connectV1(transport as never)
    connected.run(
      { method: 'tools/call', target: 'never' },
      { name: { name: 'Ada' }, sure: { confirm: true } },
    )
    closers.push(() => connected.close())
    return connected.client
  }

  const follow = async (client: V1, name: string) => {
    const seen: string[] = []
    const stream = client.experimental.tasks.callToolStream({ name, arguments: {} }, undefined, {
      task: { ttl: 60_000 },
    })
    for await (const message of stream) {
      if (message.type === 'taskStatus') seen.push(message.task.status)
      if (message.type === 'error') throw message.error
      if (message.type === 'result') return { seen, text: textOf(message.result) }
    }
    throw new Error('no result')
  }

  it('D1 D2 D5 F1 follows a task and answers the questions that are pushed while it waits', async () => {
    const client = await open('ada')
    const { seen, text } = await follow(client, 'greet')
    expect(text).toBe('Hello Ada, true')
    expect(seen.at(-1)).toBe('input_required')
  })

  it('lists its tasks over stdio, where it is the only client', async () => {
    const transport = new StdioClientTransport({
      command: process.execPath,
      args: [processFile('test/support/task-stdio.ts')],
      stderr: 'ignore',
    })
    const { client, close } = await connectV1(transport)
    closers.push(close)
    expect(client.getServerCapabilities()?.tasks).toEqual({
      list: {},
      cancel: {},
      requests: { tools: { call: {} } },
    })
    await follow(client, 'only')
    const { tasks } = await client.experimental.tasks.listTasks()
    expect(tasks.map(({ status }) => status)).toEqual(['completed'])
  })

  it('lists its tasks, and cancels one', async () => {
    const client = await open('ada')
    await follow(client, 'only')
    const { tasks } = await client.experimental.tasks.listTasks()
    expect(tasks.map(({ status }) => status)).toEqual(['completed'])
    await expect(client.experimental.tasks.cancelTask(tasks[0]?.taskId ?? '')).rejects.toMatchObject({
      code: -32602,
    })
  })
})
