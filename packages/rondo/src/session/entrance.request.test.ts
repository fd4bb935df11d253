/** Requests of older clients, in front of a service that is written by hand. */

import { describe, expect, it } from 'vitest'
import { settle } from '../../../../test/support/session-instances.ts'
import {
  ADA,
  allowing,
  call,
  connect,
  type Exchange,
  type ServiceSetup,
  startService,
  VERSION,
} from '../../../../test/support/session-service.ts'
import type { StoredCall } from '../carry/push.ts'
import { RondoError } from '../errors.ts'
import type { OlderReply } from '../protocol/reply.ts'
import type { Load } from '../serve/port.ts'
import { createEntrance } from './entrance.ts'
import type { SessionDraft } from './older.ts'

const DRAFT = 'DRAFT-2026-v1'
const ROOTS = { q: { method: 'roots/list', params: {} } } as const
const OK: OlderReply = { kind: 'complete', result: { content: [] } } as OlderReply
const INITIALIZE = {
  jsonrpc: '2.0',
  id: 0,
  method: 'initialize',
  params: { protocolVersion: VERSION, capabilities: {}, clientInfo: { name: 'c', version: '1' } },
}
const KEPT = { claims: { flowExpires: 9e9 } } as unknown as StoredCall
const noted = (method: string, params: object = {}) => ({ jsonrpc: '2.0', method, params })
const answered = (id: unknown, more: object = {}) => ({ jsonrpc: '2.0', id, result: {}, ...more })
const errorOf = ({ messages }: Exchange) => messages()[0]?.error
/** The id of the last event of a stream. */
const lastOf = (text: string): string => [...text.matchAll(/^id: (.+)$/gm)].at(-1)?.[1] ?? ''

/** A service whose tool asks one question. */
const asking: ServiceSetup['answer'] = async ({ line }) => {
  const asked = await line.ask(ROOTS, { timeoutMs: 1_000, kept: KEPT })
  return asked.kind === 'answers'
    ? OK
    : ({ kind: 'error', error: new RondoError('PEER_REQUEST') } as OlderReply)
}

describe('initialize', () => {
  it('F1 begins a session, whose id is in the header', async () => {
    const { first, admitted } = startService()
    const { seen, messages } = await first.send('POST', INITIALIZE)
    const id = seen.sent?.headers['Mcp-Session-Id'] ?? ''
    expect(seen.sent).toMatchObject({ status: 200, headers: { 'Content-Type': 'application/json' } })
    expect(messages()).toMatchObject([
      { id: 0, result: { protocolVersion: VERSION, session: true, known: true, tasks: true } },
    ])
    expect(admitted).toEqual([{ calls: [], principal: ADA, also: [] }])
    expect(first.table.size).toBe(1)
    expect(id.startsWith('s.')).toBe(true)
  })

  it('F1 is told what is served to callers who cannot be told apart', async () => {
    const { first } = startService()
    const { outlet, done, messages } = connect()
    const request = { method: 'POST', headers: {}, principal: undefined, outlet }
    createEntrance(first.post).post(INITIALIZE, request)
    await done
    expect(messages()).toMatchObject([{ result: { known: false } }])
  })

  it('begins none where there are no sessions', async () => {
    const { first } = startService({ more: { sessions: false } })
    const { seen, messages } = await first.send('POST', INITIALIZE)
    expect(seen.sent?.headers).not.toHaveProperty('Mcp-Session-Id')
    expect(messages()).toMatchObject([{ result: { session: false } }])
    expect(first.table.size).toBe(0)
  })

  it('is refused with the headers of a server that stops', async () => {
    const { first, state, refused } = startService()
    state.draining = true
    const { seen } = await first.send('POST', INITIALIZE)
    expect(seen.failed).toMatchObject({ status: 503, headers: { 'Retry-After': '1' } })
    expect([first.table.size, refused]).toEqual([0, []])
  })

  it('R9 is refused if there are too many sessions, and the operator is told', async () => {
    const { first, refused } = startService({ options: { maxSessionsPerCaller: 1 } })
    await first.begin()
    const { seen } = await first.send('POST', INITIALIZE)
    expect(seen.failed?.status).toBe(503)
    expect(seen.failed?.headers).not.toHaveProperty('Retry-After')
    expect(refused).toEqual([['LIMIT_SESSIONS', 503]])
    const quiet = startService({
      options: { maxSessionsPerCaller: 1 },
      more: { service: { state: { draining: false } } },
    })
    await quiet.first.begin()
    expect((await quiet.first.send('POST', INITIALIZE)).seen.failed?.status).toBe(503)
    expect(quiet.errors).toEqual([])
  })

  it('is refused if the token does not allow it', async () => {
    const access = { ...allowing([]).access, admit: () => Promise.reject(new RondoError('PEER_REQUEST')) }
    const { first } = startService({ more: { access } })
    expect(errorOf(await first.send('POST', INITIALIZE))).toMatchObject({ code: -32600 })
    expect(first.table.size).toBe(0)
  })
})

