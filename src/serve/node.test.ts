import { connect } from 'node:net'
import fc from 'fast-check'
import { afterEach, describe, expect, it } from 'vitest'
import {
  callTool,
  createEchoService,
  type EchoService,
  request,
  VERSION,
} from '../../test/support/echo-service.ts'
import { messagesOf, type Posted, post } from '../../test/support/post.ts'
import { type Listening, type ListenOptions, listen } from './node.ts'

const open: Listening[] = []

async function start(options: ListenOptions = {}): Promise<{ service: EchoService; port: number }> {
  const service = createEchoService()
  const listening = await listen(service, { port: 0, signals: false, graceMs: 500, ...options })
  open.push(listening)
  return { service, port: listening.port }
}

afterEach(async () => {
  for (const listening of open.splice(0)) await listening.close()
})

function send(port: number, sent: ReturnType<typeof request>, headers: Record<string, string> = {}) {
  return post(port, { headers: { ...sent.headers, ...headers }, body: JSON.stringify(sent.message) })
}

function errorOf(posted: Posted): { code: number; message: string; data?: unknown } {
  return JSON.parse(posted.text).error
}

async function expectServing(port: number): Promise<void> {
  const posted = await send(port, callTool('echo', { still: 'here' }))
  expect(posted.status).toBe(200)
  expect(posted.text).toContain('still')
}

describe('one request', () => {
  it('B1 answers a call with one JSON body', async () => {
    const { port } = await start()
    const posted = await send(port, callTool('echo', { a: 'é' }))
    expect(posted.status).toBe(200)
    expect(posted.headers['content-type']).toBe('application/json')
    expect(posted.headers['content-length']).toBe(String(Buffer.byteLength(posted.text)))
    expect(JSON.parse(posted.text).result.content[0].text).toBe('{"a":"é"}')
  })

  it('B1 answers with input_required in one JSON body', async () => {
    const { port } = await start()
    const posted = await send(port, callTool('ask'))
    expect(posted.headers['content-type']).toBe('application/json')
    expect(JSON.parse(posted.text).result.resultType).toBe('input_required')
  })

  it('takes a body in many pieces, cut within a character', async () => {
    const { port } = await start()
    const sent = callTool('echo', { a: 'é'.repeat(40_000) })
    const body = Buffer.from(JSON.stringify(sent.message))
    const socket = connect(port, '127.0.0.1')
    const head = Object.entries({ ...sent.headers, host: 'localhost', connection: 'close' })
      .map(([name, value]) => `${name}: ${value}`)
      .join('\r\n')
    socket.write(`POST /mcp HTTP/1.1\r\n${head}\r\ncontent-length: ${body.length}\r\n\r\n`)
    for (let at = 0; at < body.length; at += 4_097) socket.write(body.subarray(at, at + 4_097))
    let answer = ''
    for await (const chunk of socket.setEncoding('utf8')) answer += chunk
    expect(answer.startsWith('HTTP/1.1 200')).toBe(true)
    expect(answer.split('é').length - 1).toBe(40_000)
  })

  it('answers a notification with 202 and no body', async () => {
    const { port } = await start()
    const posted = await post(port, {
      headers: { 'content-type': 'application/json' },
      body: '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
    })
    expect(posted).toMatchObject({ status: 202, text: '' })
  })

  it.each(['GET', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])('answers %s with 405', async (method) => {
    const { port } = await start()
    const posted = await post(port, { method })
    expect(posted.status).toBe(405)
    expect(posted.headers.allow).toBe('POST')
    expect(errorOf(posted).code).toBe(-32000)
  })

  it('serves one path, or every path', async () => {
    const { port } = await start()
    const { headers, message } = callTool('echo')
    const body = JSON.stringify(message)
    expect((await post(port, { path: '/mcp?a=b', headers, body })).status).toBe(200)
    expect((await post(port, { path: '/mcpx', headers, body })).status).toBe(404)
    expect((await post(port, { path: '/', headers, body })).status).toBe(404)
    const any = await start({ path: '*' })
    expect((await post(any.port, { path: '/some/where', headers, body })).status).toBe(200)
  })

  it('takes header names in any case', async () => {
    const { port } = await start()
    const { headers, message } = callTool('echo')
    const shouting = Object.fromEntries(Object.entries(headers).map(([k, v]) => [k.toUpperCase(), v]))
    expect((await post(port, { headers: shouting, body: JSON.stringify(message) })).status).toBe(200)
  })

  it('tells an older client which versions are served', async () => {
    const { port } = await start()
    const posted = await post(port, {
      headers: { 'content-type': 'application/json' },
      body: '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}',
    })
    expect(posted.status).toBe(400)
    expect(errorOf(posted)).toMatchObject({
      code: -32022,
      data: { supported: [VERSION], requested: '2025-11-25' },
    })
  })

  it.each(['throws', 'rejects'])('says nothing of the reason when the service %s', async (tool) => {
    const faults: unknown[] = []
    const { port } = await start({ onError: (error) => faults.push(error) })
    const posted = await send(port, callTool(tool))
    expect(errorOf(posted)).toEqual({ code: -32603, message: 'Internal error' })
    expect(faults).toHaveLength(1)
    await expectServing(port)
  })
})

