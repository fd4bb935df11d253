/** Servers whose every reply a test writes. */

import { createServer as createHttp, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { onTestFinished } from 'vitest'

export type Message = Readonly<Record<string, unknown>> & {
  readonly method?: string
  readonly params?: Message
}

export interface Fake {
  readonly url: string
  /** The methods of the requests that arrived. */
  readonly methods: string[]
  stop(): void
}

/** An HTTP server whose replies the test writes. */
export async function fake(
  reply: (message: Message, response: ServerResponse, request: IncomingMessage) => unknown,
): Promise<Fake> {
  const methods: string[] = []
  const http = createHttp(async (request, response) => {
    let text = ''
    for await (const chunk of request) text += chunk
    const message = text === '' ? {} : (JSON.parse(text) as Message)
    methods.push(message.method ?? String(request.method))
    const result = await reply(message, response, request)
    if (response.headersSent || result === undefined) return
    response.writeHead(200, { 'Content-Type': 'application/json' })
    response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, ...(result as object) }))
  })
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  const stop = (): void => {
    http.closeAllConnections()
    http.close()
  }
  onTestFinished(stop)
  return { url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`, methods, stop }
}

/** A server that accepts subscriptions; `notify` sends on all of them. */
export async function chatty(reply: (message: Message) => unknown) {
  const streams = new Map<ServerResponse, unknown>()
  const event = (message: object) => `data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`
  const server = await fake((message, response) => {
    if (message.method !== 'subscriptions/listen') return reply(message)
    const _meta = { 'io.modelcontextprotocol/subscriptionId': message.id }
    response.writeHead(200, { 'Content-Type': 'text/event-stream' })
    const notifications = { toolsListChanged: true }
    response.write(
      event({ method: 'notifications/subscriptions/acknowledged', params: { notifications, _meta } }),
    )
    streams.set(response, message.id)
  })
  const notify = (method: string, times: number) => {
    for (const [response, id] of streams) {
      const _meta = { 'io.modelcontextprotocol/subscriptionId': id }
      response.write(event({ method, params: { _meta } }).repeat(times))
    }
  }
  return { ...server, notify, subscribers: () => streams.size }
}

export const HINT = { ttlMs: 0, cacheScope: 'private', resultType: 'complete' }
export const NO_METHOD = { error: { code: -32601, message: 'Method not found' } }
export const toolRows = (...names: string[]) =>
  names.map((name) => ({ name, inputSchema: { type: 'object' } }))

export interface Offer {
  tools?: readonly object[]
  resources?: readonly object[]
  call?(params: Message): unknown
}

/** Speaks 2026-07-28 and offers what `offer` holds at the time. */
export function modern(offer: Offer): (message: Message) => unknown {
  return ({ method, params = {} }) => {
    if (method === 'server/discover') {
      const capabilities = { tools: { listChanged: true }, resources: {} }
      return { result: { supportedVersions: ['2026-07-28'], capabilities, ...HINT } }
    }
    if (method === 'tools/list') return { result: { tools: offer.tools ?? [], ...HINT } }
    if (method === 'resources/list') return { result: { resources: offer.resources ?? [], ...HINT } }
    if (method === 'tools/call' || method === 'resources/read')
      return { result: { ...(offer.call?.(params) as object), resultType: 'complete' } }
    return NO_METHOD
  }
}

/** Speaks 2025-11-25, and accepts every call without a word. */
export function older({ method }: Message, response: ServerResponse, request: IncomingMessage): unknown {
  if (request.method === 'GET') return void response.writeHead(405).end()
  if (method === 'server/discover') return NO_METHOD
  if (method === 'initialize') {
    const serverInfo = { name: 'old', version: '1.0.0' }
    return { result: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo } }
  }
  if (method === 'tools/list') return { result: { tools: toolRows('t') } }
  return void response.writeHead(202).end()
}

export const said = (text: string) => ({ content: [{ type: 'text', text }] })