describe('the session of a request', () => {
  it('post 1: is found by its id and its owner, on any instance', async () => {
    const { first, second, served } = startService()
    const headers = await first.begin()
    const { seen } = await second.send('POST', call(1), headers)
    expect(seen.sent).toMatchObject({ status: 200 })
    expect(served[0]).toMatchObject({ principal: ADA, unaskable: undefined })
    for (const [one, principal] of [
      [headers, { subject: 'eve' }],
      [{ 'mcp-session-id': 's.x' }, ADA],
    ] as const) {
      const { seen } = await second.send('POST', call(1), one, principal as never)
      expect(seen.failed).toMatchObject({ status: 404, body: expect.stringContaining('"id":1') })
      expect((await second.send('GET', undefined, one, principal as never)).seen.failed?.status).toBe(404)
    }
  })

  it('has to be named, except by a client of a draft, which can be asked nothing', async () => {
    const { first, served } = startService()
    expect((await first.send('POST', call(1))).seen.failed?.status).toBe(400)
    const claim = { _meta: { 'io.modelcontextprotocol/protocolVersion': DRAFT } }
    await first.send('POST', call(2, 'tools/call', { name: 'a', arguments: {}, ...claim }))
    await first.send('POST', call(3), { 'mcp-protocol-version': DRAFT })
    expect(served.map(({ call }) => call)).toMatchObject([
      { id: 2, protocolVersion: DRAFT },
      { id: 3, protocolVersion: DRAFT },
    ])
    expect([served[0]?.unaskable, first.table.size]).toEqual([undefined, 0])
  })

  it('post 2: is one of the request alone where there are none', async () => {
    const { first, served } = startService({ more: { sessions: false } })
    await first.send('POST', call(1))
    expect(served[0]?.call.protocolVersion).toBe('2025-03-26')
    expect(served[0]?.unaskable).toContain('keeps no sessions')
    const { seen } = await first.send('POST', call(1), { 'mcp-session-id': 's.x' })
    expect(seen.failed?.status).toBe(404)
    const session = first.session('own', undefined, 'own')
    expect(session).toBeDefined()
    expect((await first.send('POST', call(1, 'resources/subscribe', { uri: 'a' }))).messages()).toMatchObject(
      [{ error: { code: -32601 } }],
    )
  })

  it('post 2: is none of another endpoint where there are none', async () => {
    const { first, second } = startService()
    const headers = await first.begin()
    const end = connect()
    const request = { method: 'POST', headers, principal: ADA, outlet: end.outlet }
    createEntrance({ ...second.post, sessions: false }).post(call(1), request)
    await end.done
    expect(end.seen.failed?.status).toBe(404)
    expect((await first.send('GET', undefined)).seen.failed?.status).toBe(404)
  })

  it('post 3: has the version in the header, or else its own', async () => {
    const { first, served } = startService()
    const headers = await first.begin('2025-06-18')
    await first.send('POST', call(1), headers)
    await first.send('POST', call(2), { ...headers, 'mcp-protocol-version': '2025-03-26' })
    expect(served.map(({ call }) => call.protocolVersion)).toEqual(['2025-06-18', '2025-03-26'])
  })

  it('stays for as long as its client sends something', async () => {
    const { first, clock } = startService()
    const headers = await first.begin()
    clock.now += 20 * 60_000
    await first.send('POST', noted('notifications/initialized'), headers)
    clock.now += 20 * 60_000
    first.table.sweep()
    expect(first.table.size).toBe(1)
  })
})

