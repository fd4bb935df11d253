/** R9 W8: servers that flood, offer too much, or are replaced by a server of another revision. */

import type { ServerResponse } from 'node:http'
import { connect } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createManualClock } from '../support/manual-clock.ts'
import { chatty, fake, HINT, type Message, modern, older, said, toolRows } from './fake.ts'
import { serveGateway } from './peers.ts'

async function clientOf(url: string) {
  const client = await connect(url)
  onTestFinished(() => client.close())
  return client
}

describe('a server that floods', () => {
  it('with changes of its lists is read once a second, and callers hear of one change', async () => {
    const up = await chatty(modern({ tools: toolRows('t') }))
    const other = await fake(modern({ tools: toolRows('calm'), call: () => said('calm') }))
    const clock = createManualClock()
    const { url } = await serveGateway({ up: { url: up.url }, other: { url: other.url } }, { clock })
    await expect.poll(up.subscribers).toBe(1)
    const client = await clientOf(url)
    let heard = 0
    const subscription = client.subscribe({ toolsListChanged: true })
    onTestFinished(() => subscription.close())
    await subscription.filter
    void (async () => {
      for await (const change of subscription) heard += change.kind === 'tools' ? 1 : 0
    })()
    const lists = () => up.methods.filter((one) => one === 'tools/list').length
    const before = lists()
    up.notify('notifications/tools/list_changed', 5_000)
    await expect.poll(lists).toBe(before + 1)
    await expect.poll(() => heard).toBe(1)
    // Calls of others are served meanwhile.
    expect(await client.callTool('other_calm')).toMatchObject(said('calm'))
    expect(lists()).toBe(before + 1)
    await expect
      .poll(() => {
        clock.advance(1_000)
        return lists()
      })
      .toBe(before + 2)
  })

  it('with junk between its messages ends its own call, and nobody else’s', async () => {
    const up = await fake((message, response) => {
      if (message.method !== 'tools/call') return modern({ tools: toolRows('t') })(message)
      response.writeHead(200, { 'Content-Type': 'text/event-stream' })
      const junk = `data: ${JSON.stringify({ jsonrpc: '2.0', method: 'notifications/x', params: { x: 'y'.repeat(1_000) } })}\n\n`
      const flood = (): void => {
        while (!response.destroyed && response.write(junk.repeat(1_000)));
        if (!response.destroyed) response.once('drain', flood)
      }
      flood()
    })
    const other = await fake(modern({ tools: toolRows('calm'), call: () => said('calm') }))
    const { url } = await serveGateway({ up: { url: up.url }, other: { url: other.url } })
    const client = await clientOf(url)
    const flooded = client.callTool('up_t')
    expect(await client.callTool('other_calm')).toMatchObject(said('calm'))
    expect(await flooded).toMatchObject({
      isError: true,
      content: [{ text: expect.stringMatching(/"up" failed.*may have had effects/) }],
    })
  })
})

describe('a server that offers much', () => {
  it('lists 10,000 tools page by page, and one notification tells of them all', async () => {
    const names = Array.from({ length: 10_000 }, (_, i) => `tool_${i}`)
    const offer = { tools: toolRows('first'), call: () => said('done') }
    const up = await chatty(modern(offer))
    const clock = createManualClock()
    const { url, gateway } = await serveGateway({ up: { url: up.url } }, { clock })
    await expect.poll(up.subscribers).toBe(1)
    const client = await clientOf(url)
    let heard = 0
    const subscription = client.subscribe({ toolsListChanged: true })
    onTestFinished(() => subscription.close())
    await subscription.filter
    void (async () => {
      for await (const change of subscription) heard += change.kind === 'tools' ? 1 : 0
    })()
    offer.tools = toolRows(...names)
    up.notify('notifications/tools/list_changed', 1)
    await expect.poll(() => gateway.upstreams()[0]?.tools).toBe(10_000)
    await expect.poll(() => heard).toBe(1)
    expect(await client.listTools({ fresh: true })).toHaveLength(10_000)
    expect(await client.callTool('tool_9999')).toMatchObject(said('done'))
    expect(heard).toBe(1)
  })

  const nested = (depth: number) => `${'{"properties":{"a":'.repeat(depth)}{}${'}}'.repeat(depth)}`
  it.each([
    ['nested 100,000 deep', nested(100_000)],
    [
      'with 300,000 properties',
      `{"properties":{${Array.from({ length: 300_000 }, (_, i) => `"p${i}":{}`).join()}}}`,
    ],
    ['that refers to itself', '{"$ref":"#","allOf":[{"$ref":"#"},{"$ref":"#"}]}'],
  ])(
    'with a schema %s leaves the others served, and says what is wrong or passes it on',
    async (_what, schema) => {
      const up = await fake((message, response) => {
        if (message.method !== 'tools/list') return modern({ call: () => said('bomb') })(message)
        const tools = `[{"name":"bomb","inputSchema":${schema}}]`
        response.writeHead(200, { 'Content-Type': 'application/json' })
        const hint = JSON.stringify(HINT).slice(1, -1)
        response.end(
          `{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"result":{"tools":${tools},${hint}}}`,
        )
      })
      const other = await fake(modern({ tools: toolRows('calm'), call: () => said('calm') }))
      const { url, gateway } = await serveGateway({ up: { url: up.url }, other: { url: other.url } })
      const client = await clientOf(url)
      expect(await client.callTool('other_calm')).toMatchObject(said('calm'))
      const [first] = gateway.upstreams()
      if (first?.tools === 0) expect(first.problem).toMatch(/deep|large|valid|too/)
      else expect(await client.callTool('up_bomb', { a: 1 })).toMatchObject(said('bomb'))
    },
  )

  it('with a template that is none is offered without it', async () => {
    const up = await fake((message) => {
      if (message.method !== 'resources/templates/list') return modern({ tools: toolRows('t') })(message)
      return { result: { resourceTemplates: [{ uriTemplate: 'x://{', name: 'x' }], ...HINT } }
    })
    const { gateway, events } = await serveGateway({ up: { url: up.url } })
    expect(gateway.upstreams()[0]).toMatchObject({ tools: 1 })
    expect(JSON.stringify(events)).toContain('is not offered')
  })
})

describe('W10 a server that is replaced by one of another revision', () => {
  it.each([
    ['older', '2025-11-25'],
    ['newer', '2026-07-28'],
  ] as const)('that is %s is used at the next call, without a restart', async (_which, revision) => {
    let isOld = revision === '2026-07-28'
    const fresh = modern({ tools: toolRows('t'), call: () => said('new') })
    const refuse = (response: ServerResponse, message: Message, supported: string) => {
      const error = {
        code: -32022,
        message: 'Unsupported protocol version',
        data: { supported: [supported] },
      }
      response.writeHead(400, { 'Content-Type': 'application/json' })
      response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, error }))
    }
    const up = await fake((message, response, request) => {
      const claimed = request.headers['mcp-protocol-version'] === '2026-07-28'
      if (!isOld) return claimed ? fresh(message) : refuse(response, message, '2026-07-28')
      if (claimed && message.method !== 'server/discover') return refuse(response, message, '2025-11-25')
      if (message.method === 'tools/call') return { result: said('old') }
      return older(message, response, request)
    })
    const { url, gateway } = await serveGateway({ up: { url: up.url } })
    const client = await clientOf(url)
    expect(await client.callTool('t')).toMatchObject(said(isOld ? 'old' : 'new'))
    isOld = !isOld
    await expect.poll(() => client.callTool('t')).toMatchObject(said(isOld ? 'old' : 'new'))
    expect(gateway.upstreams()[0]).toMatchObject({ revision })
  })
})
