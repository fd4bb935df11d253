/**
 * The requirements of the official suite for a protected server, rebuilt from the description of its unpublished scenarios: audience
 * validation (six checks), and scope challenges with a token of low and one of full scope over four primitives. And the same
 * for clients of earlier eras.
 */

import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createServer, generateKey, type LogEvent, type Server } from 'rondo'
import { oauthResource } from 'rondo/oauth'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { z } from 'zod'
import { connectOlder } from '../support/older-client.ts'
import { call, createProtectedServer, readChallenge, request } from '../support/protected-server.ts'
import { connectTurns, lastEventId, responsesTo } from '../support/turns-client.ts'

const RESOURCE = 'http://127.0.0.1/mcp'
const ISSUER = 'https://id.example.com'
const PATH = '/.well-known/oauth-protected-resource'
const FULL = 'tickets:read tickets:write tickets:refund team:blue'

/** A token is the scopes it has, and whom it is for. */
const tokenOf = (scope: string, aud: string | readonly string[] | undefined = RESOURCE): string =>
  Buffer.from(JSON.stringify({ scope, aud })).toString('base64url')

function open(options: Partial<Parameters<typeof oauthResource>[0]> = {}) {
  const authenticate = oauthResource({
    resource: RESOURCE,
    issuers: [ISSUER],
    scopes: ['tickets:read'],
    tokens: (token) => {
      const known = JSON.parse(Buffer.from(token, 'base64url').toString())
      return { iss: ISSUER, sub: 'alice', client_id: 'desk', exp: Date.now() / 1000 + 600, ...known }
    },
    ...options,
  })
  return createProtectedServer({ authenticate, sessions: {} })
}

describe('T32 audience validation', () => {
  it('H1 1: publishes metadata whose resource is the server', async () => {
    const { server } = open()
    for (const path of [`${PATH}/mcp`, PATH, `${PATH}/mcp/`, `${PATH}?x=1`]) {
      const response = await server.fetch(new Request(`http://127.0.0.1${path}`))
      expect([path, response.status]).toEqual([path, 200])
      expect(response.headers.get('access-control-allow-origin')).toBe('*')
      expect(response.headers.get('cache-control')).toContain('max-age')
      expect(await response.json()).toEqual({
        resource: RESOURCE,
        authorization_servers: [ISSUER],
        scopes_supported: ['tickets:read'],
        bearer_methods_supported: ['header'],
      })
    }
  })

  it('H1 2: challenges a request without a token, without an error', async () => {
    const answer = await request(open().server, undefined, 'tools/call', call('whoami'))
    expect(answer.status).toBe(401)
    expect(readChallenge(answer.challenge)).toEqual({
      scope: 'tickets:read',
      resource_metadata: `http://127.0.0.1${PATH}/mcp`,
    })
  })

  it.each([
    ['3: refuses a token for another server', 'https://other.example/mcp'],
    ['4: refuses a token without an audience', undefined],
    ['5: refuses a token for the same host and another path', 'http://127.0.0.1/other'],
  ])('H1 %s', async (_what, aud) => {
    const { server, ran } = open()
    const token = Buffer.from(JSON.stringify({ scope: FULL, aud })).toString('base64url')
    const answer = await request(server, token, 'tools/call', call('whoami'))
    expect([answer.status, readChallenge(answer.challenge).error]).toEqual([401, 'invalid_token'])
    expect(ran).toEqual([])
  })

  it('H1 6: accepts a token for this server, alone or among others', async () => {
    for (const aud of [RESOURCE, ['https://other.example', RESOURCE]]) {
      const answer = await request(open().server, tokenOf(FULL, aud), 'tools/call', call('whoami'))
      expect(answer.status).toBe(200)
    }
  })
})

