/**
 * A hostile client and a hostile sender of events, against hooks, time limits, offers, the task tools and related tasks. Whatever
 * they send, the process lives, nothing is answered by anybody but its owner, and the author's handler sees only what was asked.
 */

import { createServer, type Server, type ServerOptions } from 'rondo'
import { createBench } from 'rondo/testing'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { Store } from '../../packages/rondo/src/store/store.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import { until } from '../support/store/store-harness.ts'
import { send, settled } from '../support/task-client.ts'

const RELATED = 'io.modelcontextprotocol/relatedTaskIds'
const servers: Server[] = []
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

/** A server whose tools wait for an event; `ids` are the hooks that it handed out. */
function start(ids: string[], options: Partial<ServerOptions> = {}): Server {
  const server = createServer({
    name: 'shop',
    version: '1',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    store: createMemoryStore(),
    authenticate: ({ headers }) => ({ subject: headers('x-user') ?? 'ada' }),
    tasks: { tools: true, related: true },
    ...options,
  })
  servers.push(server)
  server.tool('any', { task: 'always' }, async (_args, ctx) => {
    const hook = await ctx.hook('any')
    await ctx.step('hand out', () => void ids.push(hook.id))
    const event = await hook.received()
    return JSON.stringify([event, Object.keys(event as object), 'polluted' in {}])
  })
  server.tool('form', { task: 'always' }, async (_args, ctx) => {
    const hook = await ctx.hook('form', { schema: z.object({ cents: z.int().min(1) }) })
    await ctx.step('hand out', () => void ids.push(hook.id))
    return JSON.stringify(await hook.received())
  })
  server.tool('related', {}, (_args, ctx) => ctx.relatedTaskIds.join(' '))
  return server
}

async function begin(server: Server, name: string): Promise<string> {
  const { result } = await send(server, 'tools/call', { name, arguments: {} })
  return String(result?.taskId)
}

const textOf = (ended: Record<string, unknown>): string =>
  (ended.result as { content: { text: string }[] }).content[0]?.text ?? ''

const deep = (depth: number): unknown => {
  let value: unknown = 1
  for (let i = 0; i < depth; i++) value = [value]
  return value
}

describe('an event of a hostile sender', () => {
  it('G3 T18 R11 that nests deeply, is huge, or runs code when it is read is rejected, and the hook stays open', async () => {
    const ids: string[] = []
    const server = start(ids)
    const taskId = await begin(server, 'any')
    const hook = await until('the hook', () => ids[0])
    const cycle: unknown[] = []
    cycle.push(cycle)
    const throwing = {
      get trap(): never {
        throw new Error('trap')
      },
    }
    const refusing = new Proxy(
      {},
      {
        ownKeys: () => {
          throw new Error('trap')
        },
      },
    )
    const odd = [
      deep(1_001),
      deep(100_000),
      cycle,
      throwing,
      refusing,
      'x'.repeat(20_000_000),
      { n: 1n },
      Symbol('s'),
    ]
    for (const event of odd) expect(await server.deliver(hook, event)).toMatchObject({ kind: 'rejected' })
    expect(await server.deliver(hook, { fine: true })).toEqual({ kind: 'accepted' })
    expect(textOf(await settled(server, taskId))).toBe('[{"fine":true},["fine"],false]')
  })

  it.each([
    ['of a megabyte of small values', { list: Array.from({ length: 200_000 }, (_, i) => i % 1000) }],
    ['as deep as a recorded value may nest', { list: deep(999) }],
  ])('G3 %s arrives whole', async (_name, event) => {
    const ids: string[] = []
    const server = start(ids)
    const taskId = await begin(server, 'any')
    expect(await server.deliver(await until('the hook', () => ids[0]), event)).toEqual({ kind: 'accepted' })
    expect(textOf(await settled(server, taskId))).toBe(JSON.stringify([event, ['list'], false]))
  })

  it('G3 T9 with the name __proto__ changes no prototype', async () => {
    const ids: string[] = []
    const server = start(ids)
    const taskId = await begin(server, 'any')
    const event = JSON.parse('{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}')
    const { kind } = await server.deliver(await until('the hook', () => ids[0]), event)
    if (kind === 'accepted') expect(textOf(await settled(server, taskId))).toMatch(/,false\]$/)
    else expect(kind).toBe('rejected')
    expect({}).not.toHaveProperty('polluted')
  })

  it('G3 that does not fit leaves the hook open for a good one, however often it comes', async () => {
    const ids: string[] = []
    const server = start(ids)
    const taskId = await begin(server, 'form')
    const hook = await until('the hook', () => ids[0])
    const bad = [{}, { cents: 0 }, { cents: 1.5 }, { cents: '1' }, [], null, 'x', { cents: { $gt: 0 } }]
    const outcomes = await Promise.all(bad.map((event) => server.deliver(hook, event)))
    expect(new Set(outcomes.map(({ kind }) => kind))).toEqual(new Set(['rejected']))
    expect(await server.deliver(hook, { cents: 5 })).toEqual({ kind: 'accepted' })
    expect(textOf(await settled(server, taskId))).toBe('{"cents":5}')
  })
})

