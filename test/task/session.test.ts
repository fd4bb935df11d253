import { createServer } from 'rondo'
import { describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'

import {
  capabilitiesOf,
  create,
  errorOf,
  keys,
  openings,
  RELATED,
  resultOf,
  servers,
  start,
  until,
} from '../support/session-tasks.ts'
import { send, settled } from '../support/task-client.ts'

describe('a client that does not implement what it declared', () => {
  it('F1 R10 finds its task failed with the same reason as a call by push', async () => {
    const connect = await start()
    const answer = () => ({ error: { code: -32601, message: 'Method not found' } })
    const client = await connect('ada', { answer })
    const { taskId } = await create(client)
    const ended = resultOf(await client.call('tasks/result', { taskId }))
    const pushed = resultOf(await client.call('tools/call', { name: 'greet' }))
    expect(ended).toMatchObject({ isError: true, content: pushed.content })
    expect(JSON.stringify(pushed.content)).toContain('name')
    expect(resultOf(await client.call('tasks/get', { taskId }))).toMatchObject({ status: 'failed' })
  })

  it('F1 another error leaves the question open, for whoever can answer it', async () => {
    const connect = await start()
    const client = await connect('ada', { answer: () => ({ error: { code: -32000, message: 'Not now' } }) })
    const { taskId } = await create(client)
    expect(errorOf(await client.call('tasks/result', { taskId }))?.message).toContain('Not now')
    expect(resultOf(await client.call('tasks/get', { taskId }))).toMatchObject({ status: 'input_required' })
  })

  it('F1 no client can claim this for itself in an answer', async () => {
    const server = createServer({ name: 'a', version: '1', keys, log: 'off', store: createMemoryStore() })
    servers.push(server)
    server.tool('greet', { task: 'auto' }, (_args, ctx) => ctx.confirm('sure', 'Sure?').then(String))
    const taskId = String((await send(server, 'tools/call', { name: 'greet' })).result?.taskId)
    await settled(server, taskId)
    const inputResponses = { sure: 'elicitation/create' }
    expect((await send(server, 'tasks/update', { taskId, inputResponses })).error?.code).toBe(-32602)
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

  it('B17 D6 asks again, saying what was wrong, if an answer is invalid', async () => {
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

  it('B18 continues after a decline, and keeps waiting after an error response to its question', async () => {
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

  it('D8 withdraws its pushed question when it is cancelled', async () => {
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

  it('D8 cannot be cancelled after it has ended', async () => {
    const connect = await start()
    const client = await connect('ada')
    const { taskId } = await create(client, 'only')
    await until(client, taskId, 'completed')
    expect(errorOf(await client.call('tasks/cancel', { taskId }))?.code).toBe(-32602)
    expect(resultOf(await client.call('tasks/get', { taskId })).status).toBe('completed')
  })

  it('D2 fails if its tool fails, with the result that the call would have returned', async () => {
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

  it('D2 fails with the error that the call would have returned', async () => {
    const connect = await start()
    const client = await connect('ada')
    const { taskId } = await create(client, 'breaks')
    const { statusMessage } = await until(client, taskId, 'failed')
    const error = errorOf(await client.call('tasks/result', { taskId }))
    expect(error).toMatchObject({ code: -32603, message: statusMessage })
  })

  it('says what to send instead if its client cannot be asked', async () => {
    const connect = await start()
    const client = await connect('ada', { capabilities: {} })
    const { taskId } = await create(client)
    const result = resultOf(await client.call('tasks/result', { taskId }))
    expect(result.isError).toBe(true)
    expect(JSON.stringify(result.content)).toContain('argument \\"name\\"')
  })

  it('F1 sends progress while tasks/result waits, to a client that asked for it', async () => {
    const connect = await start({ heartbeatMs: 50 })
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

  it('continues on another server when its own stops; a client that knows no event of its stream is told to retry', async () => {
    const store = createMemoryStore()
    const connect = await start({ store })
    const client = await connect('ada')
    const [busy, asking] = [await create(client, 'gated'), await create(client)]
    const waiting = client.call('tasks/result', { taskId: busy.taskId })
    const stream = await client.post({
      jsonrpc: '2.0',
      id: 'r',
      method: 'tasks/result',
      params: { taskId: asking.taskId },
    })
    const question = await stream.next()
    expect(question?.method).toBe('elicitation/create')
    const closing = servers.splice(0).map((server) => server.close())
    expect(errorOf(await waiting)?.code).toBe(-32000)
    // Its question stays valid: the stream ends, and is resumed elsewhere.
    expect(await stream.next()).toBeUndefined()
    const other = await (await start({ store }))('ada')
    await until(other, asking.taskId, 'input_required')
    for (const open of openings) open()
    await Promise.all(closing)
    await until(other, busy.taskId, 'completed')
  })

  it('does not push its question if there is no session, and keeps waiting', async () => {
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

  it('D1 is refused or required as the tool declares', async () => {
    const connect = await start()
    const client = await connect('ada')
    expect(errorOf(await client.call('tools/call', { name: 'only' }))?.code).toBe(-32601)
    expect(errorOf(await client.call('tools/call', { name: 'never', task: {} }))?.code).toBe(-32601)
    expect(resultOf(await client.call('tools/call', { name: 'never' }))).toMatchObject({
      content: [{ text: 'at once' }],
    })
  })

  it('F5 works for clients that take turns, as in any other session', async () => {
    const connect = await start()
    const experimental = { 'multi-turn-sse': {}, 'request-state': {} }
    const client = await connect('ada', { capabilities: { elicitation: {}, experimental } })
    expect(capabilitiesOf(client).experimental).toBeDefined()
    expect(capabilitiesOf(client).tasks).toBeDefined()
    const { taskId } = await create(client, 'only')
    await until(client, taskId, 'completed')
    expect(resultOf(await client.call('tasks/list')).tasks).toEqual([expect.objectContaining({ taskId })])
  })
})
