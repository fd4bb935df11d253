import { describe, expect, it } from 'vitest'
import { callTool, createEchoService, request } from '../../../../../test/support/echo-service.ts'
import { messagesOf } from '../../../../../test/support/post.ts'
import type { HttpOptions } from '../options.ts'
import { createExchange } from './exchange.ts'
import { createFetchHandler, type FetchOptions } from './fetch.ts'

function start(options: HttpOptions & FetchOptions = {}) {
  const service = createEchoService()
  const exchange = createExchange(service, options)
  const handle = createFetchHandler(exchange, options)
  const send = (sent: ReturnType<typeof request>, init: RequestInit = {}, url = 'http://localhost/mcp') =>
    handle(
      new Request(url, {
        method: 'POST',
        headers: sent.headers,
        body: JSON.stringify(sent.message),
        ...init,
      }),
    )
  return { service, exchange, handle, send }
}

describe('fetch', () => {
  it('B1 responds to a call with one JSON body', async () => {
    const { send } = start()
    const response = await send(callTool('echo', { a: 'é' }))
    expect(response.status).toBe(200)
    expect(response.headers.get('content-type')).toBe('application/json')
    expect((await response.json()).result.content[0].text).toBe('{"a":"é"}')
  })

  it('B1 streams notifications before the response, which comes last', async () => {
    const { send, service } = start()
    const response = await send(callTool('slow'))
    expect(response.headers.get('content-type')).toBe('text/event-stream')
    expect(response.headers.get('x-accel-buffering')).toBe('no')
    await service.waiting()
    service.release()
    const messages = messagesOf(await response.text())
    expect(messages.map((message) => message.method ?? 'response')).toEqual([
      'notifications/progress',
      'notifications/progress',
      'response',
    ])
  })

  it('R11 responds with 500 to an unexpected error, and continues to serve', async () => {
    const faults: unknown[] = []
    const { send, service } = start({ onError: (error) => faults.push(error) })
    service.paramHeaders = () => {
      throw new Error('canary')
    }
    const response = await send(callTool('echo'))
    expect(response.status).toBe(500)
    expect(await response.text()).not.toContain('canary')
    expect(faults).toHaveLength(1)
    service.paramHeaders = () => []
    expect((await send(callTool('echo'))).status).toBe(200)
  })

  it('R11 responds with an internal error if a reply cannot be encoded', async () => {
    const { send, service } = start()
    service.handle = async () => ({ kind: 'complete', result: { n: 1n } })
    expect((await (await send(callTool('echo'))).json()).error.code).toBe(-32603)
  })

  it('responds to a notification with 202 and no body', async () => {
    const { send } = start()
    const note = { message: { jsonrpc: '2.0', method: 'notifications/x' }, headers: {} }
    const response = await send(note, { headers: { 'content-type': 'application/json' } })
    expect(response.status).toBe(202)
    expect(response.body).toBeNull()
  })

  it('responds to other methods with 405', async () => {
    const { handle } = start()
    const response = await handle(new Request('http://localhost/mcp'))
    expect(response.status).toBe(405)
    expect(response.headers.get('allow')).toBe('POST')
  })

  it('T12 checks the host of the URL if there is no Host header', async () => {
    const { send } = start()
    expect((await send(callTool('echo'), {}, 'http://evil.example.com/mcp')).status).toBe(403)
    const allowed = start({ allowedHosts: ['mcp.example.com'] })
    expect((await allowed.send(callTool('echo'), {}, 'https://mcp.example.com/mcp')).status).toBe(200)
  })

  it('T12 refuses a foreign origin', async () => {
    const { send } = start()
    const sent = callTool('echo')
    const headers = { ...sent.headers, origin: 'https://evil.example.com' }
    expect((await send(sent, { headers })).status).toBe(403)
  })

  it('passes the principal on and sends refusals', async () => {
    const { send } = start({
      authenticate: async ({ headers, url }) =>
        headers('authorization') && url === 'http://localhost/mcp' ? { subject: 'alice' } : { status: 401 },
    })
    const sent = callTool('canary')
    expect((await send(sent)).status).toBe(401)
    const response = await send(sent, { headers: { ...sent.headers, authorization: 'Bearer x' } })
    expect((await response.json()).result.content[0].text).toBe('{"subject":"alice"}')
  })

  it('refuses a body that is too large, declared or not, without reading it to the end', async () => {
    const { handle } = start({ maxBodyBytes: 1000 })
    const sent = callTool('echo')
    let pulled = 0
    const endless = new ReadableStream<Uint8Array>({
      pull(controller) {
        pulled += 100
        controller.enqueue(new Uint8Array(100).fill(32))
      },
    })
    const init = { method: 'POST', headers: sent.headers, body: endless, duplex: 'half' }
    const streamed = await handle(new Request('http://localhost/mcp', init as RequestInit))
    expect(streamed.status).toBe(413)
    expect(pulled).toBeLessThan(2000)
    const headers = { ...sent.headers, 'content-length': '1001' }
    const declared = await handle(
      new Request('http://localhost/mcp', { method: 'POST', headers, body: ' '.repeat(1001) }),
    )
    expect(declared.status).toBe(413)
  })

  it('refuses bytes that are not UTF-8', async () => {
    const { handle } = start()
    const { headers } = callTool('echo')
    const body = new Uint8Array([0x22, 0xff, 0x22])
    const response = await handle(new Request('http://localhost/mcp', { method: 'POST', headers, body }))
    expect(response.status).toBe(400)
    expect((await response.json()).error.code).toBe(-32700)
  })

  it('treats a cancelled stream as a client that has gone', async () => {
    const { send, service, exchange } = start()
    const response = await send(callTool('slow'))
    const line = await service.waiting()
    const gone = new Promise<void>((resolve) => line.onClose(resolve))
    await response.body?.cancel()
    await gone
    expect(line.closed).toBe(true)
    service.release()
    await exchange.idle()
  })

  it('treats an aborted request as a client that has gone', async () => {
    const { send, service, exchange } = start()
    const sent = callTool('slow')
    const aborter = new AbortController()
    const headers = { ...sent.headers, accept: 'application/json' }
    void send(sent, { signal: aborter.signal, headers })
    const line = await service.waiting()
    const gone = new Promise<void>((resolve) => line.onClose(resolve))
    aborter.abort()
    await gone
    expect(line.closed).toBe(true)
    service.release()
    await exchange.idle()
  })

  it('refuses with 503 while it shuts down', async () => {
    const { send, exchange } = start({ retryAfterSeconds: 3 })
    exchange.drain()
    const response = await send(callTool('echo'))
    expect(response.status).toBe(503)
    expect(response.headers.get('retry-after')).toBe('3')
  })

  it('T14 keeps a thousand callers apart', async () => {
    const { send } = start({
      authenticate: async ({ headers }) => ({ subject: headers('authorization') ?? '' }),
    })
    const answers = await Promise.all(
      Array.from({ length: 1000 }, async (_, i) => {
        const sent = request('tools/call', { name: 'canary' }, `id-${i}`)
        const response = await send(sent, { headers: { ...sent.headers, authorization: `caller-${i}` } })
        return response.json()
      }),
    )
    answers.forEach((answer, i) => {
      expect(answer.id).toBe(`id-${i}`)
      expect(answer.result.content[0].text).toBe(`{"subject":"caller-${i}"}`)
    })
  })
})

