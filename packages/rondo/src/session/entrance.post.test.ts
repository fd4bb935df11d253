import { describe, expect, it } from 'vitest'
import { startOlder } from '../../../../test/support/older-server.ts'
import { VERSIONS } from '../protocol/rev-2025-11-25/codec.ts'

const call = (name: string, id = 7, more: object = {}) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name, arguments: {}, ...more },
})

describe('the beginning of a session', () => {
  it.each([
    ['2025-11-25', '2025-11-25'],
    ['2025-06-18', '2025-06-18'],
    ['2025-03-26', '2025-03-26'],
    ['2024-11-05', '2024-11-05'],
    ['DRAFT-2026-v1', 'DRAFT-2026-v1'],
    ['2026-07-28', '2025-11-25'],
    ['1999-01-01', '2025-11-25'],
  ])('F1 a client that asks for version %s gets %s', async (version, agreed) => {
    const { connect } = await startOlder()
    const { initialized, sessionId } = await connect({ version })
    expect(initialized.result).toMatchObject({
      protocolVersion: agreed,
      serverInfo: { name: 'older', title: 'Older', version: '1.0.0' },
      capabilities: {
        tools: { listChanged: true },
        prompts: { listChanged: true },
        resources: { listChanged: true, subscribe: true },
        completions: {},
        logging: {},
      },
    })
    expect(sessionId).toMatch(/^[\x21-\x7e]{16,}$/)
  })

  it.each([
    ['no version', { capabilities: {} }],
    ['capabilities that are a list', { protocolVersion: '2025-11-25', capabilities: [] }],
  ])('refuses %s', async (_, params) => {
    const { connect } = await startOlder()
    const client = await connect()
    const { status, next } = await client.post({ jsonrpc: '2.0', id: 1, method: 'initialize', params })
    expect(status).toBe(200)
    expect(await next()).toMatchObject({ id: 1, error: { code: -32602 } })
  })

  it('R9 refuses one session more than allowed, and accepts one again after another ended', async () => {
    const { connect } = await startOlder({
      sessions: { maxSessions: 1 },
      authenticate: () => ({ subject: 'ada' }),
    })
    const first = await connect()
    await expect(connect()).resolves.toMatchObject({ initialized: { error: { code: -32000 } } })
    expect((await first.remove()).status).toBe(200)
    await expect(connect()).resolves.toMatchObject({ initialized: { result: {} } })
  })

  it('R9 T18 leaves room for other callers when one has used up its sessions', async () => {
    const { connect } = await startOlder({
      sessions: { maxSessionsPerCaller: 2 },
      authenticate: ({ headers }) => {
        const subject = headers('x-user')
        return subject === undefined ? undefined : { subject }
      },
    })
    const as = (user?: string) => connect(user === undefined ? {} : { headers: { 'x-user': user } })
    const first = await as('ada')
    expect((await as('ada')).initialized).toHaveProperty('result')
    expect((await as('ada')).initialized).toMatchObject({ error: { code: -32000 } })
    expect((await as('bob')).initialized).toHaveProperty('result')
    for (let i = 0; i < 3; i++) expect((await as()).initialized).toHaveProperty('result')
    await first.remove()
    expect((await as('ada')).initialized).toHaveProperty('result')
  })

  it('F1 refuses the versions of an era that the server does not accept', async () => {
    const modern = await startOlder({ eras: ['2026-07-28'] })
    expect((await modern.connect()).initialized).toMatchObject({ error: { code: -32022 } })
    const older = await startOlder({ eras: ['2025-11-25'] })
    const client = await older.connect({ version: 'DRAFT-2026-v1' })
    expect(client.initialized).toMatchObject({ result: { protocolVersion: '2025-11-25' } })
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': {},
    }
    const headers = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/list' }
    const { next } = await client.post(
      { jsonrpc: '2.0', id: 1, method: 'tools/list', params: { _meta } },
      headers,
    )
    expect(await next()).toMatchObject({ error: { code: -32022, data: { supported: VERSIONS } } })
  })

  it('refuses an unknown era in the options', async () => {
    await expect(startOlder({ eras: [] })).rejects.toThrow(TypeError)
    await expect(startOlder({ eras: ['2020-01-01' as never] })).rejects.toThrow(TypeError)
    await expect(startOlder({ sessions: { maxSession: 1 } as never })).rejects.toThrow(TypeError)
    await expect(startOlder({ sessions: { resumeMs: -1 } })).rejects.toThrow(TypeError)
  })
})

