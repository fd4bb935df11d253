import { describe, expect, it } from 'vitest'
import { send as sendOver, startEcho } from '../../../../../test/support/echo-listening.ts'
import { callTool, createEchoService } from '../../../../../test/support/echo-service.ts'
import { post } from '../../../../../test/support/post.ts'
import { createExchange } from './exchange.ts'
import { createFetchHandler } from './fetch.ts'

const PAGE = 'https://console.example'
const OPTIONS = { allowedOrigins: ['console.example'] }

interface Answer {
  readonly status: number
  header(name: string): string | undefined
  readonly text: string
}
type Send = (method: 'POST' | 'OPTIONS', headers: Record<string, string>, name?: string) => Promise<Answer>

/** Both entrances, node:http and fetch, give these answers. */
const ENTRANCES: Record<string, (options: object) => Promise<Send>> = {
  async 'node:http'(options) {
    const { port } = await startEcho(options)
    return async (method, headers, name = 'echo') => {
      const sent = callTool(name)
      const posted =
        method === 'POST' ? await sendOver(port, sent, headers) : await post(port, { method, headers })
      return {
        ...posted,
        header: (header) => posted.headers[header] as string | undefined,
      }
    }
  },
  async fetch(options) {
    const handle = createFetchHandler(createExchange(createEchoService(), options))
    return async (method, headers, name = 'echo') => {
      const { headers: own, message } = callTool(name)
      const init =
        method === 'POST' ? { headers: { ...own, ...headers }, body: JSON.stringify(message) } : { headers }
      const response = await handle(new Request('http://localhost/mcp', { method, ...init }))
      return {
        status: response.status,
        header: (header) => response.headers.get(header) ?? undefined,
        text: await response.text(),
      }
    }
  },
}

describe.each(Object.entries(ENTRANCES))('a page of another origin over %s', (_name, start) => {
  const ask = {
    'access-control-request-method': 'POST',
    'access-control-request-headers': 'content-type,mcp-method,mcp-param-region',
  }

  it('gets permission to call, and the headers that it may send', async () => {
    const send = await start(OPTIONS)
    const answer = await send('OPTIONS', { origin: PAGE, ...ask })
    expect(answer.status).toBe(204)
    expect(answer.header('access-control-allow-origin')).toBe(PAGE)
    expect(answer.header('access-control-allow-methods')).toBe('POST, GET, DELETE')
    expect(answer.header('access-control-allow-headers')).toBe(ask['access-control-request-headers'])
    expect(answer.header('access-control-allow-credentials')).toBeUndefined()
    expect(answer.header('vary')).toBe('Origin')
  })

  it('can read responses and refusals, and the id of its session', async () => {
    const send = await start({ ...OPTIONS, authenticate: () => ({ status: 401 }) })
    const refused = await send('POST', { origin: PAGE })
    expect([refused.status, refused.header('access-control-allow-origin')]).toEqual([401, PAGE])
    const open = await start(OPTIONS)
    const answer = await open('POST', { origin: PAGE })
    expect(answer.status).toBe(200)
    expect(answer.text).toContain('content')
    expect(answer.header('access-control-allow-origin')).toBe(PAGE)
    expect(answer.header('access-control-expose-headers')).toContain('Mcp-Session-Id')
    expect(answer.header('content-type')).toBe('application/json')
  })

  it('T12 gets no CORS headers unless its origin is in allowedOrigins', async () => {
    const send = await start(OPTIONS)
    for (const origin of ['https://evil.example', 'https://console.example.evil.example', 'null']) {
      const asked = await send('OPTIONS', { origin, ...ask })
      expect([asked.status, asked.header('access-control-allow-origin')]).toEqual([403, undefined])
      const posted = await send('POST', { origin })
      expect([posted.status, posted.header('access-control-allow-origin')]).toEqual([403, undefined])
    }
    const unnamed = await (await start({}))('OPTIONS', { origin: 'http://localhost:5173', ...ask })
    expect([unnamed.status, unnamed.header('access-control-allow-origin')]).toEqual([405, undefined])
  })

  it('gets no invalid header names back', async () => {
    const send = await start(OPTIONS)
    const odd = { ...ask, 'access-control-request-headers': 'a, "b"; c' }
    expect((await send('OPTIONS', { origin: PAGE, ...odd })).header('access-control-allow-headers')).toBe(
      undefined,
    )
  })

  it('does not change responses to requests without an origin', async () => {
    const send = await start(OPTIONS)
    const answer = await send('POST', {})
    expect([answer.status, answer.header('access-control-allow-origin')]).toEqual([200, undefined])
  })
})
