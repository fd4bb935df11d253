/** W5: what a caller is listed is what its own credentials are offered. */

import type { GatewayOptions } from '@rondo/gateway'
import { type Client, connect } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createManualClock } from '../support/manual-clock.ts'
import { chatty, fake, type Message, modern, said, toolRows } from './fake.ts'
import { serveGateway } from './peers.ts'

const byHeader: GatewayOptions['authenticate'] = ({ headers }) => {
  const user = headers('x-user')
  return user === undefined ? undefined : { subject: user }
}
const credentials: GatewayOptions['upstreams'][string]['credentials'] = (principal) => ({
  'x-caller': principal?.subject ?? 'nobody',
})

/** A server whose tools depend on who calls. `nobody` is refused if there is no entry for it. */
async function perCaller(tools: Record<string, readonly object[]>) {
  const seen: string[] = []
  const server = await fake((message: Message, response, request) => {
    const who = String(request.headers['x-caller'])
    seen.push(`${who} ${message.method}`)
    if (tools[who] === undefined) return void response.writeHead(401).end()
    const called = String((message.params as { name?: string } | undefined)?.name)
    const isOwn = tools[who].some((tool) => (tool as { name: string }).name === called)
    if (message.method === 'tools/call' && !isOwn) return { error: { code: -32602, message: 'Unknown tool' } }
    return modern({ tools: tools[who], call: () => said(`${who} called ${called}`) })(message)
  })
  return { ...server, seen }
}

async function as(url: string, user?: string, mode?: '2025-11-25'): Promise<Client> {
  const client = await connect(url, {
    ...(user && { headers: { 'x-user': user } }),
    ...(mode && { mode, drafts: false }),
  })
  onTestFinished(() => client.close())
  return client
}

const names = async (client: Client) => (await client.listTools({ fresh: true })).map(({ name }) => name)

describe.each([undefined, '2025-11-25'] as const)('W5 callers of a server that knows them (%s)', (mode) => {
  it('are listed what each of them is offered, and can call that and nothing else', async () => {
    const up = await perCaller({ ann: toolRows('read', 'write'), bob: toolRows('read'), nobody: [] })
    const { url } = await serveGateway({ up: { url: up.url, credentials } }, { authenticate: byHeader })
    const [ann, bob] = [await as(url, 'ann', mode), await as(url, 'bob', mode)]
    expect(await names(ann)).toEqual(['read', 'write'])
    expect(await names(bob)).toEqual(['read'])
    expect(await ann.callTool('write')).toMatchObject(said('ann called write'))
    await expect(bob.callTool('write')).rejects.toThrow('Unknown tool')
    expect(await bob.callTool('read')).toMatchObject(said('bob called read'))
  })

  it.each([{ only: ['read'] }, { except: ['write'] }])(
    'are listed, and can call, what the configuration allows and nothing else: %o',
    async (allowed) => {
      const up = await perCaller({ ann: toolRows('read', 'write'), nobody: [] })
      const upstreams = { up: { url: up.url, credentials, ...allowed } }
      const { url } = await serveGateway(upstreams, { authenticate: byHeader })
      const ann = await as(url, 'ann', mode)
      expect(await names(ann)).toEqual(['read'])
      await expect(ann.callTool('write')).rejects.toThrow('Unknown tool')
      expect(up.seen).not.toContain('ann tools/call')
      expect(await ann.callTool('read')).toMatchObject(said('ann called read'))
    },
  )

  it('W6 reach the server that each of them is listed under a name that two servers have', async () => {
    const one = await perCaller({ ann: toolRows('b_c'), nobody: [] })
    const two = await perCaller({ ann: [], bob: toolRows('c'), nobody: [] })
    const upstreams = { a: { url: one.url, credentials }, a_b: { url: two.url, credentials } }
    const { url } = await serveGateway(upstreams, { authenticate: byHeader })
    const [ann, bob] = [await as(url, 'ann', mode), await as(url, 'bob', mode)]
    expect(await ann.callTool('a_b_c')).toMatchObject(said('ann called b_c'))
    expect(await bob.callTool('a_b_c')).toMatchObject(said('bob called c'))
    expect(one.seen).not.toContain('bob tools/call')
  })

  it('may call what another instance listed', async () => {
    const up = await perCaller({ ann: toolRows('write'), nobody: [] })
    const { url } = await serveGateway({ up: { url: up.url, credentials } }, { authenticate: byHeader })
    expect(await (await as(url, 'ann', mode)).callTool('write')).toMatchObject(said('ann called write'))
  })
})

