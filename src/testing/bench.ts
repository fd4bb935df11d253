/**
 * A test bench: makes instances of your server that share nothing but the key, with a clock you turn, in development
 * mode, and calls their tools through the same bytes a client would send.
 */

import type { LogEvent } from '../carry/flow-host.ts'
import type { Principal } from '../protocol/call.ts'
import { encodeHeaderValue } from '../protocol/header-value.ts'
import { CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION } from '../protocol/rev-2026-07-28/meta-key.ts'
import type { ClientCapabilities } from '../protocol/wire.ts'
import { generateKey } from '../seal/key-ring.ts'
import type { Server } from '../serve/create-server.ts'
import type { ServerOptions } from '../serve/options.ts'
import { createTestCall, type Sent, type TestCall, type TestRound } from './test-call.ts'

/** What a bench hands to your server: spread it over your own options. */
export type BenchOptions = Required<Pick<ServerOptions, 'keys' | 'now' | 'dev' | 'log' | 'authenticate'>>

export interface CallOptions {
  principal?: Principal
  /** What the client declares. Default: it can be asked anything. */
  capabilities?: ClientCapabilities
}

export interface TestBench {
  tool(name: string, args?: Record<string, unknown>, options?: CallOptions): TestCall
  prompt(name: string, args?: Record<string, string>, options?: CallOptions): TestCall
  resource(uri: string, options?: CallOptions): TestCall
  readonly clock: { now: number; advance(ms: number): void }
  /** Everything that was logged, by all instances. */
  readonly events: LogEvent[]
  /** The instance that takes the next request. */
  readonly server: Server
  /** The next request reaches a new instance, as after a restart or behind a balancer. */
  otherInstance(): void
}

const VERSION = '2026-07-28'
const ANYTHING: ClientCapabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} }
const PRINCIPAL_HEADER = 'x-test-principal'

/** `make` creates one instance: `(options) => createServer({ name, version, ...options })` and its tools. */
export function createBench(make: (options: BenchOptions) => Server): TestBench {
  const clock = {
    now: Date.UTC(2026, 6, 28),
    advance(ms: number) {
      clock.now += ms
    },
  }
  const events: LogEvent[] = []
  const options: BenchOptions = {
    keys: generateKey('bench'),
    now: () => clock.now,
    dev: true,
    log: (event) => void events.push(event),
    authenticate: ({ headers }) => {
      const header = headers(PRINCIPAL_HEADER)
      return header === undefined ? undefined : JSON.parse(decodeURIComponent(header))
    },
  }
  let server = make(options)
  let lastId = 0

  const send = async (sent: Sent): Promise<TestRound> => {
    lastId += 1
    return readRound(await server.fetch(toRequest(sent, lastId)))
  }
  const otherInstance = (): void => {
    server = make(options)
  }
  const call = (
    method: Sent['method'],
    params: Sent['params'],
    { principal, capabilities = ANYTHING }: CallOptions = {},
  ): TestCall => createTestCall({ method, params, principal, capabilities, send, otherInstance })

  return {
    tool: (name, args = {}, given) => call('tools/call', { name, arguments: args }, given),
    prompt: (name, args = {}, given) => call('prompts/get', { name, arguments: args }, given),
    resource: (uri, given) => call('resources/read', { uri }, given),
    clock,
    events,
    get server() {
      return server
    },
    otherInstance,
  }
}

function toRequest({ method, params, principal, capabilities }: Sent, id: number): Request {
  const name = String(params.name ?? params.uri)
  const _meta = {
    [PROTOCOL_VERSION]: VERSION,
    [CLIENT_CAPABILITIES]: capabilities,
    [CLIENT_INFO]: { name: 'rondo-testing', version: VERSION },
  }
  return new Request('http://127.0.0.1/mcp', {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': VERSION,
      'mcp-method': method,
      'mcp-name': encodeHeaderValue(name),
      ...(principal ? { [PRINCIPAL_HEADER]: encodeURIComponent(JSON.stringify(principal)) } : {}),
    },
    body: JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta } }),
  })
}

interface Message {
  readonly result?: Readonly<Record<string, unknown>>
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown }
}

async function readRound(response: Response): Promise<TestRound> {
  const body = await response.text()
  const { result, error }: Message = JSON.parse(isStream(response) ? lastData(body) : body)
  if (error) return { kind: 'error', code: error.code, message: error.message, data: error.data }
  if (!result) throw new Error(`The server answered ${response.status} without a result.`)
  if (result.resultType === 'input_required') {
    const { inputRequests = {}, requestState } = result as { inputRequests?: never; requestState?: string }
    return { kind: 'input_required', questions: inputRequests, state: requestState }
  }
  return { kind: 'complete', result, text: textOf(result) }
}

function isStream(response: Response): boolean {
  return response.headers.get('content-type')?.startsWith('text/event-stream') ?? false
}

/** The response is the last message of a stream. */
function lastData(stream: string): string {
  const lines = stream.split('\n').filter((line) => line.startsWith('data: '))
  return lines.at(-1)?.slice('data: '.length) ?? '{}'
}

/** All text of a tool's content, a prompt's messages or a resource's contents. */
function textOf(result: Readonly<Record<string, unknown>>): string {
  const blocks = (result.content ?? result.messages ?? result.contents ?? []) as readonly {
    readonly text?: string
    readonly content?: { readonly text?: string }
  }[]
  return blocks.map((block) => block.text ?? block.content?.text ?? '').join('\n')
}
