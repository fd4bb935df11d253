/**
 * Calls to Restate over HTTP: handlers through its ingress, and its admin API. A call that may have been lost is made again,
 * at the next address, under the same idempotency key: Restate runs it once and returns the same reply.
 */

import { randomBytes } from 'node:crypto'
import {
  type ClientRequest,
  Agent as HttpAgent,
  request as httpRequest,
  type IncomingMessage,
} from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import { misuse, RondoError } from '../../errors.ts'

export interface IngressOptions {
  readonly addresses: readonly string[]
  readonly headers?: Readonly<Record<string, string>>
  /** How long to retry when Restate cannot be reached. */
  readonly retryMs: number
  /** How long one attempt may take. */
  readonly attemptMs: number
}

/** Calls at a time to one address; the others wait. A Restate node runs 1000 at a time, for all processes. */
const MAX_CALLS = 64

/** What one HTTP request got. */
interface Reply {
  readonly status: number
  readonly body: string
}

export interface Ingress {
  /** Calls a handler; `once` if it must not run twice. */
  call(path: readonly string[], input: unknown, once: boolean): Promise<unknown>
  /** One request to any of the addresses, with retries; resolves whatever the status below 500 is. */
  request(method: 'GET' | 'POST', path: string, body?: unknown): Promise<Reply>
  close(): void
}

export function createIngress({ addresses, headers = {}, retryMs, attemptMs }: IngressOptions): Ingress {
  const bases = addresses.map(toBase)
  const pool = { keepAlive: true, maxSockets: MAX_CALLS }
  const agents = { 'http:': new HttpAgent(pool), 'https:': new HttpsAgent(pool) }
  const running = new Set<ClientRequest>()
  let preferred = 0
  let closed = false

  const attempt = (
    base: URL,
    method: string,
    path: string,
    body: string | undefined,
    extra: Readonly<Record<string, string>>,
  ): Promise<Reply> =>
    new Promise((resolve, reject) => {
      const isPlain = base.protocol === 'http:'
      const start = isPlain ? httpRequest : httpsRequest
      const url = new URL(`${base.pathname.replace(/\/$/, '')}${path}`, base)
      const type = body === undefined ? {} : { 'Content-Type': 'application/json' }
      const length = body === undefined ? {} : { 'Content-Length': String(Buffer.byteLength(body)) }
      const options = {
        method,
        agent: isPlain ? agents['http:'] : agents['https:'],
        headers: { Accept: 'application/json', ...headers, ...extra, ...type, ...length },
      }
      const request = start(url, options, (response) => readReply(response).then(resolve, reject))
      running.add(request)
      let timer: NodeJS.Timeout | undefined
      // The time begins when the request is sent, not while it waits for a connection.
      request.on('socket', () => {
        const expire = () => request.destroy(new Error('Restate did not answer in time'))
        timer = setTimeout(expire, attemptMs)
      })
      request.on('error', reject)
      request.on('close', () => {
        clearTimeout(timer)
        running.delete(request)
      })
      request.end(body)
    })

  const retried = async (
    method: string,
    path: string,
    body: string | undefined,
    extra: Readonly<Record<string, string>> = {},
  ): Promise<Reply> => {
    const until = performance.now() + retryMs
    for (let tries = 0; ; tries++) {
      if (closed) throw misuse('This store is closed')
      const used = preferred
      let failure: unknown
      try {
        const reply = await attempt(bases[used] as URL, method, path, body, extra)
        if (!isTransient(reply)) return reply
        failure = new Error(`Restate answered with status ${reply.status}: ${reply.body.slice(0, 300)}`)
      } catch (error) {
        failure = error
      }
      if (preferred === used) preferred = (used + 1) % bases.length
      if (closed || performance.now() > until) throw unreachable(addresses, failure)
      await new Promise((resolve) => setTimeout(resolve, pause(tries)))
    }
  }

  return {
    async call(path, input, once) {
      const key: Record<string, string> = once
        ? { 'idempotency-key': randomBytes(16).toString('base64url') }
        : {}
      const target = `/${path.map(encodeURIComponent).join('/')}`
      const { status, body } = await retried('POST', target, JSON.stringify(input), key)
      if (status >= 300) throw new RondoError('STORE_UNAVAILABLE', explain(path, status, body))
      return body === '' ? undefined : JSON.parse(body)
    },
    request: (method, path, body) =>
      retried(method, path, body === undefined ? undefined : JSON.stringify(body)),
    close() {
      closed = true
      for (const request of running) request.destroy(new Error('This store was closed'))
      for (const agent of Object.values(agents)) agent.destroy()
    },
  }
}

function toBase(address: string): URL {
  const url = URL.canParse(address) ? new URL(address) : undefined
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:')
    throw misuse(`The address of Restate must be an http:// or https:// URL; got ${JSON.stringify(address)}`)
  return url
}

async function readReply(response: IncomingMessage): Promise<Reply> {
  const pieces: Buffer[] = []
  for await (const piece of response) pieces.push(piece as Buffer)
  return { status: response.statusCode ?? 0, body: Buffer.concat(pieces).toString() }
}

/** 404: a service that was registered a moment ago is not known on every node yet. */
function isTransient({ status }: Reply): boolean {
  return status >= 500 || status === 404 || status === 429 || status === 408
}

/** 10, 20, 40 … 500 ms, with jitter of a half. */
const pause = (tries: number): number => Math.min(10 * 2 ** tries, 500) * (0.5 + Math.random())

function unreachable(addresses: readonly string[], cause: unknown): RondoError {
  const reason = cause instanceof Error ? cause.message : String(cause)
  const message = `Restate at ${addresses.join(', ')} did not answer a call: ${reason}. Check the address, that the server runs, and that the endpoint of a worker is registered`
  return new RondoError('STORE_UNAVAILABLE', message, { cause })
}

function explain([service]: readonly string[], status: number, body: string): string {
  if (status === 401 || status === 403)
    return `Restate refused the call with status ${status}. Set the option headers to what its ingress expects`
  return `Restate answered a call of ${service} with status ${status}: ${body.slice(0, 300)}`
}
