/** Servers whose responses have the ids of other requests, come twice, or answer notifications. */

import type { GatewayOptions, UpstreamOptions } from '@rondo/gateway'
import { type Client, connect } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { fake, type Message, modern, older } from './fake.ts'
import { serveGateway } from './peers.ts'

const REVISIONS = ['2026-07-28', '2025-11-25'] as const
type Revision = (typeof REVISIONS)[number]

/**
 * A server as a command, with one process for each caller. Before and after each response to a call it writes others with the same
 * text: under the ids around it, in other spellings, and under none. It also answers every notification,
 * and never a call for nobody.
 */
const LIAR = String.raw`
const revision = process.argv[1]
const HINT = { ttlMs: 0, cacheScope: 'private', resultType: 'complete' }
const write = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n')
const lie = (id, result) => {
  for (let other = -2; other < 60; other += 1) if (id !== undefined && other !== id) write({ id: other, result })
  for (const other of [String(id), null, undefined, 'post', [id], { id }, true]) write({ id: other, result })
}
const tools = [{ name: 't', inputSchema: { type: 'object' } }]
const reply = ({ method, params }) => {
  if (method === 'server/discover')
    return revision < '2026'
      ? { error: { code: -32601, message: 'Method not found' } }
      : { result: { supportedVersions: [revision], capabilities: { tools: {} }, ...HINT } }
  if (method === 'initialize')
    return { result: { protocolVersion: revision, capabilities: { tools: {} }, serverInfo: { name: 'liar', version: '1' } } }
  if (method === 'tools/list') return { result: { tools, ...(revision > '2026' && HINT) } }
  return { error: { code: -32601, message: 'Method not found' } }
}
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const message = JSON.parse(line)
  const { id, method, params } = message
  const text = 'for ' + (params?.arguments?.who ?? method)
  const result = { content: [{ type: 'text', text }], resultType: 'complete' }
  if (id === undefined) return lie(id, result)
  if (method !== 'tools/call') return write({ id, ...reply(message) })
  if (params.arguments.who === 'nobody') return
  lie(id, result)
  write({ id, result })
  lie(id, result)
  write({ id, result: { ...result, content: [{ type: 'text', text: 'a second response' }] } })
})
`

const authenticate: GatewayOptions['authenticate'] = ({ headers }) => ({ subject: headers('x-user') ?? '' })

async function callers(up: UpstreamOptions, names: readonly string[]): Promise<Client[]> {
  const { url } = await serveGateway({ up }, { authenticate })
  return Promise.all(
    names.map(async (who) => {
      const client = await connect(url, { headers: { 'x-user': who } })
      onTestFinished(() => client.close())
      return client
    }),
  )
}

const WHO = ['ann', 'bob', 'eve'] as const
const textOf = (client: Client, who: string): Promise<string> =>
  client.callTool('t', { who }).then(JSON.stringify, String)

describe.each(REVISIONS)('W5 a command of %s that answers under the ids of other requests', (revision) => {
  const up = { command: process.execPath, args: ['-e', LIAR, revision] }

  it('returns to each caller its own result, and only the first', async () => {
    const clients = await callers(up, WHO)
    const texts = await Promise.all(clients.map((client, n) => textOf(client, WHO[n] ?? '')))
    for (const [n, text] of texts.entries()) {
      expect(text).toContain(`"for ${WHO[n]}"`)
      expect(text).not.toContain('a second response')
    }
  })

  it('does not reach the open call of another caller', async () => {
    const [ann, bob] = await callers(up, WHO)
    if (ann === undefined || bob === undefined) throw new Error('no clients')
    const ended: string[] = []
    const open = textOf(ann, 'nobody').then((text) => void ended.push(text))
    await textOf(bob, 'bob')
    expect(ended).toEqual([])
    // Control: a process that lies about the ids of its own caller is believed.
    await textOf(ann, 'ann')
    await open
    expect(ended).toEqual([expect.stringContaining('"for ann"')])
  })
})

/** Over HTTP, a response belongs to the request that it answers. A liar puts others before, after or in its place. */
const LIES: Readonly<Record<string, (own: object, others: readonly object[]) => readonly object[]>> = {
  'another id in place of its own': (_own, others) => others,
  'its own id among others': (own, others) => [...others, own, ...others],
  'its own id twice': (own) => [
    own,
    { ...own, result: { content: [{ type: 'text', text: 'a second response' }] } },
  ],
}

async function liar(revision: Revision, lie: string, isStream: boolean) {
  return fake((message, response, request) => {
    const { id, method, params } = message
    const text = `for ${(params?.arguments as Message | undefined)?.who ?? method}`
    const result = { content: [{ type: 'text', text }], resultType: 'complete' }
    const others = [-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, String(id), undefined]
      .filter((other) => other !== id)
      .map((other) => ({ jsonrpc: '2.0', id: other, result }))
    const isCall = method === 'tools/call'
    if (!isCall && (id !== undefined || request.method !== 'POST'))
      return revision < '2026'
        ? older(message, response, request)
        : modern({ tools: [{ name: 't', inputSchema: { type: 'object' } }] })(message)
    const own = { jsonrpc: '2.0', id, result }
    const messages = isCall ? (LIES[lie]?.(own, others) ?? []) : others
    response.writeHead(200, { 'Content-Type': isStream ? 'text/event-stream' : 'application/json' })
    if (isStream) response.end(messages.map((one) => `data: ${JSON.stringify(one)}\n\n`).join(''))
    else response.end(JSON.stringify(messages.length === 1 ? messages[0] : messages))
    return undefined
  })
}

const cells = REVISIONS.flatMap((revision) =>
  Object.keys(LIES).flatMap((lie) => [true, false].map((isStream) => ({ revision, lie, isStream }))),
)

describe.each(cells)(
  'W5 a server of $revision that sends $lie (stream: $isStream)',
  ({ revision, lie, isStream }) => {
    it('reaches no other call, and every call ends', async () => {
      const { url } = await liar(revision, lie, isStream)
      const clients = await callers({ url }, WHO)
      const texts = await Promise.all(clients.map((client, n) => textOf(client, WHO[n] ?? '')))
      for (const [n, text] of texts.entries()) {
        for (const other of WHO) if (other !== WHO[n]) expect(text).not.toContain(`for ${other}`)
        expect(text).not.toContain('a second response')
        expect(text).toMatch(new RegExp(`"for ${WHO[n]}"|may have had effects`))
      }
    })
  },
)
