/**
 * HTTP over `node:http`, which needs half the CPU time of `fetch`. One keep-alive agent per transport. Redirects are not
 * followed, since they would send credentials to another host.
 *
 * Calls and streams may last, and one may have to end before another can, so their number is not limited. Polls are brief: they
 * share a few connections, however many tasks are followed.
 */

import {
  type ClientRequest,
  Agent as HttpAgent,
  request as httpRequest,
  type IncomingMessage,
} from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import type { Duplex } from 'node:stream'
import { RondoError } from '../../errors.ts'
import { createResponseReader, type ResponseReader } from './response-reader.ts'
import type { Outgoing, ResponseHead, Transport } from './transport.ts'

/** Idle sockets are closed before a Node server closes them after 5 s, so that no request meets a closing socket. */
const IDLE_MS = 4_000
/** How long a stream may stay open after its response before its socket is destroyed. */
const LINGER_MS = 1_000
/** Sockets that connect at once. More than 511 would overflow the queue of a Node server, which then resets some of them. */
const MAX_CONNECTING = 64
/** Polls that are sent at once. */
const MAX_POLLS = 64

export function createNodeHttpTransport(url: URL): Transport {
  const secure = url.protocol === 'https:'
  const agent = createAgent(secure)
  const polls = createGate(MAX_POLLS)
  const where = {
    agent,
    hostname: url.hostname.replace(/^\[|\]$/g, ''),
    ...(url.port !== '' && { port: url.port }),
    path: url.pathname + url.search,
  }
  const begin: Begin = (outgoing, fresh) => {
    const { verb: method = 'POST', body } = outgoing
    const length = method === 'POST' && { 'Content-Length': Buffer.byteLength(body) }
    const how = {
      ...where,
      method,
      headers: { ...outgoing.headers, ...length },
      ...(fresh && { agent: false }),
    }
    return secure ? httpsRequest(how) : httpRequest(how)
  }
  return {
    kind: 'http',
    target: `${url.origin}${url.pathname}`,
    async exchange(outgoing) {
      if (outgoing.poll !== true) return post(begin, outgoing)
      await polls.enter(outgoing.signal)
      try {
        return await post(begin, outgoing)
      } finally {
        polls.leave()
      }
    },
    async close() {
      agent.destroy()
    },
  }
}

function createAgent(secure: boolean): HttpAgent {
  const agent = new (secure ? HttpsAgent : HttpAgent)({ keepAlive: true, timeout: IDLE_MS })
  const connect = agent.createConnection.bind(agent)
  const connecting = createGate(MAX_CONNECTING)
  agent.createConnection = (options, done) => {
    void connecting.enter().then(() => {
      const connected = onceOnly(connecting.leave)
      try {
        const socket = connect(options) as Duplex
        socket.once(secure ? 'secureConnect' : 'connect', connected)
        socket.once('close', connected)
        done?.(null, socket)
      } catch (error) {
        connected()
        done?.(error as Error, undefined as never)
      }
    })
    return undefined
  }
  return agent
}

interface Gate {
  /** Resolves in order of arrival, as soon as there is room. Rejects at once if whoever waits is aborted. */
  enter(signal?: AbortSignal): Promise<void>
  leave(): void
}

function createGate(room: number): Gate {
  const waiting = new Set<() => void>()
  let inside = 0
  return {
    enter(signal) {
      if (inside < room) {
        inside += 1
        return Promise.resolve()
      }
      return new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason)
        const admit = () => {
          signal?.removeEventListener('abort', abandon)
          resolve()
        }
        const abandon = () => {
          waiting.delete(admit)
          reject(signal?.reason)
        }
        waiting.add(admit)
        signal?.addEventListener('abort', abandon, { once: true })
      })
    },
    leave() {
      const [next] = waiting
      if (next === undefined) {
        inside -= 1
        return
      }
      waiting.delete(next)
      next()
    },
  }
}

function onceOnly(act: () => void): () => void {
  let done = false
  return () => {
    if (!done) act()
    done = true
  }
}

/** `fresh`: on a connection of its own. */
type Begin = (outgoing: Outgoing, fresh: boolean) => ClientRequest

