/**
 * Tasks of revision 2025-11-25 on the wire: the client asks for one, looks, waits for its result, and is asked meanwhile;
 * it can list what is its own, and nothing else.
 */

import { createServer, type Server, type ServerOptions, ToolError } from 'rondo'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../src/store/memory/memory-store.ts'
import {
  connectOlder,
  type Message,
  type OlderClient,
  type OlderClientOptions,
} from '../support/older-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const RELATED = 'io.modelcontextprotocol/related-task'
const servers: Server[] = []
/** Let calls of `gated` through. */
const openings: (() => void)[] = []

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

const name = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } as const

function declare(server: Server): void {
  server.tool('greet', { task: 'auto', taskPollMs: 50 }, async (_args, ctx) => {
    const given = await ctx.ask('name', { message: 'Name?', schema: name, orArgument: 'name' })
    return `Hello ${given.name}`
  })
  server.tool('only', { task: 'always', taskPollMs: 50 }, () => 'as a task')
  server.tool('never', {}, () => 'at once')
  server.tool('fails', { task: 'auto' }, () => {
    throw new ToolError('The printer is on fire')
  })
  server.tool('breaks', { task: 'auto' }, async (_args, ctx) => {
    await Promise.all([ctx.step('twice', () => 1), ctx.step('twice', () => 2)])
  })
  server.tool('gated', { task: 'auto' }, (_args, ctx) =>
    ctx.step('gate', () => new Promise<void>((resolve) => openings.push(resolve))),
  )
  server.tool('waits', { task: 'auto' }, (_args, ctx) =>
    ctx.step('long', ({ signal }) => new Promise((_, reject) => signal.addEventListener('abort', reject))),
  )
}

async function start(options: Partial<ServerOptions> = {}) {
  const server = createServer({
    name: 'tasks',
    version: '1.0.0',
    keys,
    log: 'off',
    store: createMemoryStore(),
    authenticate: ({ headers }) => {
      const subject = headers('x-user')
      return subject === undefined ? undefined : { subject }
    },
    ...options,
  })
  declare(server)
  servers.push(server)
  const { url } = await server.listen({ port: 0, signals: false, graceMs: 200 })
  return (user?: string, given: OlderClientOptions = {}): Promise<OlderClient> =>
    connectOlder(url, {
      capabilities: { elicitation: {} },
      headers: user === undefined ? {} : { 'x-user': user },
      ...given,
    })
}

type Task = { readonly taskId: string; readonly status: string; readonly statusMessage?: string }

const resultOf = (message: Message): Record<string, unknown> => {
  if (!message.result) throw new Error(`no result: ${JSON.stringify(message)}`)
  return message.result as Record<string, unknown>
}
const errorOf = ({ error }: Message) => error as { code: number; message: string } | undefined
const create = async (client: OlderClient, tool = 'greet'): Promise<Task> =>
  resultOf(await client.call('tools/call', { name: tool, task: { ttl: 60_000 } })).task as Task
const capabilitiesOf = ({ initialized }: OlderClient) =>
  (initialized.result as { capabilities: Record<string, unknown> }).capabilities

