import { connect } from 'node:net'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { errorOf, expectServing, startEcho } from '../support/echo-listening.ts'
import { callTool } from '../support/echo-service.ts'
import { post } from '../support/post.ts'

describe('bad input is refused, and the server keeps serving', () => {
  const good = callTool('echo')
  const json = { 'content-type': 'application/json' }
  const withText = (params: string) =>
    JSON.stringify(callTool('echo').message).replace('"arguments":{}', `"arguments":{},${params}`)

  it.each<[string, Record<string, string>, string, number, number]>([
    ['a body that is not JSON', good.headers, '{"jsonrpc":', 400, -32700],
    ['an empty body', good.headers, '', 400, -32700],
    ['another content type', { ...good.headers, 'content-type': 'text/plain' }, '{}', 415, -32000],
    ['T8 a depth of 100,000', json, `${'['.repeat(100_000)}${']'.repeat(100_000)}`, 400, -32600],
    ['T10 a duplicate key', good.headers, withText('"name":"other"'), 400, -32600],
    [
      'T9 __proto__ as a key of inputResponses',
      good.headers,
      withText('"inputResponses":{"__proto__":{}}'),
      400,
      -32600,
    ],
    ['B14 inputResponses as an array', good.headers, withText('"inputResponses":[]'), 200, -32602],
    ['a number as requestState', good.headers, withText('"requestState":7'), 200, -32602],
    [
      'T13 a header that names another tool',
      { ...good.headers, 'mcp-name': 'other' },
      JSON.stringify(good.message),
      400,
      -32020,
    ],
    ['an unknown tool', callTool('no').headers, JSON.stringify(callTool('no').message), 200, -32602],
    ['a batch', json, `[${JSON.stringify(good.message)}]`, 400, -32600],
  ])('%s', async (_, headers, body, status, code) => {
    const { port } = await startEcho()
    const posted = await post(port, { headers, body })
    expect(posted.status).toBe(status)
    expect(errorOf(posted).code).toBe(code)
    await expectServing(port)
  })

  it('a body of 10 MB, with and without Content-Length', async () => {
    const { port } = await startEcho()
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
    const { port } = await startEcho()
    const body = Buffer.concat([Buffer.from('{"a":"'), Buffer.from([0xff]), Buffer.from('"}')])
    const posted = await post(port, { headers: good.headers, body })
    expect(posted.status).toBe(400)
    expect(errorOf(posted).code).toBe(-32700)
    await expectServing(port)
  })
})

describe('garbage on the socket', () => {
  it('does not stop the server', async () => {
    const { port } = await startEcho()
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
          // Bytes that are not a request may be disconnected without a response, but never get a success.
          if (framed) expect(answer).toMatch(/^HTTP\/1.1 400/)
          else expect(answer).not.toMatch(/^HTTP\/1.1 2/)
        },
      ),
      { numRuns: 50 },
    )
    await expectServing(port)
  })
})

describe('two Host headers', () => {
  it('T12 are refused, whichever of them is allowed', async () => {
    const { port } = await startEcho()
    const { headers, message } = callTool('echo')
    const body = JSON.stringify(message)
    const ask = async (hosts: readonly string[]): Promise<string> => {
      const socket = connect(port, '127.0.0.1')
      const lines = [
        'POST /mcp HTTP/1.1',
        ...hosts.map((host) => `Host: ${host}`),
        ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
        `Content-Length: ${Buffer.byteLength(body)}`,
        'Connection: close',
      ]
      socket.end(`${lines.join('\r\n')}\r\n\r\n${body}`)
      let answer = ''
      for await (const chunk of socket.setEncoding('latin1')) answer += chunk
      return answer
    }
    expect(await ask(['localhost', 'evil.example'])).toMatch(/^HTTP\/1.1 400/)
    expect(await ask(['localhost', 'localhost'])).toMatch(/^HTTP\/1.1 400/)
    expect(await ask(['localhost'])).toMatch(/^HTTP\/1.1 200/)
  })
})

describe('slow clients', () => {
  it('T20 are disconnected if the body does not arrive', async () => {
    const { port } = await startEcho({ requestTimeoutMs: 200, headersTimeoutMs: 200 })
    const socket = connect(port, '127.0.0.1')
    socket.write('POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n')
    socket.write('content-length: 1000\r\n\r\n{"json')
    let answer = ''
    for await (const chunk of socket.setEncoding('utf8')) answer += chunk
    expect(answer).toContain('408')
    await expectServing(port)
  })

  it('T20 are disconnected if the headers do not arrive', async () => {
    const { port } = await startEcho({ requestTimeoutMs: 1000, headersTimeoutMs: 200 })
    const socket = connect(port, '127.0.0.1')
    socket.write('POST /mcp HTTP/1.1\r\nhost: loc')
    let answer = ''
    for await (const chunk of socket.setEncoding('utf8')) answer += chunk
    expect(answer).toContain('408')
    await expectServing(port)
  })
})