describe('W5 lists of callers', () => {
  it('include what all callers share, and are nobody’s without a caller', async () => {
    const up = await perCaller({ ann: toolRows('write'), nobody: toolRows('public') })
    const other = await fake(modern({ tools: toolRows('shared') }))
    const upstreams = { up: { url: up.url, credentials }, other: { url: other.url } }
    const { url } = await serveGateway(upstreams, { authenticate: byHeader })
    expect((await names(await as(url, 'ann'))).sort()).toEqual(['other_shared', 'up_write'])
    expect((await names(await as(url))).sort()).toEqual(['other_shared', 'up_public'])
  })

  it('are read from a server that refuses everybody without credentials', async () => {
    const up = await perCaller({ ann: toolRows('write') })
    const { url, gateway } = await serveGateway(
      { up: { url: up.url, credentials } },
      { authenticate: byHeader },
    )
    expect(gateway.upstreams()[0]?.problem).toBeUndefined()
    expect(await names(await as(url, 'ann'))).toEqual(['write'])
    // The control: a caller that the server refuses is listed nothing, and no other caller's tools.
    expect(await names(await as(url, 'eve'))).toEqual([])
  })

  it('are kept for half a minute, and stay as they were while the server is away', async () => {
    const up = await perCaller({ ann: toolRows('write'), nobody: [] })
    const clock = createManualClock()
    const { url } = await serveGateway(
      { up: { url: up.url, credentials } },
      { authenticate: byHeader, clock },
    )
    const ann = await as(url, 'ann')
    const reads = () => up.seen.filter((one) => one === 'ann tools/list').length
    expect(await names(ann)).toEqual(['write'])
    expect(await names(ann)).toEqual(['write'])
    expect(reads()).toBe(1)
    clock.advance(30_000)
    expect(await names(ann)).toEqual(['write'])
    expect(reads()).toBe(2)
    up.stop()
    clock.advance(30_000)
    expect(await names(ann)).toEqual(['write'])
  })

  it('decide on a call with the annotations that its caller was given', async () => {
    const harmless = { name: 't', inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } }
    const up = await perCaller({ ann: [harmless], nobody: toolRows('t') })
    const seen: unknown[] = []
    const decide: GatewayOptions['decide'] = ({ annotations }) => {
      seen.push(annotations)
      return 'allow'
    }
    const { url } = await serveGateway(
      { up: { url: up.url, credentials } },
      { authenticate: byHeader, decide },
    )
    const ann = await as(url, 'ann')
    await names(ann)
    await ann.callTool('t')
    expect(seen).toEqual([{ readOnlyHint: true }])
  })

  it('decide on a call with the annotations of its own caller, even if it has listed nothing', async () => {
    const row = { name: 't', inputSchema: { type: 'object' } }
    const waits = { type: 'object', properties: { wait_for_previous: { type: 'boolean' } } }
    const up = await perCaller({
      ann: [{ ...row, annotations: { readOnlyHint: true } }],
      bob: [{ ...row, inputSchema: waits, annotations: { destructiveHint: true } }],
    })
    const seen: unknown[] = []
    const decide: GatewayOptions['decide'] = ({ annotations, arguments: args, principal }) => {
      seen.push([principal?.subject, annotations, args])
      return 'allow'
    }
    const { url } = await serveGateway(
      { up: { url: up.url, credentials } },
      { authenticate: byHeader, decide },
    )
    // The first one declares the tool for all.
    await (await as(url, 'ann')).callTool('t', { wait_for_previous: true })
    await (await as(url, 'bob')).callTool('t', { wait_for_previous: true })
    expect(seen).toEqual([
      ['ann', { readOnlyHint: true }, {}],
      ['bob', { destructiveHint: true }, { wait_for_previous: true }],
    ])
  })

  it.each([
    ['a caller’s own credentials is private, whatever the server says', credentials, 'private'],
    ['a login that all share is as the server says', undefined, 'public'],
  ])('have resources whose content, read with %s', async (_what, own, cacheScope) => {
    const uri = 'doc:///report'
    const contents = [{ uri, text: 'of one caller' }]
    const resources = [{ uri, name: 'report' }]
    const up = await fake(
      modern({ resources, call: () => ({ contents, ttlMs: 60_000, cacheScope: 'public' }) }),
    )
    const upstreams = { up: { url: up.url, ...(own && { credentials: own }) } }
    const { url } = await serveGateway(upstreams, { authenticate: byHeader })
    expect(await (await as(url, 'ann')).readResource(uri)).toMatchObject({ contents, cacheScope })
  })

  it('bring no caller the instructions that another one was given', async () => {
    const offer = modern({ tools: toolRows('t') })
    const up = await fake((message, _response, request) => {
      const reply = offer(message) as { result?: object }
      if (message.method !== 'server/discover') return reply
      return { result: { ...reply.result, instructions: `For ${request.headers['x-caller']}.` } }
    })
    const shared = { tools: toolRows('s') }
    const other = await chatty(modern(shared))
    const { url } = await serveGateway(
      { up: { url: up.url, credentials }, other: { url: other.url } },
      { authenticate: byHeader },
    )
    await expect.poll(other.subscribers).toBe(1)
    await names(await as(url, 'ann'))
    // A change at the other server declares everything anew, with the instructions that are known by now.
    shared.tools = toolRows('s', 'new')
    other.notify('notifications/tools/list_changed', 1)
    const nobody = await as(url)
    await expect.poll(() => names(nobody)).toContain('other_new')
    expect((await as(url, 'bob')).server.instructions).toBe('up: For nobody.')
  })
})
