/** The examples that serve inside other frameworks. */

import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { describe, expect, it } from 'vitest'
import { createApp as createExpressApp } from './serve-express.ts'
import { createApp as createHonoApp } from './serve-hono.ts'

describe('frameworks', () => {
  const hello = {
    method: 'POST',
    headers: {
      host: '127.0.0.1',
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'tools/call',
      'mcp-name': 'hello',
    },
    body: JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: {
        name: 'hello',
        _meta: {
          'io.modelcontextprotocol/protocolVersion': '2026-07-28',
          'io.modelcontextprotocol/clientCapabilities': {},
        },
      },
    }),
  }

  it('serves inside Hono', async () => {
    const response = await createHonoApp({ log: 'off' }).request('http://127.0.0.1/mcp', hello)
    expect(await response.json()).toMatchObject({ result: { content: [{ text: 'Hello from Hono' }] } })
  })

  it('serves inside Express', async () => {
    const http = createExpressApp({ log: 'off' }).listen(0, '127.0.0.1')
    await once(http, 'listening')
    const { port } = http.address() as AddressInfo
    const { host: _, ...headers } = hello.headers
    const response = await fetch(`http://127.0.0.1:${port}/mcp`, { ...hello, headers })
    expect(await response.json()).toMatchObject({ result: { content: [{ text: 'Hello from Express' }] } })
    http.close()
  })
})
