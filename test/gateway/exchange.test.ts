/**
 * A gateway that passes callers on by token exchange, between real parties: an authorization server (`oidc-provider`), a protected
 * upstream and the gateway. A confused deputy would let a caller act upstream with somebody else's rights, or with more of its own.
 */

import { createServer as createHttp } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createServer, generateKey, type LogEvent } from 'rondo'
import { type Client, connect } from 'rondo/client'
import { exchange } from 'rondo/client/oauth'
import { oauthResource } from 'rondo/oauth'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { ROBOT_SECRET } from '../support/authorization-server.ts'
import { type ExchangingServer, startExchangingServer } from '../support/token-exchange.ts'
import { serveGateway } from './peers.ts'

let as: ExchangingServer
beforeAll(async () => {
  as = await startExchangingServer()
})
afterAll(() => as.close())

/** A protected server that records the tokens it gets, and a gateway before it. */
async function open(lists?: () => Record<string, string>) {
  const seen: string[] = []
  const http = createHttp()
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  const upstream = `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`
  const server = createServer({
    name: 'tables',
    version: '1.0.0',
    keys: generateKey(),
    log: 'off',
    authenticate: oauthResource({ resource: upstream, issuers: [as.issuer] }),
  })
  server.tool('whoami', {}, (_args, { principal }) => `${principal?.subject} ${principal?.scopes?.join(' ')}`)
  const handler = server.nodeHandler()
  http.on('request', (request, response) => {
    seen.push(request.headers.authorization ?? '')
    handler(request, response)
  })
  onTestFinished(async () => {
    await server.close()
    http.closeAllConnections()
    http.close()
  })
  // The catalogue is read with credentials of the gateway's own.
  const { access_token: own } = await as.robot({ resource: upstream, scope: 'tickets:read' })
  const resource = 'https://gateway.example.com/mcp'
  const events: LogEvent[] = []
  const { url } = await serveGateway(
    {
      tables: {
        url: upstream,
        credentials: exchange({
          issuer: as.issuer,
          client: { id: 'gateway', secret: ROBOT_SECRET },
          resources: { tables: upstream },
          lists: lists ?? (() => ({ Authorization: `Bearer ${own}` })),
        }),
      },
    },
    {
      authenticate: oauthResource({ resource, issuers: [as.issuer] }),
      log: (event) => void events.push(event),
    },
  )
  const tokenOf = async (user: string, scope = 'tickets:read') =>
    (await as.authorize({ resource, scope: `openid ${scope}`, user })).access_token
  const callWith = async (token: string) => {
    const client: Client = await connect(url, { headers: { Authorization: `Bearer ${token}` } })
    try {
      const tools = await client.listTools()
      const name = tools.find((tool) => tool.name.endsWith('whoami'))?.name ?? 'whoami'
      const { content, isError } = await client.callTool(name)
      return `${isError ? 'error: ' : ''}${content[0]?.type === 'text' ? content[0].text : ''}`
    } finally {
      await client.close()
    }
  }
  return { seen, upstream, tokenOf, callWith, own, events }
}

describe('a gateway with token exchange', () => {
  it('H8 T36 calls for each caller with a token of that caller, and passes no token on', async () => {
    const { seen, tokenOf, callWith, own, upstream } = await open()
    const [alice, bob] = [await tokenOf('alice'), await tokenOf('bob')]
    expect(await callWith(alice)).toBe('alice tickets:read')
    expect(await callWith(bob)).toBe('bob tickets:read')
    expect(await callWith(alice)).toBe('alice tickets:read')
    for (const token of [alice, bob]) {
      expect(seen.join()).not.toContain(token)
      expect(as.presented).toContain(token)
      // The control: the token of a caller is refused upstream, so nothing works by forwarding it.
      await expect(connect(upstream, { headers: { Authorization: `Bearer ${token}` } })).rejects.toThrow(
        /401/,
      )
    }
    // The control: the gateway's own token is accepted upstream, and names the gateway.
    expect(seen).toContain(`Bearer ${own}`)
  })

  it('T36 calls with the token that a caller sends now, not with an earlier one that had more scope', async () => {
    const { tokenOf, callWith } = await open()
    const strong = await tokenOf('carol', 'tickets:read tickets:write')
    const weak = await tokenOf('carol', 'tickets:read')
    expect(await callWith(strong)).toBe('carol tickets:read tickets:write')
    expect(await callWith(weak)).toBe('carol tickets:read')
    expect(await callWith(strong)).toBe('carol tickets:read tickets:write')
  })

  it('T36 exchanges the token of a refreshed login', async () => {
    const { tokenOf, callWith } = await open()
    const [first, second] = [await tokenOf('dora'), await tokenOf('dora')]
    expect(first).not.toBe(second)
    expect(await callWith(first)).toBe('dora tickets:read')
    expect(await callWith(second)).toBe('dora tickets:read')
    expect(as.presented).toContain(second)
  })

  it('T36 refuses a caller whose token cannot be exchanged, and others are served meanwhile', async () => {
    const { tokenOf, callWith, seen } = await open()
    const [mallory, erin] = [await tokenOf('mallory'), await tokenOf('erin')]
    as.refused.add('mallory')
    const before = seen.length
    for (let i = 0; i < 3; i++)
      expect(await callWith(mallory)).toMatch(/^error: .*Could not exchange the token/)
    // Nothing was sent for mallory, with whatever credentials, but the request for the list.
    expect(seen.slice(before).every((one) => one === seen[0])).toBe(true)
    expect(await callWith(erin)).toBe('erin tickets:read')
  })
})