describe('the metadata', () => {
  it('H1 is served by listen and by the node handler too, and preflights of any page are answered', async () => {
    const { server } = open()
    const listening = await server.listen({ port: 0, signals: false, rejections: false })
    const http = createHttpServer(server.nodeHandler())
    await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
    for (const port of [listening.port, (http.address() as AddressInfo).port]) {
      for (const path of [`${PATH}/mcp`, PATH]) {
        const response = await fetch(`http://127.0.0.1:${port}${path}`, {
          headers: { origin: 'https://x.example' },
        })
        expect([response.status, response.headers.get('access-control-allow-origin')]).toEqual([200, '*'])
        expect(await response.json()).toMatchObject({ resource: RESOURCE })
        const headers = {
          origin: 'https://x.example',
          'access-control-request-headers': 'mcp-protocol-version',
        }
        const preflight = await fetch(`http://127.0.0.1:${port}${path}`, { method: 'OPTIONS', headers })
        expect(preflight.status).toBe(204)
        expect(preflight.headers.get('access-control-allow-headers')).toBe('mcp-protocol-version')
      }
    }
    expect((await fetch(`http://127.0.0.1:${listening.port}/other`)).status).toBe(404)
    http.close()
    await server.close()
  })
})

describe('scope challenges', () => {
  const PRIMITIVES: readonly [string, Record<string, unknown>, string][] = [
    ['tools/call', call('refund', { amount: 1 }), 'tickets:read tickets:write tickets:refund'],
    ['prompts/get', { name: 'letter' }, 'tickets:read tickets:write'],
    ['resources/read', { uri: 'tickets://all' }, 'tickets:read tickets:write'],
    ['resources/read', { uri: 'tickets://blue/open' }, 'tickets:read team:blue'],
    [
      'completion/complete',
      { ref: { type: 'ref/prompt', name: 'letter' }, argument: { name: 'to', value: '' } },
      'tickets:read tickets:write',
    ],
    [
      'completion/complete',
      { ref: { type: 'ref/resource', uri: 'archive://{year}' }, argument: { name: 'year', value: '' } },
      'tickets:read tickets:write',
    ],
    [
      'completion/complete',
      { ref: { type: 'ref/prompt', name: 'note' }, argument: { name: 'team', value: 'blue' } },
      'tickets:read team:blue',
    ],
    [
      'completion/complete',
      {
        ref: { type: 'ref/prompt', name: 'note' },
        argument: { name: 'topic', value: '' },
        context: { arguments: { team: 'blue' } },
      },
      'tickets:read team:blue',
    ],
    [
      'completion/complete',
      {
        ref: { type: 'ref/resource', uri: 'tickets://{team}/open' },
        argument: { name: 'team', value: 'blue' },
      },
      'tickets:read team:blue',
    ],
    [
      'subscriptions/listen',
      { notifications: { resourceSubscriptions: ['tickets://all'] } },
      'tickets:read tickets:write',
    ],
  ]

  it.each(PRIMITIVES)(
    'H2 %s %j: low scope is challenged with everything, full scope gets in',
    async (...row) => {
      const [method, params, scope] = row
      const { server, ran } = open()
      for (const low of ['tickets:read', '']) {
        const refused = await request(server, tokenOf(low), method, params)
        expect(refused.status).toBe(403)
        expect(readChallenge(refused.challenge)).toMatchObject({
          error: 'insufficient_scope',
          scope,
          resource_metadata: `http://127.0.0.1${PATH}/mcp`,
        })
      }
      expect(ran).toEqual([])
      expect((await request(server, tokenOf(FULL), method, params)).status).toBe(200)
    },
  )

  it('H2 a function of the arguments sees them as the handler does', async () => {
    const { server, ran } = open()
    const move = (amount: unknown) =>
      request(server, tokenOf('tickets:read'), 'tools/call', call('move', { amount }))
    expect((await move(5)).status).toBe(200)
    expect((await move('500')).status).toBe(403)
    expect((await move([500])).status).toBe(403)
    expect(ran).toEqual(['move'])
    expect((await move('many')).result).toMatchObject({ isError: true })
    expect(ran).toEqual(['move'])
  })

  it('H2 a scope may include others', async () => {
    const { server } = open({ implies: (granted, required) => required.startsWith(granted.replace('*', '')) })
    expect((await request(server, tokenOf('tickets:*'), 'prompts/get', { name: 'letter' })).status).toBe(200)
    expect((await request(server, tokenOf('team:*'), 'prompts/get', { name: 'letter' })).status).toBe(403)
  })

  it('H2 fails closed without authenticate, and where the function of an author throws', async () => {
    const { server, ran } = createProtectedServer()
    const refused = await request(server, undefined, 'tools/call', call('refund', { amount: 1 }))
    expect([refused.status, refused.challenge]).toEqual([401, 'Bearer scope="tickets:write tickets:refund"'])
    server.tool('odd', { scopes: () => Promise.reject(new Error('no')) }, () => 'ran')
    server.tool('wrong', { scopes: () => ['a b'] }, () => 'ran')
    for (const name of ['odd', 'wrong'])
      expect((await request(server, undefined, 'tools/call', call(name))).error).toMatchObject({
        code: -32603,
      })
    expect(ran).toEqual([])
  })

  /** Everything for which the function of an author is called: it never returns a list. */
  const requestsOf = (server: Server, scopes: () => Promise<string[]>) => {
    const complete = { word: async () => ['secret'] }
    const input = z.object({ word: z.string() })
    server.tool('tool', { scopes }, () => 'ran')
    server.prompt('prompt', { scopes, input, complete }, () => 'ran')
    server.resource('x://resource', { name: 'x', scopes }, () => 'ran')
    server.template('x://{word}/template', { name: 'y', scopes, complete }, () => 'ran')
    const argument = { name: 'word', value: 's' }
    const rows: readonly [string, Record<string, unknown>][] = [
      ['tools/call', call('tool')],
      ['prompts/get', { name: 'prompt', arguments: { word: 'secret' } }],
      ['resources/read', { uri: 'x://resource' }],
      ['resources/read', { uri: 'x://secret/template' }],
      ['subscriptions/listen', { notifications: { resourceSubscriptions: ['x://resource'] } }],
      ['completion/complete', { ref: { type: 'ref/prompt', name: 'prompt' }, argument }],
      ['completion/complete', { ref: { type: 'ref/resource', uri: 'x://{word}/template' }, argument }],
    ]
    return rows.map(([method, params]) => request(server, tokenOf(FULL), method, params))
  }
  const FAILED = { error: { code: -32603 } }

  it('H2 T33 what asks for scopes with a function that rejects is refused, suggestions too', async () => {
    const answers = await Promise.all(requestsOf(open().server, () => Promise.reject(new Error('no'))))
    expect(answers).toMatchObject(answers.map(() => FAILED))
  })

  it('I2 a function of scopes that never settles is refused after 30 s, with a line in the log', async () => {
    const events: LogEvent[] = []
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    onTestFinished(() => void vi.useRealTimers())
    const server = createServer({
      name: 'waits',
      version: '1.0.0',
      keys: generateKey('waits'),
      log: (event) => void events.push(event),
    })
    let settled = 0
    const sent = requestsOf(server, () => new Promise(() => {}))
    for (const one of sent) void one.finally(() => (settled += 1))
    await vi.advanceTimersByTimeAsync(29_000)
    expect(settled).toBe(0)
    await vi.advanceTimersByTimeAsync(1_000)
    expect(await Promise.all(sent)).toMatchObject(sent.map(() => FAILED))
    const errors = events.flatMap((event) => (event.event === 'warning' ? [String(event.error)] : []))
    expect(errors).toHaveLength(sent.length)
    for (const error of errors)
      expect(error).toContain('A function given as scopes did not settle within 30000 ms')
  })
})