describe('bad inputs, after each of which the server goes on', () => {
  const good = callTool('echo')
  const json = { 'content-type': 'application/json' }
  const withText = (params: string) =>
    JSON.stringify(callTool('echo').message).replace('"arguments":{}', `"arguments":{},${params}`)

  it.each<[string, Record<string, string>, string, number, number]>([
    ['a body that is not JSON', good.headers, '{"jsonrpc":', 400, -32700],
    ['an empty body', good.headers, '', 400, -32700],
    ['another content type', { ...good.headers, 'content-type': 'text/plain' }, '{}', 415, -32000],
    ['T8 a depth of 100,000', json, `${'['.repeat(100_000)}${']'.repeat(100_000)}`, 400, -32600],
    ['T10 a key that is there twice', good.headers, withText('"name":"other"'), 400, -32600],
    [
      'T9 __proto__ among the answers',
      good.headers,
      withText('"inputResponses":{"__proto__":{}}'),
      400,
      -32600,
    ],
    ['B14 an array of answers', good.headers, withText('"inputResponses":[]'), 200, -32602],
    ['a number as state', good.headers, withText('"requestState":7'), 200, -32602],
    [
      'T13 another name in the header',
      { ...good.headers, 'mcp-name': 'other' },
      JSON.stringify(good.message),
      400,
      -32020,
    ],
    ['an unknown tool', callTool('no').headers, JSON.stringify(callTool('no').message), 200, -32602],
    ['a batch', json, `[${JSON.stringify(good.message)}]`, 400, -32600],
  ])('%s', async (_, headers, body, status, code) => {
    const { port } = await start()
    const posted = await post(port, { headers, body })
    expect(posted.status).toBe(status)
    expect(errorOf(posted).code).toBe(code)
    await expectServing(port)
  })

  it('a body of 10 MB, with and without its length', async () => {
    const { port } = await start()
    const body = JSON.stringify(callTool('echo', { a: 'x'.repeat(10_000_000) }).message)
    const declared = await post(port, { headers: good.headers, body })
    expect(declared.status).toBe(413)
    expect(declared.headers.connection).toBe('close')
    expect(errorOf(declared).code).toBe(-32000)
    const undeclared = await post(port, { headers: good.headers, body, chunked: true })
    expect(undeclared.status).toBe(413)
    expect(undeclared.headers.connection).toBe('close')
    await expectServing(port)
  })

  it('bytes that are not UTF-8', async () => {
    const { port } = await start()
    const body = Buffer.concat([Buffer.from('{"a":"'), Buffer.from([0xff]), Buffer.from('"}')])
    const posted = await post(port, { headers: good.headers, body })
    expect(posted.status).toBe(400)
    expect(errorOf(posted).code).toBe(-32700)
    await expectServing(port)
  })
})

