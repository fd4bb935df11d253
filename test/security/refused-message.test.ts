/**
 * N3, N5: what every entrance does with an unusual message. It is served if JSON allows it and it is neither dangerous nor too
 * heavy; otherwise its refusal carries its id, since clients drop a response without one, and over stdio wait for ever.
 */

import { PassThrough } from 'node:stream'
import { createServer, generateKey, type Server } from 'rondo'
import { describe, expect, it, onTestFinished } from 'vitest'
import { readEvents } from '../support/turns-client.ts'

type Message = Readonly<Record<string, unknown>>
/** Sends one message as it is written, and resolves with the response. */
type Send = (text: Buffer) => Promise<Message>

const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {},
  'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1.0.0' },
}

function open(): Server {
  const server = createServer({
    name: 'plain',
    version: '1.0.0',
    keys: generateKey(),
    log: 'off',
    sessions: {},
    maxBodyBytes: 4_194_304,
  })
  server.tool('echo', {}, (args) => JSON.stringify(args))
  onTestFinished(() => server.close())
  return server
}

async function read(response: Response): Promise<Message> {
  const text = await response.text()
  if (!response.headers.get('content-type')?.startsWith('text/event-stream')) return JSON.parse(text)
  return readEvents(text).flatMap(({ data }) => (data ? [JSON.parse(data)] : []))[0]
}

const HEADERS = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }
const NEW = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'echo' }

function poster(send: (request: Request) => Promise<Response>, url: string, headers: object): Send {
  return async (body) =>
    read(
      await send(
        new Request(url, {
          method: 'POST',
          headers: { ...HEADERS, ...headers },
          body: Uint8Array.from(body),
        }),
      ),
    )
}

async function inSession(capabilities: object): Promise<Send> {
  const { fetch } = open()
  const url = 'http://localhost/mcp'
  const params = {
    protocolVersion: '2025-11-25',
    capabilities,
    clientInfo: { name: 'older', version: '1.0.0' },
  }
  const begin = JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params })
  const greeting = await fetch(new Request(url, { method: 'POST', headers: HEADERS, body: begin }))
  const session = greeting.headers.get('mcp-session-id') ?? ''
  const send = poster(fetch, url, { 'mcp-session-id': session, 'mcp-protocol-version': '2025-11-25' })
  // In a session no message claims a version.
  return (text) => send(Buffer.from(text.toString('latin1').replace(JSON.stringify(META), '{}'), 'latin1'))
}

function overStdio(): Send {
  const input = new PassThrough()
  const output = new PassThrough({ encoding: 'utf8' })
  void open().stdio({ input, output, signals: false, rejections: false })
  return (text) =>
    new Promise((resolve) => {
      let line = ''
      const onData = (chunk: string): void => {
        line += chunk
        if (!line.endsWith('\n')) return
        output.off('data', onData)
        resolve(JSON.parse(line))
      }
      output.on('data', onData)
      input.write(text)
      input.write('\n')
    })
}

const entrances: [string, () => Promise<Send>][] = [
  ['fetch', async () => poster(open().fetch, 'http://localhost/mcp', NEW)],
  [
    'node:http',
    async () => {
      const { url } = await open().listen({ port: 0, signals: false, rejections: false })
      return poster(fetch, url, NEW)
    },
  ],
  ['stdio', async () => overStdio()],
  ['a session', () => inSession({})],
  [
    'a session of the drafts',
    () => inSession({ experimental: { 'multi-turn-sse': {}, 'request-state': {} } }),
  ],
]

/** A call whose arguments are this text. The id comes last, as official clients write it. */
const call = (args: string): Buffer =>
  Buffer.from(
    `{"method":"tools/call","params":{"_meta":${JSON.stringify(META)},"name":"echo","arguments":${args}},"jsonrpc":"2.0","id":42}`,
  )

const rows = Array.from({ length: 3_000 }, (_, i) => ({ id: i, name: `Row ${i}`, amount: i / 4, open: true }))
const ordinary: [string, string][] = [
  ['a key `constructor`', '{"constructor":{"prototype":{"a":1}}}'],
  ['a table of 3,000 rows', JSON.stringify({ rows })],
  ['500 levels', `{"a":${'['.repeat(500)}${']'.repeat(500)}}`],
  ['a key of 2,000 characters', `{"${'k'.repeat(2_000)}":1}`],
  ['a megabyte of text', JSON.stringify({ text: 'x'.repeat(1_000_000) })],
]

const refused: [string, Buffer, number][] = [
  ['a key `__proto__`', call('{"__proto__":{"a":1}}'), -32600],
  ['a duplicate key', call('{"a":1,"a":2}'), -32600],
  ['600 levels', call(`{"a":${'['.repeat(600)}${']'.repeat(600)}}`), -32600],
  ['too much weight', call(`{"a":[${'{},'.repeat(300_000)}{}]}`), -32600],
  ['a number beyond all doubles', call('{"a":1e999}'), -32602],
  ['broken JSON', call('{"a":NaN}'), -32700],
  ['bytes that are not UTF-8', Buffer.from(call('{"a":"\u00ff"}').toString(), 'latin1'), -32700],
]

describe.each(entrances)('over %s', (_name, connect) => {
  it.each(ordinary)('N5 a call with %s is served', async (_what, args) => {
    const send = await connect()
    const { id, result } = await send(call(args))
    expect(id).toBe(42)
    const { content } = result as { content: { text: string }[] }
    expect(content[0]?.text === args).toBe(true)
  })

  it.each(refused)('N3 the refusal of a call with %s has its id', async (_what, text, code) => {
    const send = await connect()
    expect(await send(text)).toMatchObject({ id: 42, error: { code } })
    expect(await send(call('{}'))).toMatchObject({ id: 42, result: {} })
  })

  it.each(['null', '1', '"text"', '[]', '[null]', '{}'])(
    'R11 %s is refused, and not an internal error',
    async (text) => {
      const send = await connect()
      const { error } = await send(Buffer.from(text))
      expect(error).toBeDefined()
      expect((error as { code: number }).code).not.toBe(-32603)
    },
  )
})

it.each([
  ['over stdio', async () => overStdio()],
  [
    'over node:http',
    async () => {
      const { url } = await open().listen({ port: 0, signals: false, rejections: false })
      return poster(fetch, url, NEW)
    },
  ],
] as [string, () => Promise<Send>][])(
  'N3 the refusal of a message that is too long has its id %s',
  async (_name, connect) => {
    const send = await connect()
    const text = call(JSON.stringify({ text: 'x'.repeat(4_200_000) }))
    expect(await send(text)).toMatchObject({ id: 42, error: { code: -32000 } })
  },
)
