/** The calls of a session, served by hand. */

import { describe, expect, it } from 'vitest'
import { settle } from '../../../../test/support/session-instances.ts'
import {
  ADA,
  allowing,
  call,
  connect,
  type Served,
  type ServiceSetup,
  startService,
  VERSION,
} from '../../../../test/support/session-service.ts'
import type { StoredCall } from '../carry/push.ts'
import { RondoError } from '../errors.ts'
import type { Line } from '../protocol/call.ts'
import type { OlderReply } from '../protocol/reply.ts'
import { principalTag } from '../seal/state.ts'
import type { Load } from '../serve/port.ts'
import type { CallEnding } from './dispatch.ts'
import { createEntrance, deliver } from './entrance.ts'
import type { Older, Posted, PostOptions, SessionDraft } from './older.ts'

const OWNER = principalTag(ADA)
const ROOTS = { q: { method: 'roots/list', params: {} } } as const
const OK: OlderReply = { kind: 'complete', result: { content: [] } } as OlderReply
const KEPT = { claims: { flowExpires: 9e9, method: 'tools/call' } } as unknown as StoredCall
const answered = (id: unknown) => ({ jsonrpc: '2.0', id, result: {} })
const cancelled = (requestId: unknown) => ({
  jsonrpc: '2.0',
  method: 'notifications/cancelled',
  params: { requestId },
})
const never = () => new Promise<never>(() => {})

/** A service whose tool asks one question, which is kept if there is a store. */
const asking: ServiceSetup['answer'] = async ({ line }) => {
  const asked = await line.ask(ROOTS, { timeoutMs: 1_000, kept: KEPT })
  return asked.kind === 'answers'
    ? OK
    : ({ kind: 'error', error: new RondoError('PEER_REQUEST') } as OlderReply)
}

/** The weight of a message, and how often it is held. */
function weigh() {
  const state = { held: 0 }
  const hold = () => {
    state.held += 1
    let isHeld = true
    return () => {
      if (isHeld) state.held -= 1
      isHeld = false
    }
  }
  const load: Load = { weight: 5, weigh: () => true, hold, reclaim: async () => hold() }
  return { state, load }
}

describe('a request that changes its session', () => {
  it('gets an empty result', async () => {
    const { first } = startService({ hasStore: true })
    const headers = await first.begin()
    expect((await first.send('POST', call('p', 'ping', {}), headers)).messages()).toEqual([
      { jsonrpc: '2.0', id: 'p', result: {} },
    ])
    expect(first.writes).toEqual([])
    const level = call(1, 'logging/setLevel', { level: 'error' })
    expect((await first.send('POST', level, headers)).messages()).toMatchObject([{ result: {} }])
    const session = await first.shared.find(headers['mcp-session-id'], OWNER, 'ada')
    expect(session?.level).toBe('error')
  })

  it('F1 subscribes to a resource, whose changes are observed', async () => {
    const seen: unknown[] = []
    let change = () => {}
    const watchResource = (uri: string, principal: unknown, changed: () => void) => {
      seen.push([uri, principal])
      change = changed
      return uri === 'a' ? () => {} : undefined
    }
    const { first } = startService({ older: { watchResource } })
    const headers = await first.begin()
    const own = first.request('GET', undefined, headers)
    const subscribe = (uri: string) => first.send('POST', call(1, 'resources/subscribe', { uri }), headers)
    expect((await subscribe('a')).messages()).toMatchObject([{ id: 1, result: {} }])
    change()
    expect(own.messages()).toMatchObject([
      { method: 'notifications/resources/updated', params: { uri: 'a' } },
    ])
    expect((await subscribe('b')).messages()).toMatchObject([{ error: { code: -32601 } }])
    expect(seen).toEqual([
      ['a', ADA],
      ['b', ADA],
    ])
    const unsubscribe = await first.send('POST', call(2, 'resources/unsubscribe', { uri: 'a' }), headers)
    expect(unsubscribe.messages()).toMatchObject([{ result: {} }])
  })

  it('R11 gets an error if it fails, which the operator learns of', async () => {
    const { first, errors, faults } = startService()
    const headers = await first.begin()
    const fault = new Error('broken')
    const level = () => first.send('POST', call(1, 'logging/setLevel', { level: 'error' }), headers)
    first.older.shared.change = () => Promise.reject(fault)
    expect((await level()).messages()).toMatchObject([{ id: 1, error: { code: -32603 } }])
    expect([errors, faults]).toEqual([[fault], []])
    const away = new RondoError('STORE_UNAVAILABLE')
    first.older.shared.change = () => Promise.reject(away)
    expect((await level()).messages()).toMatchObject([{ id: 1, error: {} }])
    expect([errors.length, faults]).toEqual([1, [away]])
  })

  it('is not initialize', async () => {
    const { first } = startService()
    const headers = await first.begin('2025-03-26')
    const params = { protocolVersion: VERSION, capabilities: {}, clientInfo: { name: 'c', version: '1' } }
    const { messages } = await first.send('POST', [call(1, 'initialize', params)], headers)
    expect(messages()).toMatchObject([{ id: 1, error: { code: -32600 } }])
  })
})

