/**
 * Makes one call that asks, with its retry, and sends the functions of this program that ran meanwhile. The argument
 * `observed` adds an observer that does nothing.
 */

import { Session } from 'node:inspector/promises'
import { z } from 'zod'
import { createServer, generateKey, type Observer } from '../../packages/rondo/src/index.ts'

const telemetry: Observer = {
  begin: () => ({ run: (fn) => fn(), work: (_kind, _key, fn) => fn(), replayed() {}, end() {} }),
}
const observed = process.argv[2] === 'observed'
const server = createServer({
  ...{ name: 'covered', version: '1.0.0', keys: generateKey(), log: 'off' },
  ...(observed && { telemetry }),
})
const schema = z.object({ word: z.string() })
server.tool('ask', {}, async (_args, ctx) => {
  const { word } = await ctx.ask('word', { message: 'Word?', schema })
  return ctx.step('shout', () => word.toUpperCase())
})

let lastId = 0
async function send(params: object): Promise<{ requestState?: string; content?: { text: string }[] }> {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
  }
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'tools/call',
    'mcp-name': 'ask',
  }
  const message = { jsonrpc: '2.0', id: ++lastId, method: 'tools/call' }
  const body = JSON.stringify({ ...message, params: { name: 'ask', arguments: {}, ...params, _meta } })
  const response = await server.fetch(new Request('http://127.0.0.1/mcp', { method: 'POST', headers, body }))
  return ((await response.json()) as { result: object }).result
}

async function call(): Promise<string | undefined> {
  const { requestState } = await send({})
  const inputResponses = { word: { action: 'accept', content: { word: 'hi' } } }
  const { content } = await send({ requestState, inputResponses })
  return content?.[0]?.text
}

// Code that is loaded or compiled once does not count.
await call()
const session = new Session()
session.connect()
await session.post('Profiler.enable')
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
await session.post('Profiler.takePreciseCoverage')
const text = await call()
const { result } = await session.post('Profiler.takePreciseCoverage')
const functions = result
  .filter(({ url }) => url === import.meta.url)
  .flatMap((script) => script.functions)
  .filter(({ ranges }) => (ranges[0]?.count ?? 0) > 0)
  .map(({ functionName }) => functionName)
process.send?.({ text, functions }, () => process.exit(0))
