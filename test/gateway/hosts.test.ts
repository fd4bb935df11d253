/** Hosts as they are: one that shows only text, and one that adds arguments of its own to every call. */

import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { McpServer as V1Server } from '@modelcontextprotocol/sdk/server/mcp.js'
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { inputRequired, McpServer } from '@modelcontextprotocol/server'
import { connect } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { serveV1 } from '../support/v1-server.ts'
import { serveGateway, serveOfficial } from './peers.ts'

const QUESTION = {
  message: 'How many seats?',
  requestedSchema: {
    type: 'object' as const,
    properties: {
      seats: { type: 'integer' as const, minimum: 1, maximum: 9 },
      extras: { type: 'array' as const, items: { type: 'string' as const, enum: ['tea', 'milk'] } },
    },
    required: ['seats', 'extras'],
  },
}
const text = (value: unknown) => ({ content: [{ type: 'text' as const, text: JSON.stringify(value) }] })

/** Servers with a tool that asks for a number and a list, and one that refuses arguments that it does not know. */
const SERVERS: Readonly<Record<string, () => Promise<string>>> = {
  'a server that returns its questions': () =>
    serveOfficial(() => {
      const server = new McpServer({ name: 'new', version: '1.0.0' })
      server.registerTool('book', { inputSchema: z.object({}) }, async (_args, ctx) => {
        const answer = ctx.mcpReq.inputResponses?.how as { content?: unknown } | undefined
        if (answer === undefined)
          return inputRequired({ inputRequests: { how: inputRequired.elicit(QUESTION) } })
        return text(answer.content)
      })
      server.registerTool('strict', { inputSchema: z.strictObject({ a: z.number() }) }, async (args) =>
        text(args),
      )
      return server
    }),
  'a server that pushes its questions': async () => {
    const { url, close } = await serveV1(() => {
      const server = new V1Server({ name: 'old', version: '1.0.0' })
      server.registerTool('book', {}, async () =>
        text((await server.server.elicitInput({ mode: 'form', ...QUESTION })).content),
      )
      server.registerTool('strict', { inputSchema: z.strictObject({ a: z.number() }) }, async (args) =>
        text(args),
      )
      return server
    })
    onTestFinished(close)
    return url
  },
}

async function host(url: string, name: string, content: Record<string, unknown>) {
  const client = new Client({ name, version: '1.0.0' }, { capabilities: { elicitation: { form: {} } } })
  const shown: unknown[] = []
  client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
    shown.push((params as typeof QUESTION).requestedSchema.properties)
    return { action: 'accept', content: content as never }
  })
  await client.connect(new StreamableHTTPClientTransport(new URL(url)) as never)
  onTestFinished(() => client.close())
  const call = async (tool: string, args: Record<string, unknown> = {}) =>
    ((await client.callTool({ name: tool, arguments: args })).content as { text: string }[])[0]?.text ?? ''
  return { call, shown }
}

describe.each(Object.keys(SERVERS))('before %s', (kind) => {
  const serve = async () => (await serveGateway({ peer: { url: (await SERVERS[kind]?.()) ?? '' } })).url

  it('a host that shows only text is asked for text, and the server gets a number and a list', async () => {
    const { call, shown } = await host(await serve(), 'codex-mcp-client', { seats: '3', extras: 'tea, milk' })
    expect(JSON.parse(await call('book'))).toEqual({ seats: 3, extras: ['tea', 'milk'] })
    expect(shown).toMatchObject([{ seats: { type: 'string' }, extras: { type: 'string' } }])
  })

  it('another host is asked for a number and a list', async () => {
    const { call, shown } = await host(await serve(), 'another', { seats: 3, extras: ['tea'] })
    expect(JSON.parse(await call('book'))).toEqual({ seats: 3, extras: ['tea'] })
    expect(shown).toMatchObject([{ seats: { type: 'integer' }, extras: { type: 'array' } }])
  })

  it('a tool with a strict schema does not get the argument that a host adds', async () => {
    const { call } = await host(await serve(), 'gemini-cli-mcp-client', {})
    expect(await call('strict', { a: 1, wait_for_previous: true })).toBe('{"a":1}')
    // Control: it refuses what nobody drops.
    expect(await call('strict', { a: 1, other: true })).toMatch(/unrecognized/i)
  })
})

describe('a server that pushes its questions to many calls of one caller', () => {
  it('R9 can have more questions open than a round may have, and the call beyond the limit reads why', async () => {
    const { url: peer, close } = await serveV1()
    onTestFinished(close)
    const { url } = await serveGateway({ peer: { url: peer } }, { hold: { maxCallsPerCaller: 40 } })
    const client = await connect(url)
    onTestFinished(() => client.close())
    const start = () => client.start({ method: 'tools/call', name: 'greet' }, { accepts: ['form'] })
    const begun = await Promise.all(Array.from({ length: 40 }, start))
    expect(new Set(begun.map(({ status }) => status))).toEqual(new Set(['input_required']))
    expect(await start()).toMatchObject({
      status: 'complete',
      result: { isError: true, content: [{ text: expect.stringContaining('hold.maxCallsPerCaller') }] },
    })
  })
})
