/**
 * Tasks on the wire of 2026-07-28 (extension io.modelcontextprotocol/tasks).
 */

import { createServer } from 'rondo'
import { describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { create, EXTENSION, keys, start } from '../support/published-tasks.ts'
import { follow, send, settled } from '../support/task-client.ts'

const FORM_ONLY = { elicitation: {} }

describe('a server that creates tasks', () => {
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

  it('returns the flat form that the extension defines', async () => {
    const { result = {} } = await send(start(), 'tools/call', { name: 'always' })
    expect(Object.keys(result).sort()).toEqual(
      [
        '_meta',
        'createdAt',
        'lastUpdatedAt',
        'pollIntervalMs',
        'resultType',
        'status',
        'statusMessage',
        'taskId',
        'ttlMs',
      ].sort(),
    )
    expect(result).toMatchObject({
      ttlMs: 60_000,
      pollIntervalMs: expect.any(Number),
      createdAt: expect.stringMatching(/^\d{4}-.*Z$/),
    })
  })

  it('throws at definition time if a task has no store', () => {
    const server = createServer({ name: 'no store', version: '1', keys, log: 'off' })
    expect(() => server.tool('always', { task: 'always' }, () => '')).toThrow(/store/)
  })
})

describe('a server whose task is followed', () => {
  it('E3 inlines questions, accepts partial answers, ignores unknown keys, and ends with the result', async () => {
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

  it('E3 E6 T17 rejects unknown, foreign and malformed ids with the same error', async () => {
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

  it('E7 has no tasks/result and no tasks/list, and refuses task methods to clients without the extension', async () => {
    const server = start()
    const taskId = await create(server, 'auto')
    for (const method of ['tasks/result', 'tasks/list', 'tasks/input_response']) {
      expect((await send(server, method, { taskId })).error?.code).toBe(-32601)
    }
    expect((await send(server, 'tasks/get', { taskId: 'x' }, { capabilities: FORM_ONLY })).error?.code).toBe(
      -32021,
    )
  })

  it('E8 reports completed if the tool fails, and failed if the runtime does', async () => {
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

describe('a call that becomes a task in the middle', () => {
  it.each(['step', 'result', 'question'])(
    'R9 fails at once and with a reason if its %s is larger than a piece may be',
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
        error: { code: -32603, message: 'The state of this call is larger than the server allows' },
      })
      expect(turns).toBe(1)
    },
  )

  it('R9 may have a piece of exactly the maximum size', async () => {
    const server = start({ tasks: { maxPieceBytes: 4_096 } })
    server.tool('fits', { task: 'always' }, async (_args, ctx) => ctx.step('some', () => 'x'.repeat(2_000)))
    expect(await settled(server, await create(server, 'fits'))).toMatchObject({ status: 'completed' })
  })

  it('D9 asks in rounds first, then continues as a task with its journal', async () => {
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

  it('D9 continues in rounds for a client that does not support tasks', async () => {
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

  it('leaves its request if it outgrows its token', async () => {
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

  it('leaves its request if its round takes longer than maxRoundMs', async () => {
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
