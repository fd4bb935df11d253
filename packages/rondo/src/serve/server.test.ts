import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import type { LogEvent } from '../log/event.ts'
import { generateKey } from '../seal/key-ring.ts'
import { createServer, type Server } from './server.ts'

const request = {
  jsonrpc: '2.0',
  id: 1,
  method: 'completion/complete',
  params: {
    ref: { type: 'ref/prompt', name: 'hello' },
    argument: { name: 'whom', value: 'A' },
    _meta: {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': {},
    },
  },
}

async function overFetch(server: Server): Promise<string> {
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'completion/complete',
  }
  const body = JSON.stringify(request)
  const response = await server.fetch(new Request('http://127.0.0.1/mcp', { method: 'POST', headers, body }))
  return response.text()
}

async function overStdio(server: Server): Promise<string> {
  const [input, output] = [new PassThrough(), new PassThrough()]
  input.end(`${JSON.stringify(request)}\n`)
  await server.stdio({ input, output, signals: false })
  return String(output.read())
}

it.each([
  ['fetch', overFetch],
  ['stdio', overStdio],
])('a server logs, over %s, an error that the client is not told about', async (_name, call) => {
  const events: LogEvent[] = []
  const log = (event: LogEvent): void => void events.push(event)
  const server = createServer({ name: 'faulty', version: '1', keys: generateKey(), log })
  const complete = {
    whom() {
      throw new Error('the address book is gone')
    },
  }
  server.prompt('hello', { complete }, () => 'Hello')
  const answer = await call(server)
  expect(JSON.parse(answer)).toMatchObject({ error: { code: -32603, message: 'Internal error' } })
  expect(answer).not.toContain('address')
  const warnings = events.filter(({ event }) => event === 'warning')
  expect(warnings).toMatchObject([{ event: 'warning', error: { message: 'the address book is gone' } }])
  await server.close()
})

it('T16 I1 an invalid store or key gets a sentence that does not quote it', () => {
  const secret = 'postgres://rondo:hunter2@db/app'
  const create = (given: object) => () => createServer({ name: 'x', version: '1', ...given } as never)
  for (const store of [secret, 5, []]) {
    expect(create({ store })).toThrow('store must be a store')
    expect(create({ store })).not.toThrow('hunter2')
  }
  for (const keys of [5, () => '']) expect(create({ keys })).toThrow('keys must be text')
})