describe('garbage on the socket', () => {
  it('does not keep the server from serving', async () => {
    const { port } = await start()
    await fc.assert(
      fc.asyncProperty(
        fc.uint8Array({ minLength: 1, maxLength: 300 }),
        fc.boolean(),
        async (bytes, framed) => {
          const socket = connect(port, '127.0.0.1')
          const head = `POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n`
          if (framed) socket.write(`${head}content-length: ${bytes.length}\r\nconnection: close\r\n\r\n`)
          socket.end(bytes)
          let answer = ''
          for await (const chunk of socket.setEncoding('latin1')) answer += chunk
          // Bytes that are no request at all may be cut off without an answer, never with a success.
          if (framed) expect(answer).toMatch(/^HTTP\/1.1 400/)
          else expect(answer).not.toMatch(/^HTTP\/1.1 2/)
        },
      ),
      { numRuns: 50 },
    )
    await expectServing(port)
  })
})

describe('who may call', () => {
  it.each([
    'evil.example.com',
    'evil.example.com:3000',
    'localhost.evil.example.com',
    '127.0.0.1.evil.example',
  ])('T12 refuses the host %s', async (host) => {
    const { port, service } = await start()
    const posted = await send(port, callTool('echo'), { host })
    expect(posted.status).toBe(403)
    expect(errorOf(posted).code).toBe(-32000)
    expect(service.seen).toEqual([])
  })

  it('T12 refuses a foreign origin on a good host, and takes its own', async () => {
    const { port, service } = await start()
    expect((await send(port, callTool('echo'), { origin: 'http://evil.example.com' })).status).toBe(403)
    expect((await send(port, callTool('echo'), { origin: 'null' })).status).toBe(403)
    expect(service.seen).toEqual([])
    expect((await send(port, callTool('echo'), { origin: `http://localhost:${port}` })).status).toBe(200)
    expect((await send(port, callTool('echo'), { host: `127.0.0.1:${port}` })).status).toBe(200)
  })

  it('hands the principal to the service, and nothing of the token', async () => {
    const { port, service } = await start({
      authenticate: async ({ headers }) =>
        headers('authorization') === 'Bearer canary-token' ? { subject: 'alice' } : undefined,
    })
    const posted = await send(port, callTool('canary'), { authorization: 'Bearer canary-token' })
    expect(JSON.parse(posted.text).result.content[0].text).toBe('{"subject":"alice"}')
    expect(JSON.stringify(service.seen)).not.toContain('canary-token')
    expect(service.seen[0]?.principal).toEqual({ subject: 'alice' })
  })

  it('sends the refusal of the authenticator', async () => {
    const { port, service } = await start({
      authenticate: () => ({ status: 401, headers: { 'WWW-Authenticate': 'Bearer realm="x"' } }),
    })
    const posted = await send(port, callTool('echo'))
    expect(posted.status).toBe(401)
    expect(posted.headers['www-authenticate']).toBe('Bearer realm="x"')
    expect(service.seen).toEqual([])
  })
})

describe('streams', () => {
  it('B1 streams what happens before the response, which comes last', async () => {
    const { port, service } = await start()
    const posting = send(port, callTool('slow', {}, { _meta: { progressToken: 'p' } }))
    await service.waiting()
    service.release()
    const posted = await posting
    expect(posted.status).toBe(200)
    expect(posted.headers).toMatchObject({
      'content-type': 'text/event-stream',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    })
    const messages = messagesOf(posted.text)
    expect(messages.map((message) => message.method ?? 'response')).toEqual([
      'notifications/progress',
      'notifications/progress',
      'response',
    ])
  })

  it('gives a client that reads no streams the response alone', async () => {
    const { port, service } = await start()
    const posting = send(port, callTool('slow'), { accept: 'application/json' })
    await service.waiting()
    service.release()
    const posted = await posting
    expect(posted.headers['content-type']).toBe('application/json')
    expect(JSON.parse(posted.text).result.content[0].text).toBe('done')
  })

  it('takes a client that goes for a cancellation', async () => {
    const { port, service } = await start()
    const { headers, message } = callTool('slow')
    const aborter = new AbortController()
    const response = await fetch(`http://127.0.0.1:${port}/mcp`, {
      method: 'POST',
      headers,
      body: JSON.stringify(message),
      signal: aborter.signal,
    })
    const line = await service.waiting()
    expect(line.closed).toBe(false)
    const gone = new Promise<void>((resolve) => line.onClose(resolve))
    aborter.abort()
    await gone
    expect(line.closed).toBe(true)
    service.release()
    await expect(response.text()).rejects.toThrow()
    await expectServing(port)
  })

  it('tells no listener of a close after the response', async () => {
    const { port, service } = await start()
    const posting = send(port, callTool('slow'))
    const line = await service.waiting()
    let closes = 0
    line.onClose(() => closes++)
    service.release()
    await posting
    await expectServing(port)
    expect(closes).toBe(0)
  })
})