describe('subscriptions over fetch', () => {
  async function listening(options: HttpOptions = {}) {
    const started = start(options)
    const sent = request('subscriptions/listen', { notifications: { toolsListChanged: true } }, 'sub')
    const response = await started.send(sent)
    const reader = (response.body ?? new ReadableStream()).pipeThrough(new TextDecoderStream()).getReader()
    const next = async () => (await reader.read()).value ?? ''
    return { ...started, response, reader, next }
  }

  it('acknowledge, notify, keep the stream alive and end', async () => {
    const ticks: (() => void)[] = []
    let stopped = 0
    const every = (ms: number, tick: () => void) => {
      expect(ms).toBe(15_000)
      ticks.push(tick)
      return () => {
        stopped++
      }
    }
    const { service, exchange, response, next, reader } = await listening({ every })
    expect(response.headers.get('content-type')).toBe('text/event-stream')
    expect(messagesOf(await next())[0]?.method).toBe('notifications/subscriptions/acknowledged')
    service.changes.publish({ kind: 'tools' })
    expect(messagesOf(await next())[0]?.method).toBe('notifications/tools/list_changed')
    ticks[0]?.()
    expect(await next()).toMatch(/^:.*\n\n$/)
    await exchange.endStreams()
    expect(messagesOf(await next())[0]).toMatchObject({ id: 'sub', result: { resultType: 'complete' } })
    expect((await reader.read()).done).toBe(true)
    expect(stopped).toBeGreaterThan(0)
  })

  it('cut off a client that does not read', async () => {
    const { service, response } = await listening({ maxBacklogBytes: 1000 })
    for (let i = 0; i < 100; i++) service.changes.publish({ kind: 'tools' })
    await expect(response.body?.cancel()).rejects.toThrow()
  })

  it('refuse a subscription beyond the limit', async () => {
    const { send } = await listening({ maxSubscriptions: 1 })
    const sent = request('subscriptions/listen', { notifications: { toolsListChanged: true } })
    const response = await send(sent)
    expect(response.headers.get('content-type')).toBe('application/json')
    expect((await response.json()).error.code).toBe(-32603)
  })
})