describe('the messages of a request', () => {
  it('F1 can be asked for on a stream only, except in rounds', async () => {
    const { first, served } = startService()
    const json = { accept: 'application/json' }
    const pushed = await first.begin()
    const rounds = await first.begin(DRAFT)
    await first.send('POST', call(1), pushed)
    await first.send('POST', call(2), { ...pushed, ...json })
    await first.send('POST', call(3), { ...rounds, ...json })
    expect(served.map(({ call, unaskable }) => [Object.keys(call.capabilities).length, unaskable])).toEqual([
      [1, undefined],
      [0, expect.stringContaining('text/event-stream')],
      [1, undefined],
    ])
    expect(served[0]?.call).toMatchObject({ clientInfo: { name: 'c', version: '1' } })
  })

  it('are a batch where the version has batches, and not an empty one', async () => {
    const { first } = startService()
    const headers = await first.begin('2025-03-26')
    const two = await first.send('POST', [call(1), call(2)], headers)
    expect(two.messages().map(({ id }) => id)).toEqual([1, 2])
    expect((await first.send('POST', [call(3)], headers)).seen.sent?.body.startsWith('[')).toBe(true)
    expect((await first.send('POST', [], headers)).seen.failed?.status).toBe(400)
    const broken = await first.send('POST', [{ jsonrpc: '2.0', id: {} }, call(1)], headers)
    expect(broken.messages()).toMatchObject([{ error: { code: -32600 } }, { id: 1, result: {} }])
    expect(broken.seen.sent?.status).toBe(200)
  })

  it('fail as a request if the only one has no id that could be answered', async () => {
    const { first } = startService()
    const headers = await first.begin()
    expect(
      (await first.send('POST', { jsonrpc: '2.0', id: {}, method: 'ping' }, headers)).seen,
    ).toMatchObject({
      failed: { status: 400 },
    })
    const known = await first.send('POST', call(5, 'tools/call', { name: 7 }), headers)
    expect(known.seen.sent?.status).toBe(200)
    expect(known.messages()).toMatchObject([{ id: 5, error: { code: -32602 } }])
  })

  it('are accepted if they need no response', async () => {
    const { first } = startService()
    const headers = await first.begin()
    const { seen } = await first.send('POST', noted('notifications/initialized'), headers)
    expect(seen.sent).toEqual({ status: 202, headers: {}, body: '' })
    expect((await first.send('POST', answered('ask.9'), headers)).seen.sent?.status).toBe(202)
  })

  it('keep the weight of the request until they have been dispatched', async () => {
    const { first } = startService()
    const headers = await first.begin()
    let held = 0
    const load = {
      weight: 5,
      hold() {
        held += 1
        let isHeld = true
        return () => {
          if (isHeld) held -= 1
          isHeld = false
        }
      },
    } as unknown as Load
    const { done } = first.request('POST', noted('notifications/initialized'), headers, ADA, load)
    expect(held).toBe(1)
    await done
    await settle()
    expect(held).toBe(0)
  })

  it('R11 get an error if the service throws something else, which the operator learns of', async () => {
    const { first, errors } = startService()
    const fault = new Error('broken')
    first.older.shared.find = () => Promise.reject(fault)
    const { seen } = await first.send('POST', call(1), { 'mcp-session-id': 's.x' })
    expect(seen.failed).toMatchObject({ status: 200, body: expect.stringContaining('-32603') })
    expect((await first.send('GET', undefined, { 'mcp-session-id': 's.x' })).seen.failed).toBeDefined()
    expect(errors).toEqual([fault, fault])
  })

  it('count as failed because of the store only if they did', async () => {
    const { first, faults, errors } = startService()
    first.older.shared.find = () => Promise.reject(new RondoError('STORE_UNAVAILABLE'))
    await first.send('POST', call(1), { 'mcp-session-id': 's.x' })
    expect(faults).toMatchObject([{ code: 'STORE_UNAVAILABLE' }])
    first.older.shared.find = () => Promise.reject(new RondoError('PEER_SESSION'))
    await first.send('POST', call(1), { 'mcp-session-id': 's.x' })
    expect([faults.length, errors]).toEqual([1, []])
  })

  it('R11 report what fails even when they are refused', async () => {
    const { first, errors } = startService()
    const fault = new Error('broken')
    for (const method of ['POST', 'GET']) {
      const end = first.request(method, call(1), { 'mcp-session-id': 's.x' })
      end.outlet.fail = () => {
        throw fault
      }
    }
    await settle()
    expect(errors).toEqual([fault, fault])
  })
})