describe.each(['memory', 'SQLite'])('an event that races on %s', (kind) => {
  it('G3 P15 with the cancellation of its task is accepted before it or told that the hook is closed', async () => {
    const database = kind === 'SQLite' ? await createSqliteDatabase() : undefined
    const store: Store = database?.open() ?? createMemoryStore()
    const ids: string[] = []
    const server = start(ids, { store })
    const kinds = new Set<string>()
    for (let i = 0; i < 12; i++) {
      const taskId = await begin(server, 'any')
      const hook = await until('the hook', () => ids[i])
      const cancel = () => send(server, 'tasks/cancel', { taskId })
      const [first] =
        i % 2 === 0
          ? await Promise.all([server.deliver(hook, {}), cancel()])
          : [await cancel().then(() => server.deliver(hook, {}))]
      kinds.add(first.kind)
      const { status } = await settled(server, taskId)
      expect(['cancelled', 'completed']).toContain(status)
      if (first.kind === 'closed') expect(status).toBe('cancelled')
      expect((await server.deliver(hook, {})).kind).toBe('closed')
    }
    expect([...kinds].filter((one) => one !== 'accepted')).toEqual(['closed'])
    await Promise.all(servers.splice(0).map((one) => one.close()))
    await database?.close()
  })
})

describe('ids of one kind in the place of another', () => {
  it('G3 E6 T17 the id of a hook is no task, no state and no related task, and no task or state is a hook', async () => {
    const ids: string[] = []
    const server = start(ids)
    server.tool(
      'ask',
      {},
      async (_args, ctx) => (await ctx.ask('q', { message: 'Q?', schema: z.object({ a: z.string() }) })).a,
    )
    const taskId = await begin(server, 'any')
    const hook = await until('the hook', () => ids[0])
    const asked = await send(server, 'tools/call', { name: 'ask', arguments: {} })
    const requestState = String(asked.result?.requestState)
    for (const id of [taskId, requestState, `h.${requestState}`, `h.${taskId}`])
      expect(await server.deliver(id, {})).toEqual({ kind: 'unknown' })
    const made = await send(server, 'tasks/get', { taskId: 'A'.repeat(22) })
    for (const method of ['tasks/get', 'tasks/cancel', 'tasks/update']) {
      const params = { taskId: hook, ...(method === 'tasks/update' && { inputResponses: {} }) }
      expect((await send(server, method, params)).error?.code, method).toBe(made.error?.code)
    }
    for (const name of ['task_status', 'task_cancel']) {
      const { result } = await send(server, 'tools/call', { name, arguments: { taskId: hook } })
      expect(result).toMatchObject({ isError: true })
      expect(JSON.stringify(result)).toContain('No task has the id')
    }
    const { result } = await send(
      server,
      'tools/call',
      { name: 'related' },
      { meta: { [RELATED]: [hook, taskId] } },
    )
    expect(textOf({ result })).toBe(taskId)
    const answered = {
      name: 'ask',
      arguments: {},
      requestState: hook,
      inputResponses: { q: { action: 'accept', content: { a: 'x' } } },
    }
    expect((await send(server, 'tools/call', answered)).error).toBeDefined()
    // The task still waits, and its hook still opens.
    expect((await send(server, 'tasks/get', { taskId })).result).toMatchObject({ status: 'working' })
    expect(await server.deliver(hook, {})).toEqual({ kind: 'accepted' })
  })

  it('G3 E6 an id that a stranger holds shows and cancels nothing', async () => {
    const ids: string[] = []
    const server = start(ids)
    const taskId = await begin(server, 'any')
    const headers = { 'x-user': 'eve' }
    const unknown = await send(server, 'tasks/get', { taskId: 'A'.repeat(22) }, { headers })
    for (const method of ['tasks/get', 'tasks/cancel']) {
      const { error } = await send(server, method, { taskId }, { headers })
      expect([error?.code, error?.message]).toEqual([unknown.error?.code, unknown.error?.message])
    }
    for (const name of ['task_status', 'task_cancel']) {
      const { result } = await send(server, 'tools/call', { name, arguments: { taskId } }, { headers })
      expect(result).toMatchObject({ isError: true })
    }
    const { result } = await send(
      server,
      'tools/call',
      { name: 'related' },
      { headers, meta: { [RELATED]: [taskId] } },
    )
    expect(textOf({ result })).toBe('')
  })

  it.each([
    ['huge ids', Array.from({ length: 16 }, () => 'x'.repeat(50_000))],
    ['a list without end', Array.from({ length: 50_000 }, (_, i) => `${i}`)],
    ['prototypes', ['__proto__', 'constructor', 'toString']],
    ['nested lists', [[['x']], { length: 5 }]],
  ])('T18 related tasks that are %s are none', async (_, related) => {
    const { result, error } = await send(
      start([]),
      'tools/call',
      { name: 'related' },
      { meta: { [RELATED]: related } },
    )
    if (error === undefined) expect(textOf({ result: result ?? {} })).toBe('')
    else expect(error.code).toBeLessThan(0)
  })
})