describe('a request of a session', () => {
  it('F1 gets results without fields of later versions', async () => {
    const { connect } = await startOlder()
    const client = await connect()
    const tools = await client.call('tools/list')
    expect(Object.keys(tools.result as object)).toEqual(['tools'])
    const read = await client.call('resources/read', { uri: 'notes://today' })
    expect(read.result).toEqual({ contents: [{ uri: 'notes://today', text: 'Buy milk' }] })
    const plain = await client.call('tools/call', { name: 'plain', arguments: { n: 4 } })
    expect(plain.result).toEqual({ content: [{ type: 'text', text: '4' }] })
    expect((await client.call('ping')).result).toEqual({})
  })

  it('gets structured output only if it is an object', async () => {
    const { connect } = await startOlder()
    const client = await connect()
    const { tools } = (await client.call('tools/list')).result as {
      tools: { name: string; outputSchema?: unknown }[]
    }
    expect(tools.find(({ name }) => name === 'list')?.outputSchema).toBeUndefined()
    const listed = await client.call('tools/call', { name: 'list' })
    expect(listed.result).toEqual({ content: [{ type: 'text', text: '["a","b"]' }] })
  })

  it.each<[string, object, number]>([
    ['an unknown tool', call('no'), -32602],
    ['a missing resource', { ...call(''), method: 'resources/read', params: { uri: 'notes://no' } }, -32002],
    ['an unknown method', { ...call(''), method: 'server/discover' }, -32601],
    ['a level that is none', { ...call(''), method: 'logging/setLevel', params: { level: 'loud' } }, -32602],
    ['a cursor of nowhere', { ...call(''), method: 'tools/list', params: { cursor: 'x' } }, -32602],
  ])('answers %s with an error of its time', async (_, message, code) => {
    const { connect } = await startOlder()
    const { status, next } = await (await connect()).post(message)
    expect(status).toBe(200)
    expect(await next()).toMatchObject({ id: 7, error: { code } })
  })

  it('is refused if it is not a JSON-RPC message', async () => {
    const { connect } = await startOlder()
    const client = await connect()
    for (const body of [7, { jsonrpc: '1.0', id: null }, { jsonrpc: '2.0', id: {}, method: 'ping' }]) {
      const { status, next } = await client.post(body)
      expect(status).toBe(400)
      expect(await next()).toMatchObject({ error: { code: -32600 } })
    }
  })

  it('T1 works for its owner only: another caller does not find the session', async () => {
    const { connect } = await startOlder({
      authenticate: ({ headers }) => ({ subject: headers('authorization') ?? '?' }),
    })
    const alice = await connect({ headers: { authorization: 'alice' } })
    expect((await alice.call('ping')).result).toEqual({})
    const stolen = await alice.post({ ...call(''), method: 'ping' }, { authorization: 'bob' })
    expect(stolen.status).toBe(404)
    expect((await alice.get({ authorization: 'bob' })).status).toBe(404)
    expect((await alice.call('ping')).result).toEqual({})
  })

  it('gets 404 for an unknown session, and for one that has ended', async () => {
    const { connect } = await startOlder()
    const client = await connect()
    expect((await client.post(call('plain'), { 'mcp-session-id': 'unknown' })).status).toBe(404)
    await client.remove()
    expect((await client.post(call('plain'))).status).toBe(404)
    expect((await client.remove()).status).toBe(404)
  })

  it('is told to initialize if it names no session', async () => {
    const { url } = await startOlder()
    const headers = { 'content-type': 'application/json', 'mcp-protocol-version': '2025-11-25' }
    const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(call('plain')) })
    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject({ id: 7, error: { code: -32000 } })
  })

  it('is refused if its id is in use', async () => {
    const { connect } = await startOlder()
    const client = await connect()
    const open = await client.post(call('wait'))
    await open.next()
    expect(await (await client.post(call('plain'))).next()).toMatchObject({ id: 7, error: { code: -32600 } })
    await client.notify('notifications/cancelled', { requestId: 7 })
    expect(await open.next()).toBeUndefined()
  })
})

