/** Sends messages to a server unchanged, valid or not, and returns what comes back. */

import { request as httpRequest, type IncomingHttpHeaders, type RequestOptions } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { parseMessage } from '../../client/transport/response-reader.ts'
import { createStdioTransport, type StdioTarget } from '../../client/transport/stdio.ts'
import { collectBytes } from '../../lib/collection.ts'
import { isRecord } from '../../lib/json.ts'

export interface ProbeReply {
  /** HTTP only. */
  readonly status?: number
  readonly headers?: IncomingHttpHeaders
  /** The JSON-RPC response, if there was one. */
  readonly message?: Readonly<Record<string, unknown>>
  /** Why there is no response at all. */
  readonly problem?: string
}

export interface Probe {
  readonly kind: 'http' | 'stdio'
  /** Sends one JSON-RPC request; over HTTP also with these headers. */
  send(message: ProbeRequest, headers?: ProbeHeaders): Promise<ProbeReply>
  /** Sends a notification. */
  notify(message: ProbeRequest, headers?: ProbeHeaders): Promise<void>
  /** HTTP only: a request with another method and no body. */
  visit(method: string, headers?: ProbeHeaders): Promise<ProbeReply>
  close(): Promise<void>
}

/** `undefined` removes a header. */
type ProbeHeaders = Readonly<Record<string, string | undefined>>

export interface ProbeRequest {
  readonly method: string
  readonly params?: Readonly<Record<string, unknown>>
}

const TIMEOUT_MS = 10_000
const MAX_BYTES = 4_194_304

export function probeHttp(
  url: string,
  own: Readonly<Record<string, string>>,
  timeoutMs: number = TIMEOUT_MS,
): Probe {
  const target = new URL(url)
  const begin = target.protocol === 'https:' ? httpsRequest : httpRequest
  const exchange = (options: RequestOptions, body?: string): Promise<ProbeReply> =>
    new Promise((resolve) => {
      const fail = (error: Error): void => resolve({ problem: error.message })
      // For the whole exchange: a server may send a byte now and then for ever.
      const signal = AbortSignal.timeout(timeoutMs)
      const request = begin(target, { ...options, signal, agent: false }, (response) => {
        const collected = collectBytes()
        const done = (): void => {
          if (signal.aborted) return resolve({ problem: 'timed out' })
          const { statusCode, headers } = response
          const message = readBody(new TextDecoder().decode(collected.take()))
          resolve({ status: statusCode, headers, ...(message && { message }) })
        }
        response.on('data', (chunk: Buffer) => {
          if (collected.size + chunk.byteLength > MAX_BYTES) request.destroy()
          else collected.add(chunk)
        })
        response.on('end', done).on('error', done).on('close', done)
      })
      request.on('error', (error) => fail(signal.aborted ? new Error('timed out') : error))
      // A server that switches protocols closes the request without a response.
      request.on('close', () => fail(new Error('the connection was closed')))
      request.end(body)
    })
  const post = (message: object, headers: ProbeHeaders): Promise<ProbeReply> => {
    const body = JSON.stringify(message)
    const all = {
      'Content-Type': 'application/json',
      Accept: 'application/json, text/event-stream',
      'Content-Length': String(Buffer.byteLength(body)),
      ...own,
      ...headers,
    }
    return exchange({ method: 'POST', headers: present(all) }, body)
  }
  let id = 0
  return {
    kind: 'http',
    send({ method, params }, headers = {}) {
      id += 1
      return post({ jsonrpc: '2.0', id, method, params }, headers)
    },
    async notify({ method, params }, headers = {}) {
      await post({ jsonrpc: '2.0', method, params }, headers)
    },
    visit: (method, headers = {}) =>
      exchange({ method, headers: present({ Accept: 'text/event-stream', ...own, ...headers }) }),
    close: async () => {},
  }
}

function present(headers: ProbeHeaders): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).filter((entry): entry is [string, string] => entry[1] !== undefined),
  )
}

export function probeStdio(target: StdioTarget): Probe {
  const transport = createStdioTransport({ ...target, stderr: 'ignore' }, { maxBytes: MAX_BYTES })
  let id = 0
  return {
    kind: 'stdio',
    async send({ method, params }) {
      id += 1
      const body = JSON.stringify({ jsonrpc: '2.0', id, method, params })
      const signal = AbortSignal.timeout(TIMEOUT_MS)
      try {
        const message = await transport.exchange({ id, body, headers: {}, signal, maxBytes: MAX_BYTES })
        return isRecord(message) ? { message } : { problem: 'the response is not a JSON-RPC message' }
      } catch (error) {
        return { problem: signal.aborted ? 'timed out' : (error as Error).message }
      }
    },
    async notify({ method, params }) {
      const body = JSON.stringify({ jsonrpc: '2.0', method, params })
      const signal = AbortSignal.timeout(TIMEOUT_MS)
      await transport
        .exchange({ id: 0, body, headers: {}, signal, maxBytes: MAX_BYTES, oneWay: true })
        .catch(() => {})
    },
    visit: async () => ({ problem: 'stdio has no HTTP methods' }),
    close: () => transport.close(),
  }
}

/** A JSON body, or the last message of an event stream. */
function readBody(text: string): Readonly<Record<string, unknown>> | undefined {
  const events = text
    .split(/\r?\n/)
    .flatMap((line) => (line.startsWith('data:') ? [line.slice(5).trim()] : []))
  for (const part of [text, ...events.reverse()]) {
    try {
      const value = parseMessage(part)
      if (isRecord(value) && value.method === undefined) return value
    } catch {}
  }
  return undefined
}