describe('the stream of a request', () => {
  it('F1 carries the questions of its call, and the answers come in other requests', async () => {
    const { first } = startService({ answer: asking })
    const headers = await first.begin()
    const { done, messages, seen } = first.request('POST', call(1), headers)
    await settle()
    const [question] = messages()
    expect(question).toMatchObject({ method: 'roots/list' })
    expect(seen.text).toContain('retry: 1000')
    expect((await first.send('POST', answered(question?.id), headers)).seen.sent?.status).toBe(202)
    await done
    expect(messages().at(-1)).toMatchObject({ id: 1, result: {} })
  })

  it('carries nothing but a response for a client that reads no streams', async () => {
    const { first, served } = startService({ answer: asking })
    const headers = await first.begin()
    const { seen, messages } = await first.send('POST', call(1), { ...headers, accept: 'application/json' })
    expect(messages()).toMatchObject([{ id: 1, error: {} }])
    expect([seen.text, served.length]).toEqual(['', 1])
  })

  it('stream 3: cancels its calls when the client is gone for good', async () => {
    const { first, served } = startService({ answer: asking, options: { resumeMs: 0 } })
    const headers = await first.begin('2025-03-26')
    const { leave } = first.request('POST', [call(1), call(2), call(3, 'ping', {})], headers)
    await settle()
    expect(served.map(({ line }) => line.closed)).toEqual([false, false])
    leave()
    expect(served.map(({ line }) => line.closed)).toEqual([true, true])
  })

  it('cancels its calls if the client has left before they begin', async () => {
    const { first, served } = startService({ answer: asking })
    const headers = await first.begin('2025-03-26')
    first.request('POST', [call(1), call(2)], headers).leave()
    await settle()
    expect(served.map(({ line }) => line.closed)).toEqual([true, true])
    expect(first.watched()).toEqual([])
  })

  it('leaves a call alone whose request comes again from a client that leaves', async () => {
    const { first, served } = startService({ answer: asking })
    const headers = await first.begin()
    first.request('POST', call(1), headers)
    await settle()
    first.request('POST', call(1), headers).leave()
    await settle()
    expect(served.map(({ line }) => line.closed)).toEqual([false])
  })
})

describe('an answer', () => {
  it('kept 2: reaches the call on another instance, and needs its scopes', async () => {
    const { access, asked } = allowing(['read'], ['read'])
    const { first, second } = startService({ answer: asking, hasStore: true, more: { access } })
    const headers = await first.begin()
    const { messages, done } = first.request('POST', call(1), headers)
    await settle()
    await settle()
    asked.length = 0
    const { seen } = await second.send('POST', answered(messages()[0]?.id), headers)
    expect(seen.sent?.status).toBe(202)
    expect(asked).toEqual([
      { calls: [], principal: ADA, also: [] },
      { calls: [], principal: ADA, also: ['read'] },
    ])
    await done
    expect(messages().at(-1)).toMatchObject({ id: 1, result: {} })
  })

  it('J1 is refused without a store if another instance asked, and the operator is told', async () => {
    const { first, second, refused } = startService({ answer: asking })
    const headers = await first.begin()
    const { messages } = first.request('POST', call(1), headers)
    await settle()
    const [question] = messages()
    expect((await second.send('POST', answered(question?.id), headers)).seen.failed?.status).toBe(421)
    expect(refused).toEqual([['PEER_OTHER_INSTANCE', 421]])
    const batch = [noted('notifications/initialized'), answered(question?.id)]
    const older = { ...headers, 'mcp-protocol-version': '2025-03-26' }
    expect((await second.send('POST', batch, older)).seen.failed?.status).toBe(421)
    expect((await first.send('POST', batch, older)).seen.sent?.status).toBe(202)
    expect((await second.send('POST', noted('notifications/initialized'), headers)).seen.sent?.status).toBe(
      202,
    )
    const quiet = startService({ more: { service: { state: { draining: false } } } })
    const session = await quiet.first.begin()
    expect((await quiet.first.send('POST', answered('abcdefgh.1'), session)).seen.failed?.status).toBe(421)
  })

  it('E6 needs the scopes of the call that asked', async () => {
    const { access, asked } = allowing(['read'], ['read'])
    const { first } = startService({ answer: asking, more: { access } })
    const headers = await first.begin()
    const { messages } = first.request('POST', call(1), headers)
    await settle()
    asked.length = 0
    await first.send('POST', answered(messages()[0]?.id), headers)
    expect(asked).toEqual([{ calls: [], principal: ADA, also: ['read'] }])
  })
})

