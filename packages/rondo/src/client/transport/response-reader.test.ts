import { createParser } from 'eventsource-parser'
import { describe, expect, it, vi } from 'vitest'
import { TURNS } from '../../drafts/turns/client.ts'
import { createResponseReader } from './response-reader.ts'

const utf8 = (text: string) => new TextEncoder().encode(text)
const response = (id: unknown = 1) => JSON.stringify({ jsonrpc: '2.0', id, result: { text: 'grüße 🙂' } })
const request = { id: 1, maxBytes: 1_000 }
const json = { status: 200, contentType: 'application/json; charset=utf-8' }
const stream = { status: 200, contentType: 'text/event-stream' }

function read(head: typeof json, chunks: readonly Uint8Array[], more: object = {}) {
  const reader = createResponseReader(head, { ...request, ...more })
  for (const chunk of chunks) reader.push(chunk)
  reader.end()
  return reader.response
}

const bytewise = (text: string) => [...utf8(text)].map((byte) => Uint8Array.of(byte))

describe('the response to a POST', () => {
  it.each([
    ['whole', [utf8(response())]],
    ['byte by byte', bytewise(response())],
  ])('is read as JSON, %s', (_how, chunks) => {
    expect(read(json, chunks)).toMatchObject({ id: 1, result: { text: 'grüße 🙂' } })
  })

  it.each([
    ['whole', [utf8(`event: message\ndata: ${response()}\n\n`)]],
    ['byte by byte', bytewise(`event: message\r\ndata: ${response()}\r\n\r\n`)],
    ['after comments and blank lines', [utf8(`: hello\n\n\n: there\ndata: ${response()}\n\n`)]],
  ])('is read as a stream, %s', (_how, chunks) => {
    expect(read(stream, chunks)).toMatchObject({ id: 1, result: { text: 'grüße 🙂' } })
  })

  it('B1 follows the notifications of its request', () => {
    const seen: unknown[] = []
    const notification = '{"jsonrpc":"2.0","method":"notifications/progress","params":{}}'
    const text = `data: ${notification}\n\ndata: ${response()}\n\ndata: ${notification}\n\n`
    read(stream, [utf8(text)], { onNotification: (message: unknown) => seen.push(message) })
    expect(seen).toEqual([JSON.parse(notification)])
  })

  it('may be an error with an HTTP status, with the id or none', () => {
    for (const id of [1, null]) {
      const error = { jsonrpc: '2.0', id, error: { code: -32700, message: 'x' } }
      expect(read({ ...json, status: 400 }, [utf8(JSON.stringify(error))])).toEqual(error)
    }
  })

  it.each([
    ['another id', json, response(2), 'PEER_BAD_RESPONSE'],
    ['no id', json, response(null), 'PEER_BAD_RESPONSE'],
    ['a batch', json, `[${response()}]`, 'PEER_BAD_RESPONSE'],
    ['broken JSON', json, '{"jsonrpc":', 'PEER_BAD_RESPONSE'],
    ['nothing', json, '', 'PEER_BAD_RESPONSE'],
    ['a page', { status: 200, contentType: 'text/html' }, '<p>', 'PEER_BAD_RESPONSE'],
    ['no type', { status: 200, contentType: '' }, response(), 'PEER_BAD_RESPONSE'],
    ['a bad status', { status: 502, contentType: 'text/html' }, '<p>', 'PEER_HTTP'],
    ['a bad status with some JSON', { ...json, status: 500 }, '{"error":"x","id":7}', 'PEER_HTTP'],
    ['a redirect', { status: 302, contentType: '' }, '', 'PEER_HTTP'],
    ['a stream that ends early', stream, 'data: {"jsonrpc":"2.0","method":"x"}\n\n', 'PEER_UNREACHABLE'],
    ['a stream with no JSON', stream, 'data: hello\n\n', 'PEER_BAD_RESPONSE'],
    ["a stream with somebody else's answer", stream, `data: ${response(2)}\n\n`, 'PEER_BAD_RESPONSE'],
    [
      'a request on the stream',
      stream,
      'data: {"jsonrpc":"2.0","id":5,"method":"ping"}\n\n',
      'PEER_BAD_RESPONSE',
    ],
    ['too many bytes', json, ' '.repeat(1_001), 'LIMIT_CLIENT_BYTES'],
    ['too many bytes on a stream', stream, ': x\n'.repeat(300), 'LIMIT_CLIENT_BYTES'],
  ])('T22 is refused with %s', (_what, head, text, code) => {
    expect(() => read(head as typeof json, [utf8(text)])).toThrowError(code)
  })

  it.each([
    ['an OAuth error', '{"error":"invalid_token","error_description":"expired"}'],
    ['a JSON-RPC error', '{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}'],
    ['a JSON-RPC error without id', '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}'],
    ['nothing', ''],
    ['more than may be read', ' '.repeat(2_000)],
  ])('becomes an error with status and challenge for 401 and 403, whatever the body: %s', (_what, body) => {
    for (const status of [401, 403]) {
      const challenge = 'Bearer error="invalid_token", scope="tools"'
      const head = { ...json, status, challenge }
      const challenges = [{ scheme: 'Bearer', params: { error: 'invalid_token', scope: 'tools' } }]
      expect(() => read(head, [utf8(body)])).toThrowError(
        expect.objectContaining({
          code: 'PEER_HTTP',
          message: expect.stringContaining('(Bearer, error invalid_token, scope tools)'),
          data: { status, challenge, challenges },
        }),
      )
    }
  })

  it('becomes an error with its status if the body is another kind of error', () => {
    const head = { ...json, status: 400 }
    expect(() => read(head, [utf8('{"error":"bad_request"}')])).toThrowError('PEER_HTTP')
  })

  it('T22 may be an endless stream if the caller allows it, but each message is limited', () => {
    const note = `data: {"jsonrpc":"2.0","method":"x","params":{"a":"${'x'.repeat(100)}"}}\n\n`
    const endless = { endless: true }
    expect(() => read(stream, Array(100).fill(utf8(note)), endless)).toThrowError('PEER_UNREACHABLE')
    const flood = Array<Uint8Array>(100).fill(utf8('x'.repeat(100)))
    expect(() => read(stream, [utf8('data: '), ...flood], endless)).toThrowError('LIMIT_CLIENT_BYTES')
  })
})