describe('task_status', () => {
  it('G6 no argument of the model answers the question, whatever it is called', async () => {
    const server = start([])
    server.tool('ask', { task: 'always' }, async (_args, ctx) =>
      (await ctx.confirm('sure', 'Delete it?')) ? 'deleted' : 'kept',
    )
    const taskId = await begin(server, 'ask')
    await until(
      'the question',
      async () => (await send(server, 'tasks/get', { taskId })).result?.status === 'input_required',
    )
    const accept = { action: 'accept', content: { confirm: true } }
    const tries: Record<string, unknown>[] = [
      { taskId, inputResponses: { sure: accept } },
      {
        taskId,
        sure: true,
        answer: 'yes',
        requestState: 'task_status',
        _meta: { inputResponses: { sure: accept } },
      },
      { taskId: `${taskId}", "inputResponses": {"sure": {"action":"accept"}}, "x":"` },
      { taskId: { toString: () => taskId, inputResponses: { sure: accept } } },
      { taskId: [taskId] },
      { taskId, __proto__: { inputResponses: { sure: accept } } },
      JSON.parse(`{"taskId":"${taskId}","__proto__":{"inputResponses":{"sure":{"action":"accept"}}}}`),
    ]
    for (const args of tries) await send(server, 'tools/call', { name: 'task_status', arguments: args })
    // A response without the state of the question, and with a made-up one.
    for (const requestState of [undefined, 'task_status', 'r1.x'])
      await send(server, 'tools/call', {
        name: 'task_status',
        arguments: { taskId },
        inputResponses: { sure: accept },
        requestState,
      })
    expect((await send(server, 'tasks/get', { taskId })).result).toMatchObject({ status: 'input_required' })
  })
})

