import { describe, expect, it } from 'vitest'
import { DISCOVERY, respond, said } from '../../../../test/support/scripted-server.ts'
import { connect } from './connect.ts'

interface Message {
  readonly id: number
  readonly method: string
}

/** Answers discovery with each reply in turn, everything else with a text. */
function discovering(...replies: ((id: number) => Response)[]) {
  const versions: (string | null)[] = []
  return {
    versions,
    async fetch(request: Request) {
      const { id, method } = (await request.json()) as Message
      if (method !== 'server/discover') return respond(id, said('hello'))
      versions.push(request.headers.get('mcp-protocol-version'))
      return (replies.shift() ?? (() => respond(id, DISCOVERY)))(id)
    },
  }
}

const unsupported = (supported: unknown) => (id: number) =>
  Response.json(
    { jsonrpc: '2.0', id, error: { code: -32022, message: 'no', data: { supported, requested: 'x' } } },
    { status: 400 },
  )
const refusing =
  (code: number, status = 200) =>
  (id: number) =>
    Response.json({ jsonrpc: '2.0', id, error: { code, message: 'no' } }, { status })

describe('negotiating a revision', () => {
  it('C15 talks to a server object directly', async () => {
    const client = await connect(discovering())
    expect(client.server).toEqual({ target: 'memory:', name: 'scripted', version: '1.0.0', capabilities: {} })
    expect(await client.callTool('t')).toMatchObject({ content: [{ text: 'hello' }] })
  })

  it('sends the request again in a version that both sides speak', async () => {
    const server = discovering(unsupported(['2031-01-01', '2026-07-28']))
    expect((await connect(server)).protocolVersion).toBe('2026-07-28')
    expect(server.versions).toEqual(['2026-07-28', '2026-07-28'])
  })

  it('does not agree on a draft with drafts: false', async () => {
    const greeted: string[] = []
    const draft = {
      async fetch(request: Request) {
        const text = await request.text()
        if (text === '') return new Response(null, { status: 405 })
        const { id, method, params } = JSON.parse(text)
        if (method === 'server/discover') return unsupported(['DRAFT-2026-v1'])(id)
        if (method !== 'initialize') return new Response(null, { status: 202 })
        greeted.push(params.protocolVersion)
        const serverInfo = { name: 's', version: '1' }
        return respond(id, { protocolVersion: 'DRAFT-2026-v1', capabilities: {}, serverInfo })
      },
    }
    expect((await connect(draft)).protocolVersion).toBe('DRAFT-2026-v1')
    await expect(connect(draft, { drafts: false })).rejects.toThrow('PEER_REVISION')
    expect(greeted).toEqual(['DRAFT-2026-v1', '2025-11-25'])
    const both = connect(draft, { drafts: false, mode: 'DRAFT-2026-v1' })
    await expect(both).rejects.toThrow('drafts: false')
  })

  it('sends the request again only once', async () => {
    const again = unsupported(['2026-07-28'])
    const server = discovering(again, again, again)
    await expect(connect(server)).rejects.toMatchObject({ code: 'PEER_REVISION' })
    expect(server.versions).toHaveLength(2)
  })

  it.each([
    ['versions we do not speak', unsupported(['2025-11-25'])],
    ['no versions at all', unsupported('x')],
    ['a method it does not know', refusing(-32601, 404)],
    ['a session it wants first', refusing(-32000, 400)],
    ['an error of its own', refusing(-32603)],
    ['a result that is no discovery', (id: number) => respond(id, said('x'))],
    ['a plain 404', () => new Response('nothing here', { status: 404 })],
    ['a plain 405', () => new Response(null, { status: 405 })],
    [
      'discovery without our version',
      (id: number) => respond(id, { ...DISCOVERY, supportedVersions: ['2025-11-25'] }),
    ],
  ])('says that the server and the client share no version: %s', async (_how, reply) => {
    await expect(connect(discovering(reply))).rejects.toMatchObject({
      code: 'PEER_REVISION',
      message: expect.stringContaining('2026-07-28'),
    })
  })

  it.each([
    [
      '401',
      () => new Response(null, { status: 401, headers: { 'WWW-Authenticate': 'Bearer' } }),
      'PEER_HTTP',
    ],
    ['403', () => new Response('x', { status: 403 }), 'PEER_HTTP'],
    ['503', () => new Response('x', { status: 503 }), 'PEER_HTTP'],
    ['a JSON-RPC error with status 500', refusing(-32603, 500), 'PEER_HTTP'],
    ['a JSON-RPC error with status 401', refusing(-32000, 401), 'PEER_HTTP'],
    [
      'a web page',
      () => new Response('<html>', { headers: { 'Content-Type': 'text/html' } }),
      'PEER_BAD_RESPONSE',
    ],
    ['the answer to another request', () => respond(99, DISCOVERY), 'PEER_BAD_RESPONSE'],
  ])('does not mistake %s for an older server', async (_what, reply, code) => {
    await expect(connect(discovering(reply))).rejects.toMatchObject({ code })
  })

  it.each([
    ['an error', refusing(-32601, 404), /server\/discover failed: no \(-32601\)/],
    ['a status', () => new Response('x', { status: 404 }), /server\/discover failed: .*HTTP status 404/],
    ['other versions', unsupported(['2025-11-25']), /it speaks 2025-11-25/],
  ])(
    'says what server/discover returned where mode allows only 2026-07-28: %s',
    async (_what, reply, why) => {
      const sent: string[] = []
      const server = discovering(reply)
      const fetch = async (request: Request) => {
        sent.push(((await request.clone().json()) as Message).method)
        return server.fetch(request)
      }
      const connecting = connect({ fetch }, { mode: '2026-07-28' })
      await expect(connecting).rejects.toMatchObject({
        code: 'PEER_REVISION',
        message: expect.stringMatching(why),
      })
      await expect(connecting).rejects.not.toThrow(/initialize/)
      expect(sent).toEqual(['server/discover'])
    },
  )

  it.each([
    [429, 'PEER_HTTP', /HTTP status 429, too many requests: retry later/],
    [500, 'PEER_HTTP', /HTTP status 500/],
    [400, 'PEER_REVISION', /neither server\/discover nor initialize, which failed: no \(-32000\)/],
  ])('reports what initialize returned: status %d with a JSON-RPC error', async (status, code, why) => {
    const fetch = async (request: Request) => {
      const { id, method } = (await request.json()) as Message
      return method === 'initialize' ? refusing(-32000, status)(id) : refusing(-32601, 404)(id)
    }
    await expect(connect({ fetch })).rejects.toMatchObject({ code, message: expect.stringMatching(why) })
  })

  it('names auth at a 401, unless the caller logs in', async () => {
    const reply = () => new Response(null, { status: 401, headers: { 'WWW-Authenticate': 'Bearer' } })
    await expect(connect(discovering(reply))).rejects.toThrow(
      /pass auth \(oauth\(\) of rondo\/client\/oauth\)/,
    )
    const headers = { authorization: 'Bearer old' }
    await expect(connect(discovering(reply), { headers })).rejects.toThrow(/does not accept the credentials/)
    const auth = { open: () => ({ credential: async () => undefined, refused: async () => false }) }
    const fetch = async () => reply()
    await expect(connect('http://127.0.0.1/mcp', { fetch, auth: auth as never })).rejects.not.toThrow(
      /auth \(/,
    )
  })

  it('passes a login challenge on to the caller', async () => {
    const reply = () =>
      new Response(null, { status: 401, headers: { 'WWW-Authenticate': 'Bearer realm="x"' } })
    await expect(connect(discovering(reply))).rejects.toMatchObject({
      data: {
        status: 401,
        challenge: 'Bearer realm="x"',
        challenges: [{ scheme: 'Bearer', params: { realm: 'x' } }],
      },
    })
  })

  it.each(['ftp://x', 'no url', 'http://a:b@127.0.0.1/', {}])('refuses the target %j', async (target) => {
    await expect(connect(target as string)).rejects.toThrowError(TypeError)
  })
})

describe('headers of the caller', () => {
  it('are sent, and cannot replace those of the protocol', async () => {
    const seen: Headers[] = []
    const server = discovering()
    const fetch = (request: Request) => {
      seen.push(request.headers)
      return server.fetch(request)
    }
    const headers = { authorization: 'Bearer x', 'mcp-method': 'evil', ACCEPT: 'text/html' }
    await connect({ fetch }, { headers })
    expect(seen[0]?.get('authorization')).toBe('Bearer x')
    expect(seen[0]?.get('mcp-method')).toBe('server/discover')
    expect(seen[0]?.get('accept')).toBe('application/json, text/event-stream')
  })
})
