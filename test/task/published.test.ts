/**
 * Tasks on the wire of 2026-07-28 (extension io.modelcontextprotocol/tasks).
 */

import { createServer, type Server, type ServerOptions, ToolError } from 'rondo'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../src/store/memory/memory-store.ts'
import { follow, send, settled } from '../support/task-client.ts'

const FORM_ONLY = { elicitation: {} }
const EXTENSION = 'io.modelcontextprotocol/tasks'
const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const servers: Server[] = []

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

function start(options: Partial<ServerOptions> = {}): Server {
  const server = createServer({
    name: 'tasks',
    version: '1.0.0',
    keys,
    log: 'off',
    store: createMemoryStore(),
    ...options,
  })
  const text = z.object({ value: z.string() })
  server.tool('sync', {}, () => 'at once')
  server.tool('auto', { task: 'auto' }, () => 'done')
  server.tool('always', { task: 'always', taskTtlMs: 60_000, taskPollMs: 50 }, () => 'done')
  server.tool('fails', { task: 'always' }, () => {
    throw new ToolError('out of stock')
  })
  server.tool('breaks', { task: 'always' }, async (_args, ctx) => {
    void ctx.ask('forgotten', { message: 'Never awaited', schema: text })
    return 'x'
  })
  server.tool('asks', { task: 'always' }, async (_args, ctx) => {
    const [a, b] = await Promise.all([
      ctx.ask('a', { message: 'A?', schema: text }),
      ctx.ask('b', { message: 'B?', schema: text }),
    ])
    return `${a.value}${b.value}`
  })
  server.tool('later', {}, async (_args, ctx) => {
    const { value } = await ctx.ask('name', { message: 'Name?', schema: text })
    await ctx.background()
    ctx.status('greeting')
    const greeting = await ctx.step('greet', () => `Hello ${value}`)
    return `${greeting}, round ${ctx.round}`
  })
  server.tool('waits', { task: 'always' }, async (_args, ctx) => {
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

async function create(server: Server, name: string): Promise<string> {
  const { result, error } = await send(server, 'tools/call', { name })
  if (result?.resultType !== 'task') throw new Error(`no task: ${JSON.stringify(result ?? error)}`)
  return String(result.taskId)
}

describe('creation', () => {
  it('E1 makes a task only for clients that declare the extension on the request', async () => {
    const server = start()
    expect(await send(server, 'tools/call', { name: 'auto' })).toMatchObject({
      result: { resultType: 'task' },
    })
    const plain = await send(server, 'tools/call', { name: 'auto' }, { capabilities: FORM_ONLY })
    expect(plain).toMatchObject({ result: { resultType: 'complete', content: [{ text: 'done' }] } })
    const refused = await send(server, 'tools/call', { name: 'always' }, { capabilities: FORM_ONLY })
    expect(refused.error).toMatchObject({
      code: -32021,
      data: { requiredCapabilities: { extensions: { [EXTENSION]: {} } } },
    })
  })

  it('E1 E7 leaves other tools alone and ignores a task parameter', async () => {
    const reply = await send(start(), 'tools/call', { name: 'sync', task: { ttl: 60_000 } })
    expect(reply).toMatchObject({ result: { resultType: 'complete', content: [{ text: 'at once' }] } })
  })

  it('E2 finds the task at once, on any instance', async () => {
    const store = createMemoryStore()
    const [first, second] = [
      start({ store, tasks: { concurrency: 0 } }),
      start({ store, tasks: { concurrency: 0 } }),
    ]
    const taskId = await create(first, 'always')
    expect(await send(second, 'tasks/get', { taskId })).toMatchObject({
      result: { resultType: 'complete', taskId, status: 'working' },
    })
  })

  it('has the flat form the extension wants', async () => {
    const { result = {} } = await send(start(), 'tools/call', { name: 'always' })
    expect(Object.keys(result).sort()).toEqual(
      [
        '_meta',
        'createdAt',
        'lastUpdatedAt',
        'pollIntervalMs',
        'resultType',
        'status',
        'taskId',
        'ttlMs',
      ].sort(),
    )
    expect(result).toMatchObject({
      ttlMs: 60_000,
      pollIntervalMs: 50,
      createdAt: expect.stringMatching(/^\d{4}-.*Z$/),
    })
  })

  it('says at definition that a task needs a store', () => {
    const server = createServer({ name: 'no store', version: '1', keys, log: 'off' })
    expect(() => server.tool('always', { task: 'always' }, () => '')).toThrow(/store/)
  })
})

describe('following', () => {
  it('E3 inlines questions, takes partial answers, ignores unknown keys, and ends with the result', async () => {
    const server = start()
    const taskId = await create(server, 'asks')
    const asking = await settled(server, taskId)
    expect(asking).toMatchObject({ status: 'input_required', inputRequests: { a: {}, b: {} } })
    const answer = (value: string) => ({ action: 'accept', content: { value } })
    const ack = await send(server, 'tasks/update', {
      taskId,
      inputResponses: { a: answer('1'), nonsense: answer('x') },
    })
    expect(Object.keys(ack.result ?? {}).sort()).toEqual(['_meta', 'resultType'])
    const still = await settled(server, taskId)
    expect(Object.keys(still.inputRequests as object)).toEqual(['b'])
    await send(server, 'tasks/update', { taskId, inputResponses: { a: answer('late'), b: answer('2') } })
    expect(await settled(server, taskId)).toMatchObject({
      status: 'completed',
      result: { content: [{ text: '12' }] },
    })
  })

  it('E3 asks again under a new key, saying what was wrong', async () => {
    const server = start()
    const taskId = await create(server, 'asks')
    await settled(server, taskId)
    const good = { action: 'accept', content: { value: 'x' } }
    await send(server, 'tasks/update', {
      taskId,
      inputResponses: { a: { action: 'accept', content: { value: 5 } }, b: good },
    })
    const again = await settled(server, taskId)
    expect(Object.keys(again.inputRequests as object)).toEqual(['a~2'])
    await send(server, 'tasks/update', { taskId, inputResponses: { 'a~2': good } })
    expect(await settled(server, taskId)).toMatchObject({ result: { content: [{ text: 'xx' }] } })
  })

  it('E3 E6 T17 answers unknown, foreign and malformed ids alike', async () => {
    const server = start({ authenticate: ({ headers }) => ({ subject: headers('x-user') ?? 'nobody' }) })
    const { result } = await send(
      server,
      'tools/call',
      { name: 'always' },
      { headers: { 'x-user': 'alice' } },
    )
    const taskId = String(result?.taskId)
    const unknown = { code: -32602, message: 'Task not found' }
    for (const [method, extra] of [
      ['tasks/get', {}],
      ['tasks/cancel', {}],
      ['tasks/update', { inputResponses: {} }],
    ] as const) {
      const foreign = await send(server, method, { taskId, ...extra }, { headers: { 'x-user': 'eve' } })
      const missing = await send(
        server,
        method,
        { taskId: 'AAAAAAAAAAAAAAAAAAAAAA', ...extra },
        { headers: { 'x-user': 'alice' } },
      )
      const odd = await send(server, method, { taskId: '../x', ...extra }, { headers: { 'x-user': 'alice' } })
      expect([foreign.error, missing.error, odd.error]).toEqual([unknown, unknown, unknown])
    }
    expect(await send(server, 'tasks/get', { taskId }, { headers: { 'x-user': 'alice' } })).toMatchObject({
      result: { taskId },
    })
  })

  it('E5 checks Mcp-Name against the id in the body', async () => {
    const server = start()
    const taskId = await create(server, 'auto')
    const reply = await send(server, 'tasks/get', { taskId }, { headers: { 'mcp-name': 'other' } })
    expect(reply.error?.code).toBe(-32020)
  })

  it('E7 has no tasks/result and no tasks/list, and refuses task methods to those who do not follow tasks', async () => {
    const server = start()
    const taskId = await create(server, 'auto')
    for (const method of ['tasks/result', 'tasks/list', 'tasks/input_response']) {
      expect((await send(server, method, { taskId })).error?.code).toBe(-32601)
    }
    expect((await send(server, 'tasks/get', { taskId: 'x' }, { capabilities: FORM_ONLY })).error?.code).toBe(
      -32021,
    )
  })

  it("E8 ends a tool's own failure as completed, and a fault of the runtime as failed", async () => {
    const server = start()
    expect(await settled(server, await create(server, 'fails'))).toMatchObject({
      status: 'completed',
      result: { isError: true, content: [{ text: 'out of stock' }] },
    })
    const failed = await settled(server, await create(server, 'breaks'))
    expect(failed).toMatchObject({ status: 'failed', error: { code: -32603, message: expect.any(String) } })
    expect(failed.result).toBeUndefined()
  })

  it('cancels a running task and aborts its step', async () => {
    const server = start()
    const taskId = await create(server, 'waits')
    const ack = await send(server, 'tasks/cancel', { taskId })
    expect(Object.keys(ack.result ?? {}).sort()).toEqual(['_meta', 'resultType'])
    expect(await settled(server, taskId)).toMatchObject({ status: 'cancelled' })
    expect((await send(server, 'tasks/cancel', { taskId })).error).toBeUndefined()
  })
})

describe('becoming a task in the middle', () => {
  it.each(['step', 'result', 'question'])(
    'R9 fails a task whose %s is larger than a piece may be, at once and with a reason',
    async (what) => {
      let turns = 0
      const server = start({ tasks: { maxPieceBytes: 4_096 } })
      const large = 'x'.repeat(5_000)
      server.tool('large', { task: 'always' }, async (_args, ctx) => {
        turns++
        ctx.status(large)
        if (what === 'step') await ctx.step('large', () => large)
        if (what === 'question') await ctx.confirm('large', large)
        return what === 'result' ? large : 'done'
      })
      const task = await settled(server, await create(server, 'large'))
      expect(task).toMatchObject({
        status: 'failed',
        error: { code: -32603, message: 'This call remembers more than the server allows' },
      })
      expect(turns).toBe(1)
    },
  )

  it('R9 takes what a piece may hold', async () => {
    const server = start({ tasks: { maxPieceBytes: 4_096 } })
    server.tool('fits', { task: 'always' }, async (_args, ctx) => ctx.step('some', () => 'x'.repeat(2_000)))
    expect(await settled(server, await create(server, 'fits'))).toMatchObject({ status: 'completed' })
  })

  it('D9 asks in rounds first, then goes on as a task with what it has', async () => {
    const server = start()
    const first = await send(server, 'tools/call', { name: 'later' })
    expect(first.result).toMatchObject({ resultType: 'input_required', inputRequests: { name: {} } })
    expect(first.result?.taskId).toBeUndefined()
    const second = await send(server, 'tools/call', {
      name: 'later',
      requestState: first.result?.requestState,
      inputResponses: { name: { action: 'accept', content: { value: 'Alice' } } },
    })
    expect(second.result).toMatchObject({ resultType: 'task' })
    expect(second.result?.requestState).toBeUndefined()
    const ended = await follow(server, String(second.result?.taskId), {})
    expect(ended).toMatchObject({
      status: 'completed',
      result: { content: [{ text: 'Hello Alice, round 2' }] },
    })
  })

  it('D9 simply goes on in rounds for a client that cannot follow a task', async () => {
    const server = start()
    const options = { capabilities: FORM_ONLY }
    const first = await send(server, 'tools/call', { name: 'later' }, options)
    const second = await send(
      server,
      'tools/call',
      {
        name: 'later',
        requestState: first.result?.requestState,
        inputResponses: { name: { action: 'accept', content: { value: 'Alice' } } },
      },
      options,
    )
    expect(second.result).toMatchObject({
      resultType: 'complete',
      content: [{ text: 'Hello Alice, round 2' }],
    })
  })

  it('promotes a flow that outgrows its token', async () => {
    const server = start({ limits: { maxBytes: 2048 } })
    server.tool('big', {}, async (_args, ctx) => {
      await ctx.step('document', () => 'x'.repeat(5000))
      return String(await ctx.confirm('go', 'Go on?'))
    })
    const { result } = await send(server, 'tools/call', { name: 'big' })
    expect(result).toMatchObject({ resultType: 'task' })
    expect(await follow(server, String(result?.taskId), { go: { confirm: true } })).toMatchObject({
      result: { content: [{ text: 'true' }] },
    })
    const alone = await send(server, 'tools/call', { name: 'big' }, { capabilities: FORM_ONLY })
    expect(alone.result).toMatchObject({ resultType: 'input_required' })
  })

  it('promotes a flow that takes longer than its round may', async () => {
    const clock = { now: Date.now() }
    const server = start({ maxRoundMs: 100, now: () => clock.now })
    server.tool('slow', {}, async (_args, ctx) => {
      for (const name of ['a', 'b']) {
        await ctx.step(name, () => {
          clock.now += 200
        })
      }
      return 'finished'
    })
    const { result } = await send(server, 'tools/call', { name: 'slow' })
    expect(result).toMatchObject({ resultType: 'task' })
    expect(await follow(server, String(result?.taskId), {})).toMatchObject({
      result: { content: [{ text: 'finished' }] },
    })
  })
})

describe('notifications', () => {
  it('E4 tells of a task through subscriptions/listen, to its owner', async () => {
    const server = start()
    const taskId = await create(server, 'asks')
    const stop = new AbortController()
    const response = await server.fetch(
      new Request('http://127.0.0.1/mcp', {
        method: 'POST',
        signal: stop.signal,
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          'mcp-protocol-version': '2026-07-28',
          'mcp-method': 'subscriptions/listen',
        },
        body: JSON.stringify({
          jsonrpc: '2.0',
          id: 'sub',
          method: 'subscriptions/listen',
          params: {
            notifications: { taskIds: [taskId] },
            _meta: {
              'io.modelcontextprotocol/protocolVersion': '2026-07-28',
              'io.modelcontextprotocol/clientCapabilities': { extensions: { [EXTENSION]: {} } },
            },
          },
        }),
      }),
    )
    const seen: string[] = []
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader()
    const answer = { action: 'accept', content: { value: 'x' } }
    let buffer = ''
    while (!seen.includes('completed')) {
      const { value, done } = (await reader?.read()) ?? { done: true }
      if (done) break
      buffer += value
      for (let end = buffer.indexOf('\n\n'); end >= 0; end = buffer.indexOf('\n\n')) {
        const data = /^data: (.*)$/m.exec(buffer.slice(0, end))?.[1]
        buffer = buffer.slice(end + 2)
        if (data === undefined) continue
        const { method, params } = JSON.parse(data)
        seen.push(method === 'notifications/tasks' ? params.status : method)
        expect(params._meta['io.modelcontextprotocol/subscriptionId']).toBe('sub')
        if (params.status === 'input_required' && params.inputRequests.a) {
          await send(server, 'tasks/update', { taskId, inputResponses: { a: answer, b: answer } })
        }
      }
    }
    stop.abort()
    expect(seen[0]).toBe('notifications/subscriptions/acknowledged')
    expect(seen).toContain('input_required')
    expect(seen.at(-1)).toBe('completed')
  })
})

describe('at rest', () => {
  it('a reader of the store finds ids, status, keys and times, and no content', async () => {
    const store = createMemoryStore()
    const written: string[] = []
    const spy = <T extends object>(port: T): T =>
      new Proxy(port, {
        get(target, name) {
          const member = Reflect.get(target, name)
          if (typeof member !== 'function') return member
          return (...args: unknown[]) => {
            written.push(
              JSON.stringify(args, (_key, value) => (value instanceof Map ? [...value] : value)) ?? '',
            )
            return member.apply(target, args)
          }
        },
      })
    const server = start({ store: { ...store, tasks: spy(store.tasks) } })
    server.tool(
      'secret',
      { task: 'always', input: z.object({ card: z.string() }) },
      async ({ card }, ctx) => {
        ctx.status('canary-status')
        await ctx.step('look', () => `canary-step ${card}`)
        const { value } = await ctx.ask('word', {
          message: 'canary-question',
          schema: z.object({ value: z.string() }),
        })
        return `canary-result ${value}`
      },
    )
    const { result } = await send(server, 'tools/call', {
      name: 'secret',
      arguments: { card: 'canary-argument' },
    })
    const ended = await follow(server, String(result?.taskId), { word: { value: 'canary-answer' } })
    expect(JSON.stringify(ended)).toContain('canary-result canary-answer')
    const text = written.join('\n')
    expect(text).toContain('"word"')
    expect(text).not.toContain('canary')
  })
})