it('R11 a challenge that HTTP cannot carry becomes an internal error, and the request does not hang', async () => {
  const resource = { scopes: ['a'], challenge: () => 'Bearer\r\nx: y', paths: [], document: '{}' }
  const authenticate = Object.assign(() => ({ subject: 'alice' }), { resource })
  const { server } = createProtectedServer({ authenticate })
  expect((await request(server, undefined, 'tools/call', call('whoami'))).status).toBe(500)
  const { port } = await server.listen({ port: 0, signals: false, rejections: false })
  const overNode = { fetch: (sent: Request) => fetch(`http://127.0.0.1:${port}/mcp`, sent) }
  expect((await request(overNode, undefined, 'tools/call', call('whoami'))).status).toBe(500)
  await server.close()
})

it('R11 scopes that do not fit into the id of a task are found where the tool is declared', async () => {
  const { server } = createProtectedServer()
  const many = Array.from({ length: 30 }, (_, index) => `tickets:scope-${index}`)
  expect(() => server.tool('many', { scopes: many, task: 'always' }, () => 'ran')).toThrow(
    /The scopes of tool "many" have 499 characters together.*task: 'never'/,
  )
  server.tool('once', { scopes: many, task: 'never' }, () => 'ran')
  const fits = many.slice(0, 21)
  server.tool('fits', { scopes: fits, task: 'always' }, () => 'ran')
  const authenticate = () => ({ subject: 'alice', scopes: fits })
  const other = createProtectedServer({ authenticate })
  other.server.tool('fits', { scopes: fits, task: 'always' }, () => 'ran')
  const { result } = await request(other.server, undefined, 'tools/call', call('fits'))
  expect(result).toMatchObject({ taskId: expect.any(String) })
  await other.server.close()
})