describe('E6 the scopes of a request', () => {
  it('are asked for all of its calls at once', async () => {
    const { access, asked } = allowing(['read'], ['read'])
    const { first, served } = startService({ more: { access } })
    const headers = await first.begin('2025-03-26')
    asked.length = 0
    const messages = [
      call(1, 'ping', {}),
      call(2),
      noted('notifications/initialized'),
      call(3),
      call(4, 'tools/list', {}),
    ]
    await first.send('POST', messages, headers)
    expect(asked).toEqual([{ calls: ['ping', 'flow', 'flow', 'list'], principal: ADA, also: [] }])
    expect(served.map(({ line }) => line.scopes)).toEqual([['read'], ['read'], []])
  })

  it('are not asked for where nothing needs any', async () => {
    const { first, admitted, served } = startService({ answer: asking })
    const headers = await first.begin()
    admitted.length = 0
    const { leave, seen } = first.request('POST', call(1), headers)
    await settle()
    expect([admitted, served[0]?.line.scopes]).toEqual([[], []])
    leave()
    first.request('GET', undefined, { ...headers, 'last-event-id': lastOf(seen.text) })
    await settle()
    expect(admitted).toEqual([{ calls: [], principal: ADA, also: [] }])
  })

  it('are not needed to resume a stream if they are those of a subscription', async () => {
    const { access, asked } = allowing(['read'])
    const admit: typeof access.admit = async (calls, principal, also) => {
      await access.admit(calls, principal, also)
      return calls.map(({ kind }) => ({ scopes: kind === 'watch' ? ['read'] : [] }))
    }
    const { first } = startService({ answer: asking, more: { access: { ...access, admit } } })
    const headers = await first.begin('2025-03-26')
    const messages = [call(1, 'resources/subscribe', { uri: 'a' }), call(2)]
    const { leave, seen } = first.request('POST', messages, headers)
    await settle()
    leave()
    first.request('GET', undefined, { ...headers, 'last-event-id': lastOf(seen.text) })
    await settle()
    expect(asked.at(-1)).toEqual({ calls: [], principal: ADA, also: [] })
  })

  it('are checked together with the arguments that they depend on', async () => {
    const { access } = allowing([])
    const admit = async () => [{ scopes: [], badArguments: 'n is missing' }]
    const { first, served } = startService({ more: { access: { ...access, admit } } })
    const headers = await first.begin()
    await first.send('POST', call(1), headers)
    expect(served[0]?.call).toMatchObject({ kind: 'flow', badArguments: 'n is missing' })
  })

  it('choose the tasks of a list', async () => {
    const { access } = allowing(['read'])
    const { first, served } = startService({ more: { access } })
    const headers = await first.begin()
    await first.send('POST', call(1, 'tasks/list', {}), headers)
    const listed = served[0]?.call as { allows?(id: string): boolean }
    expect(listed.allows?.('unknown')).toBe(true)
  })

  it('are needed to resume its stream', async () => {
    const scopes = ['read']
    const { access, asked } = allowing(scopes, ['read'])
    const { first } = startService({ answer: asking, more: { access } })
    const headers = await first.begin()
    const { seen, leave } = first.request('POST', call(1), headers)
    await settle()
    leave()
    asked.length = 0
    const [, id = ''] = /^id: (.+)$/m.exec(seen.text) ?? []
    const resumed = first.request('GET', undefined, { ...headers, 'last-event-id': id })
    await settle()
    expect(asked).toEqual([{ calls: [], principal: ADA, also: ['read'] }])
    expect(resumed.messages()).toMatchObject([{ method: 'roots/list' }])
    asked.length = 0
    first.request('GET', undefined, headers)
    await settle()
    expect(asked).toEqual([{ calls: [], principal: ADA, also: [] }])
    await first.send('DELETE', undefined, { ...headers, 'last-event-id': id })
    expect(asked[1]).toEqual({ calls: [], principal: ADA, also: [] })
  })
})

