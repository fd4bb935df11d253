/** Real servers and clients for the gateway: the official packages of both generations, and ours. */

import { createServer as createHttp } from 'node:http'
import type { AddressInfo } from 'node:net'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { toNodeHandler } from '@modelcontextprotocol/node'
import { StreamableHTTPClientTransport as V1Transport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { createMcpHandler } from '@modelcontextprotocol/server'
import { createGateway, type Gateway, type GatewayOptions, type UpstreamOptions } from '@rondo/gateway'
import { generateKey, type LogEvent } from 'rondo'
import { connect } from 'rondo/client'
import { decline, type Script } from 'rondo/testing'
import { onTestFinished } from 'vitest'
import { connectOfficial, MODERN, OLDER } from '../support/official-client.ts'
import { createOfficialServer } from '../support/official-server.ts'
import { createOwnServer } from '../support/own-server.ts'
import { processFile } from '../support/process-file.ts'
import { connectV1 } from '../support/v1-client.ts'
import { serveV1 } from '../support/v1-server.ts'

export type Call = {
  method: 'tools/call' | 'prompts/get' | 'resources/read'
  target: string
  args?: Readonly<Record<string, unknown>>
}

export interface PeerClient {
  readonly asked: string[]
  run(call: Call, script?: Script): Promise<{ readonly text: string; readonly isError: boolean }>
  close(): Promise<void>
}

const stdio = (file: string): UpstreamOptions => ({
  command: process.execPath,
  args: [processFile(`test/support/${file}`)],
})

/** Servers by their names in the matrix, as upstreams of a gateway. */
export const SERVERS: Readonly<Record<string, () => Promise<UpstreamOptions>>> = {
  'official 2.4, HTTP': async () => ({ url: await serveOfficial() }),
  'official 2.4, stdio': async () => stdio('official-stdio.ts'),
  'official 1.32, HTTP': async () => {
    const v1 = await serveV1()
    onTestFinished(() => v1.close())
    return { url: v1.url }
  },
  'official 1.32, stdio': async () => stdio('v1-stdio.ts'),
  'Rondo, HTTP': async () => {
    const server = createOwnServer(generateKey())
    const { url } = await server.listen({ port: 0, signals: false, graceMs: 100 })
    onTestFinished(() => server.close())
    return { url }
  },
}

export async function serveOfficial(create = createOfficialServer): Promise<string> {
  const http = createHttp(toNodeHandler(createMcpHandler(create) as never) as never)
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    http.closeAllConnections()
    http.close()
  })
  return `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`
}

/** Clients by their names in the matrix, connected to a URL. */
export const CLIENTS: Readonly<Record<string, (url: string) => Promise<PeerClient>>> = {
  'official 2.4, 2026-07-28': (url) =>
    connectOfficial(new StreamableHTTPClientTransport(new URL(url)), MODERN),
  'official 2.4, 2025-11-25': (url) =>
    connectOfficial(new StreamableHTTPClientTransport(new URL(url)), OLDER),
  'official 1.32': (url) => connectV1(new V1Transport(new URL(url)) as never),
  Rondo: connectOwn,
}

async function connectOwn(url: string): Promise<PeerClient> {
  const asked: string[] = []
  let forms: unknown[] = []
  let script: Script = {}
  const client = await connect(url, {
    answers: {
      elicitation: (params) => {
        asked.push(params.message)
        const answer = forms.length > 1 ? forms.shift() : forms[0]
        if (answer === decline) return { action: 'decline' }
        return params.mode === 'url' ? { action: 'accept' } : { action: 'accept', content: answer as never }
      },
      sampling: () => script.capital as never,
      roots: () => script.roots as never,
    },
  })
  return {
    asked,
    async run({ method, target, args }, answers = {}) {
      script = answers
      forms = Object.values(answers).filter((one) => !('roots' in one) && !('model' in one))
      const result = (await (method === 'tools/call'
        ? client.callTool(target, args as never)
        : method === 'prompts/get'
          ? client.getPrompt(target, args as never)
          : client.readResource(target))) as {
        content?: unknown
        messages?: unknown
        contents?: unknown
        isError?: boolean
      }
      const blocks = (result.content ??
        (result.messages as { content: object }[] | undefined)?.map(({ content }) => content) ??
        result.contents ??
        []) as { text?: string }[]
      return { text: blocks.map(({ text = '' }) => text).join('\n'), isError: result.isError === true }
    },
    close: () => client.close(),
  }
}

export interface Served {
  readonly gateway: Gateway
  readonly url: string
  readonly events: LogEvent[]
}

/** A gateway on loopback, closed after the test. */
export async function serveGateway(
  upstreams: GatewayOptions['upstreams'],
  options: Partial<GatewayOptions> = {},
  prepare: (gateway: Gateway) => void = () => {},
): Promise<Served> {
  const events: LogEvent[] = []
  const gateway = createGateway({
    name: 'gateway',
    version: '1.0.0',
    keys: generateKey(),
    log: (event) => void events.push(event),
    ...options,
    upstreams,
  })
  onTestFinished(() => gateway.close())
  prepare(gateway)
  const { url } = await gateway.listen({ port: 0, signals: false, graceMs: 100, drainDelayMs: 0 })
  return { gateway, url, events }
}
