/**
 * One client under test, in a process of its own: `child KIND URL QUESTIONS CALLS`. Warms up, calls one after the other, checks
 * every result, and reports what a call cost this process.
 */

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { connect } from 'rondo/client'

export interface CallCost {
  readonly cpuMicros: number
  readonly wallMicros: number
}

const VERSION = '2026-07-28'
const ANSWER = { action: 'accept', content: { value: 'yes' } } as const

type Call = () => Promise<string>

async function rondo(url: string, name: string): Promise<Call> {
  const client = await connect(url, { answers: { elicitation: async () => ANSWER } })
  return async () => textOf(await client.callTool(name))
}

async function official(url: string, name: string): Promise<Call> {
  const client = new Client(
    { name: 'bench', version: '1.0.0' },
    { capabilities: { elicitation: {} }, versionNegotiation: { mode: { pin: VERSION } } },
  )
  client.setRequestHandler('elicitation/create', async () => ({ ...ANSWER }))
  await client.connect(new StreamableHTTPClientTransport(new URL(url)))
  return async () => textOf(await client.callTool({ name, arguments: {} }))
}

/** Sends the legs with only `fetch` and JSON. */
async function raw(url: string, name: string): Promise<Call> {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': VERSION,
    'io.modelcontextprotocol/clientCapabilities': { elicitation: {} },
  }
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': VERSION,
    'mcp-method': 'tools/call',
    'mcp-name': name,
  }
  let id = 0
  return async () => {
    let more: Record<string, unknown> = {}
    for (let leg = 0; leg < 10; leg++) {
      const params = { name, arguments: {}, ...more, _meta }
      const body = JSON.stringify({ jsonrpc: '2.0', id: id++, method: 'tools/call', params })
      const { result } = await (await fetch(url, { method: 'POST', headers, body })).json()
      if (result.resultType !== 'input_required') return textOf(result)
      const keys = Object.keys(result.inputRequests ?? {})
      const inputResponses = Object.fromEntries(keys.map((key) => [key, ANSWER]))
      more = { requestState: result.requestState, inputResponses }
    }
    throw new Error('no result after 10 legs')
  }
}

function textOf(result: unknown): string {
  const [first] = (result as { content: readonly { text?: string }[] }).content
  return first?.text ?? ''
}

async function repeat(call: Call, times: number, wanted: string): Promise<void> {
  for (let i = 0; i < times; i++) {
    const text = await call()
    if (text !== wanted) throw new Error(`got ${JSON.stringify(text)} instead of ${JSON.stringify(wanted)}`)
  }
}

const [kind = '', url = '', questions = '0', calls = '100'] = process.argv.slice(2)
const makers: Readonly<Record<string, typeof raw>> = { rondo, official, fetch: raw }
const call = await makers[kind]?.(url, `ask${questions}`)
if (call === undefined) throw new Error(`Unknown client "${kind}"`)
const wanted = 'yes'.repeat(Number(questions)) || 'nothing asked'
await repeat(call, Math.ceil(Number(calls) / 2), wanted)
const before = { cpu: process.cpuUsage(), wall: performance.now() }
await repeat(call, Number(calls), wanted)
const { user, system } = process.cpuUsage(before.cpu)
const cost: CallCost = {
  cpuMicros: (user + system) / Number(calls),
  wallMicros: ((performance.now() - before.wall) * 1000) / Number(calls),
}
process.stdout.write(JSON.stringify(cost), () => process.exit(0))