describe('batches', () => {
  const batch = [
    { jsonrpc: '2.0', method: 'notifications/initialized' },
    call('plain', 1, { arguments: { n: 1 } }),
    { jsonrpc: '2.0', id: 2, method: 'ping' },
    { jsonrpc: '2.0', id: 3, method: 'no/such' },
    { jsonrpc: '2.0', id: null, method: 'ping' },
  ]

  it.each(['2025-03-26', '2024-11-05'])('get one response at version %s', async (version) => {
    const { connect } = await startOlder()
    const { response, next, messages } = await (await connect({ version })).post(batch)
    expect(response.headers.get('content-type')).toBe('application/json')
    while (await next()) expect(messages.length).toBeLessThan(5)
    expect(messages.map(({ id }) => id).sort()).toEqual([1, 2, 3, null])
  })

  it('F1 are answered on a stream if one of their calls asks a question', async () => {
    const { connect } = await startOlder()
    const client = await connect({ version: '2025-03-26' })
    const stream = await client.post([call('ask', 1), call('plain', 2, { arguments: { n: 2 } })])
    expect(stream.response.headers.get('content-type')).toBe('text/event-stream')
    for (let message = await stream.next(); message; message = await stream.next()) {
      if (message.method === 'elicitation/create') {
        await client.respond(message.id, { action: 'accept', content: { name: 'Ada' } })
      }
    }
    const texts = stream.messages.filter(({ result }) => result).map(({ id, result }) => [id, result])
    expect(Object.fromEntries(texts as [number, unknown][])).toMatchObject({
      1: { content: [{ text: 'Hello Ada' }] },
      2: { content: [{ text: '2' }] },
    })
  })

  it('are refused in versions that have none', async () => {
    const { connect } = await startOlder()
    for (const version of ['2025-11-25', '2025-06-18', 'DRAFT-2026-v1']) {
      expect((await (await connect({ version })).post(batch)).status).toBe(400)
    }
    const old = await connect({ version: '2025-03-26' })
    expect((await old.post([])).status).toBe(400)
    expect((await old.post(Array.from({ length: 65 }, (_, id) => call('plain', id)))).status).toBe(400)
    expect((await old.post([{ jsonrpc: '2.0', method: 'notifications/x' }])).status).toBe(202)
  })
})

describe('without sessions', () => {
  it.each([['switched off', { sessions: false as const }]])(
    'F1 with sessions %s, everything is served but nobody is asked',
    async (_, options) => {
      const { connect, runs } = await startOlder(options)
      const client = await connect()
      expect(client.sessionId).toBeUndefined()
      expect(client.initialized).toMatchObject({ result: { capabilities: { tools: {}, resources: {} } } })
      expect((await client.call('ping')).result).toEqual({})
      expect((await client.call('tools/call', { name: 'plain', arguments: { n: 3 } })).result).toMatchObject({
        content: [{ text: '3' }],
      })
      const asked = await client.call('tools/call', { name: 'ask' })
      expect(asked.result).toMatchObject({ isError: true })
      expect(JSON.stringify(asked.result)).toMatch(
        /elicitation\.form.*\\"name\\", \\"nickname\\".*keeps no session/,
      )
      expect(runs()).toBe(1)
      expect((await client.call('prompts/get', { name: 'brief' })).error).toMatchObject({ code: -32603 })
      expect((await client.call('resources/subscribe', { uri: 'notes://today' })).error).toMatchObject({
        code: -32601,
      })
      expect((await client.get()).status).toBe(405)
    },
  )

  it('a lost connection ends the call, because there is nothing to resume', async () => {
    const { connect, aborted } = await startOlder({ sessions: false })
    const stream = await (await connect()).post(call('wait'))
    await stream.next()
    expect(stream.ids).not.toContain('1-0')
    await stream.drop()
    await aborted
  })

  it('F1 a client that accepts no streams is not asked', async () => {
    const { connect } = await startOlder()
    const client = await connect({ headers: { accept: 'application/json' } })
    const asked = await client.call('tools/call', { name: 'ask' })
    expect(JSON.stringify(asked.result)).toMatch(/does not accept text\/event-stream/)
  })

  it('F1 a client without the capability is told which one is missing and what to send instead', async () => {
    const { connect } = await startOlder()
    const client = await connect({ capabilities: {} })
    const asked = await client.call('tools/call', { name: 'ask' })
    expect(asked.result).toEqual({
      content: [
        {
          type: 'text',
          text:
            'This client cannot be asked: it lacks the capability elicitation.form. ' +
            'The tool asks the user: "Name?" The answer has name: a text. Nothing was done. ' +
            'Ask the user, then call again with the arguments "name", "nickname".',
        },
      ],
      isError: true,
    })
    expect(client.asked).toEqual([])
  })
})