describe('a batch', () => {
  it('R9 has so many messages', async () => {
    const { first } = startService()
    const headers = await first.begin('2025-03-26')
    const many = (count: number) => Array.from({ length: count }, (_, id) => call(id, 'ping', {}))
    expect((await first.send('POST', many(64), headers)).messages()).toHaveLength(64)
    expect((await first.send('POST', many(65), headers)).seen.failed?.status).toBe(400)
    const newer = await first.begin()
    expect((await first.send('POST', many(1), newer)).seen.failed?.status).toBe(400)
  })
})

describe('a call', () => {
  it('is in flight until it has ended', async () => {
    const { first, served } = startService({ answer: asking })
    const headers = await first.begin()
    const { messages, done } = first.request('POST', call(1), headers)
    await settle()
    let isIdle = false
    void first.inFlight.idle().then(() => {
      isIdle = true
    })
    await settle()
    expect([isIdle, served[0]?.line.waiting]).toEqual([false, true])
    expect(first.watched()).toEqual([{ call: served[0]?.call, line: served[0]?.line }])
    await first.send('POST', answered(messages()[0]?.id), headers)
    await done
    await settle()
    expect(isIdle).toBe(true)
  })

  it('N2 has its arguments while it runs, and not while it waits', async () => {
    const seen: unknown[] = []
    const { state, load } = weigh()
    const answer: ServiceSetup['answer'] = async (served) => {
      const { call, line } = served
      const args = () => (call as { args?: unknown }).args
      seen.push([args(), state.held])
      const asked = line.ask(ROOTS, { timeoutMs: 1_000 })
      await settle()
      seen.push([args(), state.held])
      await asked
      seen.push([args(), state.held])
      return OK
    }
    const { first } = startService({ answer })
    const headers = await first.begin()
    const bytes = first.table.keptBytes
    const given = { name: 'a', arguments: { a: 1 } }
    const { messages, done } = first.request('POST', call(1, 'tools/call', given), headers, ADA, load)
    await settle()
    await settle()
    expect(first.table.keptBytes).toBeGreaterThan(bytes + 8_192)
    await first.send('POST', answered(messages()[0]?.id), headers)
    await done
    await settle()
    expect(seen).toEqual([
      [{ a: 1 }, 2],
      [{}, 0],
      [{ a: 1 }, 1],
    ])
    expect(state.held).toBe(0)
  })

  it('N2 weighs until it has ended, whatever its kind', async () => {
    const { state, load } = weigh()
    const { first } = startService({ answer: never })
    const headers = await first.begin()
    const list = first.request('POST', call(1, 'tools/list', {}), headers, ADA, load)
    await settle()
    expect(state.held).toBe(1)
    await first.send('POST', cancelled(1), headers)
    await list.done
    const refused = await first.send('POST', call(1, 'tools/list', {}), headers, ADA, load)
    expect([refused.messages()[0], refused.seen.sent?.status]).toMatchObject([
      { id: 1, error: { code: -32600 } },
      200,
    ])
    await settle()
    expect(state.held).toBe(1)
  })

  it('is refused while the server stops', async () => {
    const { first, state, served } = startService()
    const headers = await first.begin()
    state.draining = true
    const { messages, seen } = await first.send('POST', call(1), headers)
    expect([messages()[0], seen.sent?.status]).toMatchObject([{ id: 1, error: { code: -32000 } }, 200])
    expect(served).toEqual([])
  })

  it('of a caller who cannot be told apart lists no tasks', async () => {
    const { first, served } = startService({ more: { sessions: false } })
    const headers = { 'mcp-protocol-version': VERSION }
    const list = (principal: never) => first.send('POST', call(1, 'tasks/list', {}), headers, principal)
    const entrance = await list(ADA as never)
    expect(entrance.messages()).toMatchObject([{ id: 1 }])
    expect(served).toHaveLength(1)
    const end = connect()
    createEntrance(first.post).post(call(2, 'tasks/list', {}), {
      method: 'POST',
      headers,
      principal: undefined,
      outlet: end.outlet,
    })
    await end.done
    expect(end.messages()).toMatchObject([{ id: 2, error: { code: -32601 } }])
    expect(served).toHaveLength(1)
    const other = connect()
    createEntrance(first.post).post(call(3, 'tools/list', {}), {
      method: 'POST',
      headers,
      principal: undefined,
      outlet: other.outlet,
    })
    await other.done
    expect([other.messages()[0]?.id, served.length]).toEqual([3, 2])
  })

  it('ends for a client that cancels it, even if nobody listens', async () => {
    const { first, served } = startService({ answer: never })
    const headers = await first.begin()
    const { done, seen, messages } = first.request('POST', call(1), headers)
    await settle()
    await first.send('POST', { ...cancelled(1), method: 'notifications/other' }, headers)
    expect(served[0]?.line.closed).toBe(false)
    await first.send('POST', cancelled(1), headers)
    await done
    expect([served[0]?.line.closed, seen.sent?.status, messages()]).toEqual([true, 202, []])
  })

  it('gets no response after it was cancelled', async () => {
    let finish = (_: OlderReply) => {}
    const answer = () => new Promise<OlderReply>((resolve) => (finish = resolve))
    const { first, errors } = startService({ answer })
    const headers = await first.begin()
    const { seen } = first.request('POST', call(1), headers)
    await settle()
    await first.send('POST', cancelled(1), headers)
    finish(OK)
    await settle()
    expect([seen.sent?.status, errors]).toEqual([202, []])
  })

  it('R11 gets an error if its reply cannot be encoded, or the service fails', async () => {
    const replies: (() => OlderReply)[] = [
      () => ({ kind: 'error', error: new RondoError('PEER_REQUEST', undefined, { data: { n: 1n } }) }),
      () => {
        throw new Error('broken')
      },
    ]
    const { first, errors } = startService({ answer: () => replies.shift()?.() ?? OK })
    const headers = await first.begin()
    for (const id of [1, 2]) {
      const { messages } = await first.send('POST', call(id), headers)
      expect(messages()).toMatchObject([{ id, error: { code: -32603 } }])
    }
    expect(errors).toMatchObject([{ name: 'TypeError' }, { message: 'broken' }])
  })

  it('R11 fails as a request if it cannot begin', async () => {
    const { first, errors } = startService({ hasStore: true })
    const headers = await first.begin()
    const fault = new Error('broken')
    Object.assign(first.older.shared, {
      hold: () => {
        throw fault
      },
    })
    const { state, load } = weigh()
    const { seen } = await first.send('POST', call(1), headers, ADA, load)
    await settle()
    expect([seen.failed?.body.includes('-32603'), errors, state.held]).toEqual([true, [fault], 0])
    await first.send('POST', call(2, 'tasks/result', { taskId: 'task' }), headers)
    expect(errors).toEqual([fault, fault])
  })

  it('G7 is followed as a task once the client knows its id', async () => {
    const task = { taskId: 'task', status: 'working', createdAt: 0, lastUpdatedAt: 0, ttlMs: 1 }
    const answer = ({ call }: Served): OlderReply =>
      call.kind === 'list'
        ? OK
        : ({ kind: call.kind === 'flow' ? 'task_created' : 'task', task } as unknown as OlderReply)
    const order: string[] = []
    const notifyOfTask: Older['notifyOfTask'] = (_session, { taskId }, { id }) =>
      void order.push(`${taskId} of ${id} after ${count()}`)
    const { first, errors } = startService({ answer, older: { notifyOfTask } })
    const headers = await first.begin()
    let seen: (() => unknown[]) | undefined
    const count = () => seen?.().length
    for (const one of [
      call(1, 'tools/call', { name: 'a', arguments: {}, task: {} }),
      call(2, 'tasks/get', { taskId: 'task' }),
    ]) {
      const end = first.request('POST', one, headers)
      seen = end.messages
      await end.done
      await settle()
    }
    await first.send('POST', call(3, 'tools/list', {}), headers)
    await settle()
    expect([order, errors]).toEqual([['task of 1 after 1', 'task of 2 after 1'], []])
  })
})