describe('slow clients', () => {
  it('T20 cuts off a body that does not come', async () => {
    const { port } = await start({ requestTimeoutMs: 200, headersTimeoutMs: 200 })
    const socket = connect(port, '127.0.0.1')
    socket.write('POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n')
    socket.write('content-length: 1000\r\n\r\n{"json')
    let answer = ''
    for await (const chunk of socket.setEncoding('utf8')) answer += chunk
    expect(answer).toContain('408')
    await expectServing(port)
  })

  it('T20 cuts off headers that do not come', async () => {
    const { port } = await start({ requestTimeoutMs: 1000, headersTimeoutMs: 200 })
    const socket = connect(port, '127.0.0.1')
    socket.write('POST /mcp HTTP/1.1\r\nhost: loc')
    let answer = ''
    for await (const chunk of socket.setEncoding('utf8')) answer += chunk
    expect(answer).toContain('408')
    await expectServing(port)
  })
})

describe('stopping', () => {
  it('refuses what is new with 503 while a call in flight is finished', async () => {
    const service = createEchoService()
    const listening = await listen(service, { port: 0, signals: false, graceMs: 5_000, retryAfterSeconds: 2 })
    const posting = send(listening.port, callTool('slow'))
    await service.waiting()
    const waiting = send(listening.port, callTool('slow'), { accept: 'application/json' })
    await service.waiting()
    const closed = listening.close()
    const refused = await send(listening.port, callTool('echo'))
    expect(refused.status).toBe(503)
    expect(refused.headers['retry-after']).toBe('2')
    expect(refused.headers.connection).toBe('close')
    expect(errorOf(refused).code).toBe(-32000)
    service.release()
    service.release()
    expect(messagesOf((await posting).text).at(-1)).toHaveProperty('result')
    await closed
    expect((await waiting).headers.connection).toBe('close')
    await expect(send(listening.port, callTool('echo'))).rejects.toThrow('ECONNREFUSED')
  })

  it('ends subscriptions with their result', async () => {
    const service = createEchoService()
    const listening = await listen(service, { port: 0, signals: false })
    const sent = request('subscriptions/listen', { notifications: { toolsListChanged: true } }, 's')
    const { headers, message } = sent
    const response = await fetch(listening.url, { method: 'POST', headers, body: JSON.stringify(message) })
    service.changes.publish({ kind: 'tools' })
    await listening.close()
    const messages = messagesOf(await response.text())
    expect(messages.map((one) => one.method ?? one.id)).toEqual([
      'notifications/subscriptions/acknowledged',
      'notifications/tools/list_changed',
      's',
    ])
  })

  it('closes within its bound though a call does not end', async () => {
    const service = createEchoService()
    const listening = await listen(service, { port: 0, signals: false, graceMs: 10 })
    const posting = send(listening.port, callTool('slow')).catch((error) => error)
    await service.waiting()
    await listening.close()
    expect(await posting).toBeInstanceOf(Error)
  })

  it('says why it cannot listen', async () => {
    const { port } = await start()
    await expect(listen(createEchoService(), { port, signals: false })).rejects.toThrow('EADDRINUSE')
  })
})