function post(begin: Begin, outgoing: Outgoing, again = true): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const { signal } = outgoing
    if (signal.aborted) return reject(signal.reason)
    const request = begin(outgoing, !again)
    // Not through the request: one that has no socket yet reports nothing until it gets one.
    const abort = () => fail(signal.reason)
    const fail = (error: unknown) => {
      signal.removeEventListener('abort', abort)
      reject(signal.aborted ? signal.reason : toRondoError(error))
      request.destroy()
    }
    let hasBegun = false
    signal.addEventListener('abort', abort)
    request.on('error', (error: NodeJS.ErrnoException) => {
      // The server closed an idle socket just now. Nothing was read from it, but the request may have been sent. A response
      // that breaks off is lost: what it delivered must not be delivered again.
      const isReset = error.code === 'ECONNRESET' || error.code === 'EPIPE'
      const stale = request.reusedSocket && isReset && !hasBegun
      if (stale && again && outgoing.repeatable && !signal.aborted) {
        signal.removeEventListener('abort', abort)
        resolve(post(begin, outgoing, false))
      } else fail(error)
    })
    request.on('response', (response) => {
      hasBegun = true
      readResponse(response, outgoing, fail, (message) => {
        signal.removeEventListener('abort', abort)
        resolve(message)
      })
    })
    // A server that switches protocols closes the request with neither a response nor an error.
    request.on('close', () => {
      if (!hasBegun) fail(new RondoError('PEER_UNREACHABLE', 'The connection was closed before the response'))
    })
    request.end(outgoing.body === '' ? undefined : outgoing.body)
  })
}

/** Never throws: in an event listener an exception would end the process. */
function readResponse(
  response: IncomingMessage,
  outgoing: Outgoing,
  fail: (error: unknown) => void,
  done: (message: unknown) => void,
): void {
  let reader: ResponseReader | undefined
  let over = false
  const step = (run: () => void): void => {
    if (over) return
    try {
      run()
      if (reader?.response === undefined) return
      over = true
      done(reader.response)
    } catch (error) {
      over = true
      fail(error)
    }
  }
  const lose = () =>
    step(() => {
      throw new RondoError('PEER_UNREACHABLE', 'The connection was lost before the response was complete')
    })
  response.on('error', lose)
  response.on('close', lose)
  response.on('data', (chunk: Buffer) => {
    if (over) return
    step(() => reader?.push(chunk))
    if (over) destroyIfOpen(response)
  })
  response.on('end', () => step(() => reader?.end()))
  step(() => {
    reader = createResponseReader(headOf(response), outgoing)
  })
  if (over) destroyIfOpen(response)
}

function headOf({ headers, statusCode = 0 }: IncomingMessage): ResponseHead {
  return {
    status: statusCode,
    contentType: headers['content-type'],
    challenge: headers['www-authenticate'],
    retryAfter: headers['retry-after'],
    nonce: nonceOf(headers['dpop-nonce']),
    session: [headers['mcp-session-id']].flat()[0],
  }
}

/** The socket returns to the agent when the server ends the stream; otherwise it is destroyed after a while. */
function destroyIfOpen(response: IncomingMessage): void {
  const timer = setTimeout(() => response.destroy(), LINGER_MS).unref()
  response.on('close', () => clearTimeout(timer))
}

const UNTRUSTED =
  ': the certificate is not trusted. Set NODE_EXTRA_CA_CERTS to the file of the authority that issued it'
const HINTS: Readonly<Record<string, string>> = {
  ECONNREFUSED: ': nothing listens at this address',
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
}

function toRondoError(error: unknown): RondoError {
  if (error instanceof RondoError) return error
  const code = (error as NodeJS.ErrnoException | undefined)?.code
  const hint = HINTS[code ?? ''] ?? ''
  return new RondoError('PEER_UNREACHABLE', `The request failed (${code ?? 'connection lost'})${hint}`, {
    cause: error,
  })
}

/** Node joins repeated headers that it does not know into one string. */
function nonceOf(header: string | readonly string[] | undefined): string | undefined {
  return typeof header === 'string' ? header : header?.[0]
}