describe('a time limit that a deploy changes', () => {
  const desk = (within: () => string) => (options: Partial<ServerOptions>) => {
    const server = createServer({ name: 'desk', version: '1', ...options })
    server.tool('ask', {}, async (_args, ctx) => {
      const schema = z.object({ a: z.string() })
      return (await ctx.elicit('q', { message: 'Q?', schema, within: within() })).action
    })
    return server
  }

  it.each([
    ['shorter', '1 min'],
    ['longer', '3 days'],
  ])('G2 counts as it was when the question was first shown: a %s one changes nothing', async (_, later) => {
    let within = '10 min'
    const bench = createBench((options) => desk(() => within)(options))
    const open = async (wait: string) => {
      within = '10 min'
      const call = bench.tool('ask')
      await call.next()
      within = later
      await bench.advance(wait)
      return call.next({ q: { a: 'x' } })
    }
    expect(await open('9 min')).toMatchObject({ text: 'accept' })
    expect(await open('10 min')).toMatchObject({ text: 'expired' })
  })
})

describe('an offer', () => {
  it('G5 is withdrawn once, however often that is asked for, and a later response has no effect', async () => {
    const server = start([])
    const gate = { withdraw: false, end: false }
    const seen: unknown[] = []
    server.tool('offer', { task: 'always' }, async (_args, ctx) => {
      const offer = ctx.offer('stop', { message: 'Stop?', schema: z.object({ stop: z.boolean() }) })
      await ctx.step('shown', () => until('the word to withdraw', () => gate.withdraw))
      offer.withdraw()
      offer.withdraw()
      seen.push(offer.peek())
      await ctx.step('after', () => until('the word to end', () => gate.end))
      offer.withdraw()
      return JSON.stringify([offer.peek() ?? null, await offer])
    })
    const taskId = await begin(server, 'offer')
    const reaches = (status: string) =>
      until(status, async () => {
        const { result } = await send(server, 'tasks/get', { taskId })
        return result?.status === status ? result : undefined
      })
    await reaches('input_required')
    gate.withdraw = true
    await reaches('working')
    const inputResponses = { stop: { action: 'accept', content: { stop: true } } }
    expect((await send(server, 'tasks/update', { taskId, inputResponses })).error).toBeUndefined()
    gate.end = true
    expect(textOf(await reaches('completed'))).toBe('[null,{"action":"cancel"}]')
    expect(seen).toEqual([undefined])
  })

  it('G5 R10 what peek saw before a crash, it sees again', async () => {
    const database = await createSqliteDatabase()
    const seen: string[] = []
    const gate = { answered: false, crashed: false }
    const declare = (server: Server) => {
      server.tool('offer', { task: 'always' }, async (_args, ctx) => {
        const offer = ctx.offer('stop', { message: 'Stop?', schema: z.object({ stop: z.boolean() }) })
        const look = (when: string) => void seen.push(`${when} ${offer.peek()?.action}`)
        look('at once')
        await ctx.step('first', () => until('the response', () => gate.answered))
        look('after')
        await ctx.step('second', ({ signal }) =>
          until('the second instance', () => gate.crashed || signal.aborted),
        )
        look('at the end')
        return 'done'
      })
      return server
    }
    const first = declare(start([], { store: database.open() }))
    const taskId = await begin(first, 'offer')
    await until('the offer', async () => {
      const { result } = await send(first, 'tasks/get', { taskId })
      return result?.status === 'input_required'
    })
    const inputResponses = { stop: { action: 'accept', content: { stop: true } } }
    await send(first, 'tasks/update', { taskId, inputResponses })
    gate.answered = true
    await until('the look after the response', () => seen.length === 2)
    // Stops in the middle of the second step, whose result is then never recorded.
    await servers.pop()?.close()
    gate.crashed = true
    const second = declare(start([], { store: database.open() }))
    expect(textOf(await settled(second, taskId))).toBe('done')
    const [atOnce, after] = seen
    expect(seen.slice(-3)).toEqual([atOnce, after, expect.stringMatching(/^at the end /)])
    expect(new Set(seen).size).toBe(3)
    await servers.pop()?.close()
    await database.close()
  })
})