describe('a call with a store', () => {
  const recordOf = (part: ReturnType<typeof startService>['first'], id = 0) =>
    part.writes.map(({ id }) => id).filter((one) => one.includes(' call '))[id]

  it('kept 1: is kept while it waits, and so is its response', async () => {
    const { first } = startService({ answer: asking, hasStore: true })
    const headers = await first.begin()
    const params = { name: 'a', arguments: { a: 1 }, _meta: { progressToken: 'p' } }
    const { messages, done } = first.request('POST', call(1, 'tools/call', params), headers)
    await settle()
    await settle()
    const [question] = messages()
    const stream = String(question?.id).split('.')[0] ?? ''
    expect(recordOf(first)).toBe(`test call ${stream}`)
    await first.send('POST', answered(question?.id), headers)
    await done
    expect(messages().at(-1)).toMatchObject({ id: 1, result: {} })
    expect(first.writes.at(-1)?.owner).toBe('ended ada')
  })

  it('kept 1: is found with its request', async () => {
    const { access } = allowing(['read'], ['read'])
    const { first, second } = startService({ answer: asking, hasStore: true, more: { access } })
    const headers = await first.begin()
    const params = { name: 'book', arguments: { a: 1 }, _meta: { progressToken: 'p' } }
    const { messages } = first.request('POST', call(1, 'tools/call', params), headers)
    await settle()
    await settle()
    const stream = String(messages()[0]?.id).split('.')[0] ?? ''
    const found = await second.shared.parts?.kept.find(
      (await second.shared.find(headers['mcp-session-id'], OWNER, 'ada')) as never,
      stream,
    )
    expect(found?.value).toMatchObject({
      request: { id: 1, target: 'book', args: { a: 1 }, progressToken: 'p' },
      protocolVersion: VERSION,
      scopes: ['read'],
    })
  })

  it('R7 gets its response from the instance that has it', async () => {
    const { first } = startService({ answer: asking, hasStore: true })
    const headers = await first.begin()
    const { hold } = first.older.shared
    Object.assign(first.older.shared, {
      hold: (...args: Parameters<NonNullable<typeof hold>>) => ({
        ...hold?.(...args),
        settle: async () => false,
      }),
    })
    const { messages, done } = first.request('POST', call(1), headers)
    await settle()
    await settle()
    await first.send('POST', answered(messages()[0]?.id), headers)
    await done
    expect(messages()).toHaveLength(1)
  })

  it('is kept if it waits for a task, and not if nobody could resume it', async () => {
    const terms: unknown[] = []
    const answer: ServiceSetup['answer'] = async ({ line }) => {
      terms.push(line.durable)
      return OK
    }
    const { first } = startService({ answer, hasStore: true })
    const headers = await first.begin('2025-03-26')
    const newer = { ...headers, 'mcp-protocol-version': VERSION }
    await first.send('POST', call(1, 'tasks/result', { taskId: 'task' }), newer)
    await first.send('POST', call(2, 'tools/list', {}), newer)
    await first.send('POST', [call(3), call(4)], headers)
    await first.send('POST', [call(5)], headers)
    expect(terms).toEqual([true, false, false, false, true])
    const alone = startService({ answer, hasStore: true, more: { sessions: false } })
    await alone.first.send('POST', call(1))
    expect(terms.at(-1)).toBe(false)
  })

  it('is kept under the task that it waits for', async () => {
    const answer: ServiceSetup['answer'] = async ({ line }) => {
      await line.ask(ROOTS, { timeoutMs: 1_000, task: 'task' })
      return OK
    }
    const { first, second } = startService({ answer, hasStore: true })
    const headers = await first.begin()
    const { messages } = first.request('POST', call(1, 'tasks/result', { taskId: 'task' }), headers)
    await settle()
    await settle()
    const stream = String(messages()[0]?.id).split('.')[0] ?? ''
    const session = await second.shared.find(headers['mcp-session-id'], OWNER, 'ada')
    const found = await second.shared.parts?.kept.find(session as never, stream)
    expect(found?.value).toMatchObject({ task: 'task', request: { target: 'task', args: {} } })
  })
})