async function until(client: OlderClient, taskId: string, status: string): Promise<Task> {
  for (let i = 0; i < 2000; i++) {
    const task = resultOf(await client.call('tasks/get', { taskId })) as unknown as Task
    if (task.status === status) return task
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
  throw new Error(`the task never became ${status}`)
}

async function list(client: OlderClient, cursor?: string) {
  const result = resultOf(await client.call('tasks/list', cursor === undefined ? {} : { cursor }))
  return result as unknown as { tasks: Task[]; nextCursor?: string }
}

describe('tasks/list', () => {
  it('is declared to callers that can be told apart, and to no others', async () => {
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

  it('is not declared where there is no store', async () => {
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

  it('T17 goes on where a page ended, for the caller it was given to and nobody else', async () => {
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

describe('a task of 2025-11-25', () => {
  it('F1 is asked while tasks/result waits; each question names its task', async () => {
    const connect = await start()
    const client = await connect('ada', { answer: () => ({ action: 'accept', content: { name: 'Ada' } }) })
    const { taskId } = await create(client)
    const result = resultOf(await client.call('tasks/result', { taskId }))
    expect(result).toMatchObject({ content: [{ text: 'Hello Ada' }], _meta: { [RELATED]: { taskId } } })
    expect(client.asked).toHaveLength(1)
    expect(client.asked[0]?.params._meta).toEqual({ [RELATED]: { taskId } })
    expect(client.asked[0]?.params).toMatchObject({ mode: 'form', message: 'Name?' })
  })

  it('B17 D6 asks again, saying what was wrong, where an answer does not fit', async () => {
    const given = [{ nobody: 1 }, { name: 'Ada' }]
    const connect = await start()
    const client = await connect('ada', { answer: () => ({ action: 'accept', content: given.shift() }) })
    const { taskId } = await create(client)
    expect(resultOf(await client.call('tasks/result', { taskId }))).toMatchObject({
      content: [{ text: 'Hello Ada' }],
    })
    expect(client.asked.map(({ params }) => params.message)).toEqual([
      'Name?',
      expect.stringMatching(/required.+Name\?/s),
    ])
  })

  it('B18 goes on after a decline, and goes on waiting where its question was answered with an error', async () => {
    const answers: unknown[] = [
      { error: { code: -1, message: 'The window was closed' } },
      { action: 'decline' },
    ]
    const connect = await start()
    const client = await connect('ada', { answer: () => answers.shift() })
    const { taskId } = await create(client)
    const failed = errorOf(await client.call('tasks/result', { taskId }))
    expect(failed?.message).toContain('The window was closed')
    expect(resultOf(await client.call('tasks/get', { taskId })).status).toBe('input_required')
    const result = resultOf(await client.call('tasks/result', { taskId }))
    expect(result.isError).toBe(true)
    expect(JSON.stringify(result.content)).toContain('declined')
  })

  it('D8 takes its question back when it is cancelled meanwhile', async () => {
    const connect = await start()
    const client = await connect('ada')
    const { taskId } = await create(client)
    const waiting = client.call('tasks/result', { taskId })
    await expect.poll(() => client.asked.length).toBe(1)
    expect(resultOf(await client.call('tasks/cancel', { taskId })).status).toBe('cancelled')
    expect(errorOf(await waiting)?.code).toBe(-32602)
    const withdrawn = client.received.find(({ method }) => method === 'notifications/cancelled')
    expect(withdrawn?.params).toMatchObject({ requestId: client.asked[0]?.id })
  })

  it('D8 refuses to cancel what has ended', async () => {
    const connect = await start()
    const client = await connect('ada')
    const { taskId } = await create(client, 'only')
    await until(client, taskId, 'completed')
    expect(errorOf(await client.call('tasks/cancel', { taskId }))?.code).toBe(-32602)
    expect(resultOf(await client.call('tasks/get', { taskId })).status).toBe('completed')
  })

  it('D2 has failed, and says why, where its tool did; the result is what the call would have given', async () => {
    const connect = await start()
    const client = await connect('ada')
    const { taskId } = await create(client, 'fails')
    expect(await until(client, taskId, 'failed')).toMatchObject({ statusMessage: 'The printer is on fire' })
    expect(resultOf(await client.call('tasks/result', { taskId }))).toMatchObject({
      isError: true,
      content: [{ text: 'The printer is on fire' }],
      _meta: { [RELATED]: { taskId } },
    })
  })

  it('D2 has failed with the error that the call would have given', async () => {
    const connect = await start()
    const client = await connect('ada')
    const { taskId } = await create(client, 'breaks')
    const { statusMessage } = await until(client, taskId, 'failed')
    const error = errorOf(await client.call('tasks/result', { taskId }))
    expect(error).toMatchObject({ code: -32603, message: statusMessage })
  })

  it('says what to send instead where its client cannot be asked', async () => {
    const connect = await start()
    const client = await connect('ada', { capabilities: {} })
    const { taskId } = await create(client)
    const result = resultOf(await client.call('tasks/result', { taskId }))
    expect(result.isError).toBe(true)
    expect(JSON.stringify(result.content)).toContain('argument \\"name\\"')
  })

  it('F1 shows that it is alive while its result is waited for, to a client that asked for progress', async () => {
    const connect = await start({ sessions: { signMs: 50 } })
    const client = await connect('ada')
    const { taskId } = await create(client, 'waits')
    const other = await create(client)
    const waiting = [taskId, other.taskId].map((id, index) =>
      client.call('tasks/result', { taskId: id, _meta: { progressToken: `p${index}` } }),
    )
    const signs = (token: string) =>
      client.received
        .filter(({ method, params }) => {
          const { progressToken } = (params ?? {}) as { progressToken?: unknown }
          return method === 'notifications/progress' && progressToken === token
        })
        .map(({ params }) => (params as { progress: number }).progress)
    await expect.poll(() => Math.min(signs('p0').length, signs('p1').length)).toBeGreaterThan(2)
    expect(signs('p0')).toEqual([...new Set(signs('p0'))].sort((a, b) => a - b))
    for (const id of [taskId, other.taskId]) await client.call('tasks/cancel', { taskId: id })
    await Promise.all(waiting)
  })

  it('goes on elsewhere when its server ends: who waits for it is told to come again', async () => {
    const store = createMemoryStore()
    const connect = await start({ store })
    const client = await connect('ada')
    const [busy, asking] = [await create(client, 'gated'), await create(client)]
    const waiting = [busy, asking].map(({ taskId }) => client.call('tasks/result', { taskId }))
    await expect.poll(() => client.asked.length).toBe(1)
    const closing = servers.splice(0).map((server) => server.close())
    for (const message of await Promise.all(waiting)) expect(errorOf(message)?.code).toBe(-32000)
    const other = await (await start({ store }))('ada')
    await until(other, asking.taskId, 'input_required')
    for (const open of openings) open()
    await Promise.all(closing)
    await until(other, busy.taskId, 'completed')
  })

  it('does not push its question where nobody could answer it: the task goes on waiting', async () => {
    const store = createMemoryStore()
    const asked = await (await start({ store }))('ada')
    const { taskId } = await create(asked)
    await until(asked, taskId, 'input_required')
    const stateless = await (await start({ store, sessions: false }))('ada')
    const error = errorOf(await stateless.call('tasks/result', { taskId }))
    expect(error).toMatchObject({ code: -32602 })
    expect(error?.message).toContain('keeps no session')
    await until(asked, taskId, 'input_required')
  })

  it('D1 is refused, or demanded, as the tool says of itself', async () => {
    const connect = await start()
    const client = await connect('ada')
    expect(errorOf(await client.call('tools/call', { name: 'only' }))?.code).toBe(-32601)
    expect(errorOf(await client.call('tools/call', { name: 'never', task: {} }))?.code).toBe(-32601)
    expect(resultOf(await client.call('tools/call', { name: 'never' }))).toMatchObject({
      content: [{ text: 'at once' }],
    })
  })

  it('is not there for clients that take turns: a wish for one is not heard', async () => {
    const connect = await start()
    const experimental = { 'multi-turn-sse': {}, 'request-state': {} }
    const client = await connect('ada', { capabilities: { elicitation: {}, experimental } })
    expect(capabilitiesOf(client).experimental).toBeDefined()
    expect(capabilitiesOf(client).tasks).toBeUndefined()
    expect(resultOf(await client.call('tools/call', { name: 'fails', task: { ttl: 1000 } }))).toMatchObject({
      isError: true,
    })
    expect(errorOf(await client.call('tasks/list'))?.code).toBe(-32601)
  })
})