/** How many characters the searches for the end of a line pass while `work` runs. */
function countSearched(work: () => void): number {
  let count = 0
  const { indexOf } = String.prototype
  const search = vi.spyOn(String.prototype, 'indexOf').mockImplementation(function (
    this: string,
    wanted,
    from = 0,
  ) {
    const at = indexOf.call(this, wanted, from)
    count += (at === -1 ? this.length : at + 1) - from
    return at
  })
  try {
    work()
  } finally {
    search.mockRestore()
  }
  return count
}

describe('a stream in small chunks', () => {
  const CHUNK = 4_096
  const readAll = (chunks: readonly Uint8Array[]) => {
    const reader = createResponseReader(stream, { ...request, maxBytes: 64 * 1_048_576 })
    for (const chunk of chunks) reader.push(chunk)
  }

  it.each([
    ['one long line', 'data: ', 'x'.repeat(CHUNK)],
    ['lines that end with LF', '', '\n'.repeat(CHUNK)],
    ['lines that end with CR', '', '\r'.repeat(CHUNK)],
    ['lines that end with CRLF', '', '\r\n'.repeat(CHUNK / 2)],
  ])('T22 is searched a few times, whatever its length: %s', (_what, begin, chunk) => {
    const chunks = [utf8(begin), ...Array<Uint8Array>(8).fill(utf8(chunk))]
    expect(countSearched(() => readAll(chunks))).toBeLessThanOrEqual(4 * 8 * CHUNK)
  })

  it('control: the parser alone searches the rest of a chunk at every CR', () => {
    const parser = createParser({})
    expect(countSearched(() => parser.feed('\r'.repeat(CHUNK)))).toBeGreaterThan(1_000 * CHUNK)
  })

  it('T22 is aborted if its lines belong to no event', () => {
    const lines = (count: number) => [utf8('x\n'.repeat(count)), utf8(`data: ${response()}\n\n`)]
    expect(read(stream, lines(1_000), { maxBytes: 100_000 })).toMatchObject({ id: 1 })
    expect(() => read(stream, lines(1_001), { maxBytes: 100_000 })).toThrowError('PEER_BAD_RESPONSE')
  })
})

describe('the marks of a turn', () => {
  const ask = (id: string) => `id: ${id}\ndata: {"jsonrpc":"2.0","id":"${id}","method":"ping"}\n\n`
  const turn = (pieces: readonly string[]) => {
    const reader = createResponseReader(stream, {
      ...request,
      buffer: TURNS.createBuffer(1_000),
      onRequest: () => {},
    })
    for (const piece of pieces) reader.push(utf8(piece))
    return reader.response
  }

  it.each([
    ['LF', 'event: buffer_input\nid: 2\n\n', '\n'],
    ['CRLF and the id first', 'id: 2\nevent:buffer_input\n\n', '\r\n'],
    ['CR and a comment', 'event: buffer_input\n: hello\nid: 2\n\n', '\r'],
    ['an empty line of data', 'event: buffer_input\nid: 2\ndata:\n\n', '\n'],
  ])('F5 are recognised wherever the text is cut: %s', (_what, begin, end) => {
    const text = `${begin}${ask('3')}event: input_required\nid: 4\n\n`.replaceAll('\n', end)
    // The last CR may be half of a CRLF; what follows makes it whole.
    const whole = end === '\r' ? `${text}:` : text
    const expected = { last: '4', requests: [expect.objectContaining({ id: '3' })] }
    expect(turn([whole])).toMatchObject(expected)
    expect(turn([...whole])).toMatchObject(expected)
    for (let cut = 0; cut <= whole.length; cut++)
      expect(turn([whole.slice(0, cut), whole.slice(cut)])).toMatchObject(expected)
  })

  it('F5 are not recognised with data, or with another name', () => {
    const others = [
      'event: buffer_input\ndata: []\n\n',
      'event: buffer_input\nevent: x\n\n',
      'event: buffer_inputs\n\n',
    ]
    for (const other of others) {
      expect(turn([`${other}${ask('3')}event: input_required\nid: 4\n\n`])).toBeUndefined()
    }
  })
})