describe('a call of a draft', () => {
  const TURNS = { 'mcp-session-id': 't.one' }
  const start = (begin: (line: Line) => Promise<CallEnding>) => {
    const draft = {
      experimental: [],
      takes: () => true,
      async post(options: PostOptions, posted: Posted) {
        const session = service.first.session('ada', undefined, 't.one')
        const dialect = options.older.codecs.session(VERSION)
        const peer = { protocolVersion: VERSION, capabilities: {} }
        const decoded = [dialect.decode(posted.message, peer)]
        await deliver(options, session, VERSION, decoded, posted, (_, line) => begin(line))
      },
    } as unknown as SessionDraft
    const service = startService({ older: { draft }, hasStore: true })
    return service
  }

  it('ends with questions instead of a response', async () => {
    const { first } = start(async () => ({
      kind: 'events',
      events: [{ id: 'q', text: 'id: q\ndata: 1\n\n' }],
    }))
    const { seen } = await first.send('POST', call(1), TURNS)
    expect([seen.text.includes('id: q\ndata: 1'), seen.ends]).toEqual([true, 1])
  })

  it('ends without a response if another request has taken it', async () => {
    const { first } = start(async () => ({ kind: 'taken' }))
    expect((await first.send('POST', call(1), TURNS)).seen.sent?.status).toBe(202)
  })

  it('is served by the draft, unlike other requests of its client, and is not kept', async () => {
    const durable: unknown[] = []
    const { first, served } = start(async (line) => {
      durable.push((line as Served['line']).durable)
      return OK as CallEnding
    })
    await first.send('POST', call(1), TURNS)
    await first.send('POST', call(2, 'tools/list', {}), TURNS)
    expect([durable, served.length]).toEqual([[false], 1])
  })

  it('reaches its own instance with its answers', async () => {
    const { first } = start(async () => OK as CallEnding)
    let asked = 0
    Object.assign(first.older.shared, {
      answer: async () => {
        asked += 1
        return true
      },
    })
    await first.send('POST', answered('ask.1'), TURNS)
    expect(asked).toBe(0)
  })
})