describe('a request without a body', () => {
  it('opens the stream of its session, in the form of its version', async () => {
    const { first } = startService()
    const headers = await first.begin()
    const old = await first.begin('2025-06-18')
    const open = async (given: Record<string, string>) => {
      const { seen } = first.request('GET', undefined, given)
      await settle()
      return seen.text
    }
    const primed = expect.stringContaining('retry: 1000')
    expect(await open(headers)).toEqual(primed)
    expect(await open(old)).not.toEqual(primed)
    expect(await open({ ...old, 'mcp-protocol-version': VERSION })).toEqual(primed)
    const session = first.table.find(headers['mcp-session-id'], first.table.named('')?.owner ?? '')
    expect(session).toBeUndefined()
  })

  it('J1 resumes nothing if there is nothing, and says what instances need', async () => {
    const alone = startService()
    const headers = await alone.first.begin()
    const get = async ({ first }: Pick<typeof alone, 'first'>, given: Record<string, string>) =>
      errorOf(await first.send('GET', undefined, given)) as { message: string }
    expect((await get(alone, { ...headers, 'last-event-id': 'x' })).message).toContain('sticky routing')
    const shared = startService({ hasStore: true })
    const session = await shared.first.begin()
    const plain = await get(shared, { ...session, 'last-event-id': 'x' })
    expect([plain.message.includes('Last-Event-ID'), plain.message.includes('sticky')]).toEqual([true, false])
  })

  it('J1 resumes what another instance has', async () => {
    const { first, second } = startService({ hasStore: true })
    const headers = await first.begin()
    const own = first.request('GET', undefined, headers)
    await settle()
    const [, id = ''] = /^id: (.+)$/m.exec(own.seen.text) ?? []
    const resumed = second.request('GET', undefined, { ...headers, 'last-event-id': id })
    await settle()
    await settle()
    expect(resumed.messages()).toMatchObject([
      { method: 'notifications/tools/list_changed' },
      { method: 'notifications/prompts/list_changed' },
      { method: 'notifications/resources/list_changed' },
    ])
  })

  it('ends its session', async () => {
    const { first } = startService()
    const headers = await first.begin()
    expect((await first.send('DELETE', undefined, headers)).seen.sent).toEqual({
      status: 200,
      headers: {},
      body: '',
    })
    expect(first.table.size).toBe(0)
    expect((await first.send('POST', call(1), headers)).seen.failed?.status).toBe(404)
  })

  it('R9 needs a session that may stay', async () => {
    const { first, second, refused } = startService({ options: { maxSessionsPerCaller: 1 } })
    const headers = await first.begin()
    await second.begin()
    expect((await second.send('GET', undefined, headers)).seen.failed?.status).toBe(503)
    expect(refused).toEqual([['LIMIT_SESSIONS', 503]])
    expect((await second.send('POST', call(1), headers)).seen.sent?.status).toBe(200)
  })
})

describe('a draft', () => {
  const TURNS = { 'mcp-session-id': 't.one' }
  function startDraft(draft: Partial<SessionDraft>, more: ServiceSetup = {}) {
    const whole = {
      experimental: [],
      takes: () => false,
      awaits: () => undefined,
      hand: () => undefined,
      ...draft,
    }
    return startService({ ...more, older: { draft: whole as unknown as SessionDraft } })
  }

  it('serves what it takes', async () => {
    const posted: unknown[] = []
    const { first } = startDraft({
      takes: (_, { message }) => (message as { id: number }).id === 1,
      async post(_, { outlet, message }) {
        posted.push(message)
        outlet.send({ status: 202, headers: {}, body: '' })
      },
    })
    expect((await first.send('POST', call(1))).seen.sent?.status).toBe(202)
    expect((await first.send('POST', call(2))).seen.failed?.status).toBe(400)
    expect(posted).toMatchObject([{ id: 1 }])
  })

  it('opens the sessions of its clients, if there are sessions', async () => {
    const opened: unknown[] = []
    const service = startDraft({
      async open(_, { principal }) {
        opened.push(principal)
        return service.first.session('ada', undefined, 't.one')
      },
    })
    const { first } = service
    expect((await first.send('DELETE', undefined, TURNS)).seen.sent?.status).toBe(200)
    expect(opened).toEqual([ADA])
    expect((await first.send('DELETE', undefined, { 'mcp-session-id': 's.x' })).seen.failed?.status).toBe(404)
    const without = startDraft({}, { more: { sessions: false } })
    const { seen } = await without.first.send('GET', undefined, TURNS)
    expect(seen.failed ?? seen.sent).toMatchObject({ status: 405, headers: { Allow: 'POST' } })
    const plain = startService()
    expect((await plain.first.send('GET', undefined, TURNS)).seen.failed?.status).toBe(404)
  })

  it('waits for what follows the answer to a question of another instance', async () => {
    const service = startDraft({
      awaits: (_, eventId) => (eventId === 'q' ? 'turn' : undefined),
      open: async () => service.first.session('ada', undefined, 't.one'),
    })
    const { first } = service
    const { seen } = first.request('GET', undefined, { ...TURNS, 'last-event-id': 'q' })
    await settle()
    expect(seen.text).toBe(': still here\n\n')
    expect(first.session('ada', undefined, 't.one').streams.awaited('turn')).toBeDefined()
    expect((await first.send('GET', undefined, { ...TURNS, 'last-event-id': 'r' })).seen.failed?.status).toBe(
      400,
    )
  })
})
