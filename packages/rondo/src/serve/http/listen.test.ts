import { Agent, request as httpRequest } from 'node:http'
import { connect } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { errorOf, expectServing, send, startEcho } from '../../../../../test/support/echo-listening.ts'
import { callTool, createEchoService, request, VERSION } from '../../../../../test/support/echo-service.ts'
import { messagesOf, post } from '../../../../../test/support/post.ts'
import { type ListenOptions, listen } from './listen.ts'

describe('one request', () => {
  it('B1 responds to a call with one JSON body', async () => {
    const { port } = await startEcho()
    const posted = await send(port, callTool('echo', { a: 'é' }))
    expect(posted.status).toBe(200)
    expect(posted.headers['content-type']).toBe('application/json')
    expect(posted.headers['content-length']).toBe(String(Buffer.byteLength(posted.text)))
    expect(JSON.parse(posted.text).result.content[0].text).toBe('{"a":"é"}')
  })

  it('B1 responds with input_required in one JSON body', async () => {
    const { port } = await startEcho()
    const posted = await send(port, callTool('ask'))
    expect(posted.headers['content-type']).toBe('application/json')
    expect(JSON.parse(posted.text).result.resultType).toBe('input_required')
  })

  it('reads a body in many pieces, split within a character', async () => {
    const { port } = await startEcho()
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

  it('responds to a notification with 202 and no body', async () => {
    const { port } = await startEcho()
    const posted = await post(port, {
      headers: { 'content-type': 'application/json' },
      body: '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
    })
    expect(posted).toMatchObject({ status: 202, text: '' })
  })

  it.each(['GET', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])('responds to %s with 405', async (method) => {
    const { port } = await startEcho()
    const posted = await post(port, { method })
    expect(posted.status).toBe(405)
    expect(posted.headers.allow).toBe('POST')
    expect(errorOf(posted).code).toBe(-32000)
  })

  it('serves one path, or every path', async () => {
    const { port } = await startEcho()
    const { headers, message } = callTool('echo')
    const body = JSON.stringify(message)
    expect((await post(port, { path: '/mcp?a=b', headers, body })).status).toBe(200)
    expect((await post(port, { path: '/mcpx', headers, body })).status).toBe(404)
    expect((await post(port, { path: '/', headers, body })).status).toBe(404)
    const any = await startEcho({ path: '*' })
    expect((await post(any.port, { path: '/some/where', headers, body })).status).toBe(200)
  })

  it('accepts header names in any case', async () => {
    const { port } = await startEcho()
    const { headers, message } = callTool('echo')
    const shouting = Object.fromEntries(Object.entries(headers).map(([k, v]) => [k.toUpperCase(), v]))
    expect((await post(port, { headers: shouting, body: JSON.stringify(message) })).status).toBe(200)
  })

  it('names the served versions to an older client', async () => {
    const { port } = await startEcho()
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

  it.each(['throws', 'rejects'])('does not send the reason when the service %s', async (tool) => {
    const faults: unknown[] = []
    const { port } = await startEcho({ onError: (error) => faults.push(error) })
    const posted = await send(port, callTool(tool))
    expect(errorOf(posted)).toEqual({ code: -32603, message: 'Internal error' })
    expect(faults).toHaveLength(1)
    await expectServing(port)
  })
})

describe('R11 the one catch around a request', () => {
  it('responds with 500 to an unexpected error, and continues to serve', async () => {
    const faults: unknown[] = []
    const { port, service } = await startEcho({ onError: (error) => faults.push(error) })
    service.paramHeaders = () => {
      throw new Error('canary')
    }
    const posted = await send(port, callTool('echo'))
    expect(posted.status).toBe(500)
    expect(errorOf(posted)).toEqual({ code: -32603, message: 'Internal error' })
    expect(faults).toHaveLength(1)
    service.paramHeaders = () => []
    await expectServing(port)
  })

  it('responds with an internal error if a reply cannot be encoded', async () => {
    const { port, service } = await startEcho()
    const { handle } = service
    service.handle = async () => ({ kind: 'complete', result: { n: 1n } })
    expect(errorOf(await send(port, callTool('echo')))).toEqual({ code: -32603, message: 'Internal error' })
    service.handle = handle
    await expectServing(port)
  })

  it('catches what listeners throw when a client goes away', async () => {
    const faults: unknown[] = []
    const { port, service } = await startEcho({ onError: (error) => faults.push(error) })
    const sent = callTool('slow', {}, { _meta: { progressToken: 'p' } })
    const req = httpRequest({ port, path: '/mcp', method: 'POST', headers: sent.headers })
    req.on('error', () => {})
    req.end(JSON.stringify(sent.message))
    const line = await service.waiting()
    const heard = new Promise<void>((resolve) => {
      line.onClose(() => {
        resolve()
        throw new Error('canary')
      })
    })
    req.destroy()
    await heard
    await expect.poll(() => faults, { timeout: 60_000 }).toHaveLength(1)
    await expectServing(port)
  })
})

describe('an endpoint that streams', () => {
  it('B1 streams notifications before the response, which comes last', async () => {
    const { port, service } = await startEcho()
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

  it('sends only the response to a client that reads no streams', async () => {
    const { port, service } = await startEcho()
    const posting = send(port, callTool('slow'), { accept: 'application/json' })
    await service.waiting()
    service.release()
    const posted = await posting
    expect(posted.headers['content-type']).toBe('application/json')
    expect(JSON.parse(posted.text).result.content[0].text).toBe('done')
  })

  it('treats a client that goes away as a cancellation', async () => {
    const { port, service } = await startEcho()
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

  it('does not call listeners for a close after the response', async () => {
    const { port, service } = await startEcho()
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

describe('a server that stops', () => {
  it('refuses new requests with 503 while a call in flight finishes', async () => {
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

  it('closes after the grace period even if a call does not end', async () => {
    const service = createEchoService()
    const listening = await listen(service, { port: 0, signals: false, graceMs: 10 })
    const posting = send(listening.port, callTool('slow')).catch((error) => error)
    await service.waiting()
    await listening.close()
    expect(await posting).toBeInstanceOf(Error)
  })

  it('rejects with the reason if it cannot listen', async () => {
    const { port } = await startEcho()
    await expect(listen(createEchoService(), { port, signals: false })).rejects.toThrow(
      `Port ${port} on 127.0.0.1 is in use: stop the other process`,
    )
  })
})

describe('the port while the server stops', () => {
  async function stopping(options: ListenOptions) {
    const agent = new Agent({ keepAlive: true })
    onTestFinished(() => agent.destroy())
    const { port, service, listening } = await startEcho({ graceMs: 60_000, ...options })
    const ask = (name: string): Promise<{ status: number; text: string; socket: unknown }> =>
      new Promise((resolve, reject) => {
        const { headers, message } = callTool(name)
        const req = httpRequest({ port, path: '/mcp', method: 'POST', headers, agent }, async (res) => {
          const chunks = await res.toArray()
          resolve({ status: res.statusCode ?? 0, text: Buffer.concat(chunks).toString(), socket: req.socket })
        })
        req.on('error', reject)
        req.end(JSON.stringify(message))
      })
    const { socket: idle } = await ask('echo')
    const slow = post(port, {
      headers: callTool('slow').headers,
      body: JSON.stringify(callTool('slow').message),
    })
    await service.waiting()
    const closed = listening.close()
    return { port, service, slow, closed, ask, idle }
  }

  it('is released at once with releasePort, and open connections are served to their end', async () => {
    const { port, service, slow, closed, ask, idle } = await stopping({ releasePort: true })
    const replacement = await listen(createEchoService(), { port, signals: false })
    onTestFinished(() => replacement.close())
    const refused = await ask('echo')
    expect(refused.socket).toBe(idle)
    expect(refused.status).toBe(503)
    await expectServing(port)
    service.release()
    expect((await slow).text).toContain('done')
    await closed
    await expectServing(port)
  })

  it('is kept otherwise, and new connections get 503', async () => {
    const { port, service, slow, closed } = await stopping({})
    await expect(listen(createEchoService(), { port, signals: false })).rejects.toThrow(
      `Port ${port} on 127.0.0.1 is in use: stop the other process`,
    )
    expect((await send(port, callTool('echo'))).status).toBe(503)
    service.release()
    expect((await slow).text).toContain('done')
    await closed
  })

  it('refuses invalid options', async () => {
    const start = (options: object) => listen(createEchoService(), { port: 0, signals: false, ...options })
    await expect(start({ releasePort: 'yes' })).rejects.toThrow('releasePort must be true or false')
    await expect(start({ maxConnections: -1 })).rejects.toThrow('maxConnections must be a number')
  })
})
