/**
 * A server of an older era in memory that does what a test tells it to. It opens a session, records every message, and
 * lets the test write to the stream of each call.
 */

import type { Answers, MemoryTarget } from '../../packages/rondo/src/client.ts'

type Fields = Readonly<Record<string, unknown>>

export interface Heard {
  readonly verb: string
  readonly headers: Headers
  readonly message: Fields
}

/** The stream of one request. */
export interface Stream {
  /** The message that this stream responds to. */
  readonly message: Fields
  readonly headers: Headers
  send(message: object, id?: string): void
  /** Any text, such as `retry: 500`. */
  write(lines: string): void
  result(text: string): void
  end(): void
}

export interface ScriptedSession extends MemoryTarget {
  readonly heard: readonly Heard[]
  /** Waits for the next message that no earlier call returned. */
  next(wanted: (heard: Heard) => boolean): Promise<Heard>
}

/** A response to send instead of the stream, or nothing. */
type Told = unknown

export interface SessionScript {
  readonly version?: string
  readonly session?: string | null
  readonly capabilities?: Fields
  /** Receives every request after the handshake. */
  onCall?(stream: Stream): Told
  /** Receives every GET; without it there is no such stream. */
  onGet?(stream: Stream): Told
  onDiscover?(id: unknown): Response
}

const METHOD_NOT_FOUND = { code: -32601, message: 'Method not found' }

export function scriptSession(script: SessionScript = {}): ScriptedSession {
  const heard: Heard[] = []
  const taken = new Set<Heard>()
  let waiters: (() => void)[] = []
  const server: ScriptedSession = {
    heard,
    async next(wanted) {
      for (;;) {
        const found = heard.find((one) => !taken.has(one) && wanted(one))
        if (found) {
          taken.add(found)
          return found
        }
        await new Promise<void>((resolve) => waiters.push(resolve))
      }
    },
    async fetch(request) {
      const text = await request.text()
      const one = { verb: request.method, headers: request.headers, message: text ? JSON.parse(text) : {} }
      heard.push(one)
      for (const wake of waiters) wake()
      waiters = []
      return answer(script, one)
    },
  }
  return server
}

async function answer(script: SessionScript, { verb, headers, message }: Heard): Promise<Response> {
  const { id, method } = message
  if (verb === 'DELETE') return new Response(null, { status: 405 })
  if (verb === 'GET') {
    return script.onGet ? stream(message, headers, script.onGet) : new Response(null, { status: 405 })
  }
  if (id === undefined || method === undefined) return new Response(null, { status: 202 })
  if (method === 'server/discover') {
    return script.onDiscover?.(id) ?? Response.json({ jsonrpc: '2.0', id, error: METHOD_NOT_FOUND })
  }
  if (method === 'initialize') return Response.json(...introduction(script, message))
  return stream(message, headers, script.onCall ?? ((one) => one.result('done')))
}

function introduction(script: SessionScript, { id, params }: Fields): [object, ResponseInit] {
  const { version, session = 's1', capabilities = {} } = script
  const protocolVersion = version ?? (params as Fields).protocolVersion
  const result = { protocolVersion, capabilities, serverInfo: { name: 'old', version: '1.0.0' } }
  return [{ jsonrpc: '2.0', id, result }, session === null ? {} : { headers: { 'Mcp-Session-Id': session } }]
}

async function stream(message: Fields, headers: Headers, run: (stream: Stream) => Told): Promise<Response> {
  const encoder = new TextEncoder()
  let out: ReadableStreamDefaultController<Uint8Array> | undefined
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      out = controller
    },
    cancel() {
      out = undefined
    },
  })
  const write = (lines: string) => out?.enqueue(encoder.encode(lines))
  const send = (one: object, id?: string) =>
    write(`${id === undefined ? '' : `id: ${id}\n`}data: ${JSON.stringify({ jsonrpc: '2.0', ...one })}\n\n`)
  const end = () => {
    out?.close()
    out = undefined
  }
  const result = (text: string) => {
    send({ id: message.id, result: { content: [{ type: 'text', text }] } })
    end()
  }
  const other = await run({ message, headers, write, send, result, end })
  return other instanceof Response
    ? other
    : new Response(body, { headers: { 'Content-Type': 'text/event-stream' } })
}

export const textOf = (result: { content: readonly unknown[] }): string =>
  (result.content[0] as { text: string }).text

/** Fills in every form. */
export const ADA: Answers = { elicitation: { form: () => ({ action: 'accept', content: { name: 'Ada' } }) } }
