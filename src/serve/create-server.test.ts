import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import type { LogEvent } from '../carry/flow-host.ts'
import { generateKey } from '../seal/key-ring.ts'
import { createServer, type Server } from './create-server.ts'

const request = {
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
}

async function overFetch(server: Server): Promise<string> {
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'tools/call',
    'mcp-name': 'hello',
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
])('tells the log over %s of a fault that the client hears nothing of', async (_name, call) => {
  const events: LogEvent[] = []
  const server = createServer({
    name: 'faulty',
    version: '1',
    keys: generateKey(),
    log: (event) => void events.push(event),
    now() {
      throw new Error('the clock stopped')
    },
  })
  server.tool('hello', {}, () => 'Hello')
  const answer = await call(server)
  expect(JSON.parse(answer)).toMatchObject({ error: { code: -32603, message: 'Internal error' } })
  expect(answer).not.toContain('clock')
  expect(events).toMatchObject([{ event: 'warning', error: { message: 'the clock stopped' } }])
  await server.close()
})