describe('ids of tasks that somebody made up', () => {
  const NOTES = ['a"\r\nSet-Cookie: a=b', 'a", error="invalid_token', 'caf\u00e9', '\u0000', ' '.repeat(300)]

  it.each(NOTES)('R11 H2 cannot put %j into a header', async (note) => {
    const { server } = open()
    const taskId = `${'A'.repeat(22)}_${Buffer.from(note).toString('base64url')}`
    for (const method of ['tasks/get', 'tasks/update', 'tasks/cancel']) {
      const params = { taskId, inputResponses: {} }
      const answer = await request(server, tokenOf('tickets:read'), method, params)
      if (answer.status === 403) expect(readChallenge(answer.challenge).scope).toMatch(/^[\w:, =]+$/)
      else expect([answer.status, answer.error]).toMatchObject([200, { message: 'Task not found' }])
    }
    const listening = { notifications: { taskIds: [taskId] } }
    expect(
      (await request(server, tokenOf('tickets:read'), 'subscriptions/listen', listening)).status,
    ).toBeLessThan(500)
  })
})

describe('clients of earlier eras', () => {
  const as = (token: string) => ({ headers: { authorization: `Bearer ${token}` } })
  const capabilities = { elicitation: { form: {} } }

  it('H2 are challenged before a session begins, and for each call', async () => {
    const { server, ran } = open()
    const send = (sent: Request) => server.fetch(sent)
    const { initialized } = await connectOlder(RESOURCE, as(tokenOf('')), send)
    expect(initialized).toMatchObject({ error: { data: { requiredScopes: ['tickets:read'] } } })
    const client = await connectOlder(RESOURCE, { ...as(tokenOf('tickets:read')), capabilities }, send)
    const post = async (method: string, params: object) => {
      const { status, response } = await client.post({ jsonrpc: '2.0', id: 9, method, params })
      return [status, readChallenge(response.headers.get('www-authenticate') ?? undefined).scope]
    }
    expect(await post('tools/call', call('refund', { amount: 1 }))).toEqual([
      403,
      'tickets:read tickets:write tickets:refund',
    ])
    const suggest = { ref: { type: 'ref/prompt', name: 'note' }, argument: { name: 'team', value: 'blue' } }
    expect(await post('completion/complete', suggest)).toEqual([403, 'tickets:read team:blue'])
    expect(await post('tools/call', call('move', { amount: 500 }))).toEqual([
      403,
      'tickets:read tickets:refund',
    ])
    expect(await post('resources/subscribe', { uri: 'tickets://all' })).toEqual([
      403,
      'tickets:read tickets:write',
    ])
    expect(ran).toEqual([])
    await server.close()
  })

  it('H2 T33 cannot answer a question with less scope than its call needs', async () => {
    const { server } = open()
    const statuses: number[] = []
    // Every other answer has a token with less scope.
    const send = async (sent: Request): Promise<Response> => {
      const body = sent.method === 'POST' ? await sent.clone().text() : ''
      if (!body.includes('"result"')) return server.fetch(sent)
      const less = new Request(sent.clone(), {
        headers: { ...Object.fromEntries(sent.headers), ...as(tokenOf('tickets:read')).headers },
      })
      const refused = await server.fetch(less)
      statuses.push(refused.status)
      expect(readChallenge(refused.headers.get('www-authenticate') ?? undefined).scope).toBe(
        'tickets:read tickets:write tickets:refund',
      )
      const taken = await server.fetch(sent)
      statuses.push(taken.status)
      return taken
    }
    const answer = () => ({ action: 'accept', content: { confirm: true } })
    const client = await connectOlder(RESOURCE, { ...as(tokenOf(FULL)), capabilities, answer }, send)
    const done = await client.call('tools/call', call('refund', { amount: 1 }))
    expect(done).toMatchObject({ result: { content: [{ text: 'refunded 1' }] } })
    expect(statuses).toEqual([403, 202])
    await server.close()
  })

  it('H2 cannot resume the stream of a call with less scope than the call needs, nor open one with none', async () => {
    const { server } = open()
    const send = (sent: Request) => server.fetch(sent)
    const client = await connectOlder(RESOURCE, { ...as(tokenOf(FULL)), capabilities }, send)
    const stream = await client.post({
      jsonrpc: '2.0',
      id: 7,
      method: 'tools/call',
      params: call('refund', { amount: 1 }),
    })
    const question = await stream.next()
    expect(question).toMatchObject({ method: 'elicitation/create' })
    const last = { 'last-event-id': stream.ids[0] ?? '' }
    await stream.drop()
    await client.respond(question?.id, { action: 'accept', content: { confirm: true } })
    const less = await client.get({ ...last, ...as(tokenOf('tickets:read')).headers })
    expect([
      less.status,
      readChallenge(less.response.headers.get('www-authenticate') ?? undefined).scope,
    ]).toEqual([403, 'tickets:read tickets:write tickets:refund'])
    expect((await client.get(as(tokenOf('')).headers)).status).toBe(403)
    const resumed = await client.get(last)
    const seen = [await resumed.next(), await resumed.next()]
    expect(seen).toContainEqual(
      expect.objectContaining({
        result: expect.objectContaining({ content: [{ type: 'text', text: 'refunded 1' }] }),
      }),
    )
    await server.close()
  })

  it('H2 cannot do anything about a task with less scope than the call that began it', async () => {
    const { server } = open()
    const send = (sent: Request) => server.fetch(sent)
    const client = await connectOlder(RESOURCE, { ...as(tokenOf(FULL)), capabilities }, send)
    const created = await client.call('tools/call', { ...call('report'), task: { ttl: 60_000 } })
    const { taskId } = (created.result as { task: { taskId: string } }).task
    for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
      const message = { jsonrpc: '2.0', id: 9, method, params: { taskId } }
      const { status, response } = await client.post(message, as(tokenOf('tickets:read')).headers)
      expect([
        method,
        status,
        readChallenge(response.headers.get('www-authenticate') ?? undefined).scope,
      ]).toEqual([method, 403, 'tickets:read tickets:write'])
    }
    const { result } = await client.call('tasks/get', { taskId })
    expect(result).toMatchObject({ taskId, status: expect.stringMatching(/working|input_required/) })
    await server.close()
  })

  it('H2 cannot answer a turn with less scope than its call needs', async () => {
    const { server, ran } = open()
    const client = await connectTurns((sent) => server.fetch(sent), RESOURCE, as(tokenOf(FULL)))
    const turn = await client.request('tools/call', call('refund', { amount: 1 }))
    const yes = [{ action: 'accept', content: { confirm: true } }]
    const last = { 'last-event-id': lastEventId(turn) }
    const less = { ...last, ...as(tokenOf('tickets:read')).headers }
    expect(await client.post(responsesTo(turn, yes), less)).toMatchObject({
      status: 403,
      message: { error: { data: { requiredScopes: ['tickets:read', 'tickets:write', 'tickets:refund'] } } },
    })
    expect(ran).toEqual(['refund'])
    expect(await client.answer(turn, yes)).toMatchObject({
      message: { result: { content: [{ text: 'refunded 1' }] } },
    })
    await server.close()
  })

  it('H2 cannot answer a question that has a state with less scope than its call needs', async () => {
    const { server } = open()
    const echoes = { ...capabilities, experimental: { 'request-state': {} } }
    const client = await connectOlder(RESOURCE, { ...as(tokenOf(FULL)), capabilities: echoes }, (sent) =>
      server.fetch(sent),
    )
    const params = call('refund', { amount: 1 })
    const stream = await client.post({ jsonrpc: '2.0', id: 7, method: 'tools/call', params })
    const { id, state } = (await stream.next()) ?? {}
    expect(state).toBeDefined()
    const yes = { jsonrpc: '2.0', id, state, result: { action: 'accept', content: { confirm: true } } }
    const refused = await client.post(yes, as(tokenOf('tickets:read')).headers)
    expect(refused.status).toBe(403)
    expect((await client.post(yes)).status).toBe(202)
    expect(await stream.next()).toMatchObject({ result: { content: [{ text: 'refunded 1' }] } })
    await server.close()
  })
})
