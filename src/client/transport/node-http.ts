/**
 * HTTP on Node, without `fetch`: half the CPU of a call. One keep-alive agent per transport; redirects are not followed,
 * since they would carry credentials to whoever is named there.
 */

import {
  type ClientRequest,
  Agent as HttpAgent,
  request as httpRequest,
  type IncomingMessage,
} from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import { RondoError } from '../../errors.ts'
import { type AnswerReader, createAnswerReader } from './answer-reader.ts'
import type { AnswerHead, Outgoing, Transport } from './transport.ts'

/** Idle sockets are given up before a Node server does so after 5 s: a request must not meet a socket that just closes. */
const IDLE_MS = 4_000
/** How long a stream may stay open after its response, before the socket is given up. */
const LINGER_MS = 1_000

export function createNodeHttpTransport(url: URL): Transport {
  const secure = url.protocol === 'https:'
  const agent = new (secure ? HttpsAgent : HttpAgent)({ keepAlive: true, timeout: IDLE_MS })
  const where = {
    agent,
    hostname: url.hostname.replace(/^\[|\]$/g, ''),
    ...(url.port !== '' && { port: url.port }),
    path: url.pathname + url.search,
  }
  const begin = (outgoing: Outgoing): ClientRequest => {
    const { verb: method = 'POST', body } = outgoing
    const length = method === 'POST' && { 'Content-Length': Buffer.byteLength(body) }
    const how = { ...where, method, headers: { ...outgoing.headers, ...length } }
    return secure ? httpsRequest(how) : httpRequest(how)
  }
  return {
    kind: 'http',
    target: `${url.origin}${url.pathname}`,
    exchange: (outgoing) => post(begin, outgoing),
    async close() {
      agent.destroy()
    },
  }
}

function post(
  begin: (outgoing: Outgoing) => ClientRequest,
  outgoing: Outgoing,
  again = true,
): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const { signal } = outgoing
    if (signal.aborted) return reject(signal.reason)
    const request = begin(outgoing)
    const abort = () => request.destroy()
    const fail = (error: unknown) => {
      signal.removeEventListener('abort', abort)
      reject(signal.aborted ? signal.reason : toRondoError(error))
      request.destroy()
    }
    signal.addEventListener('abort', abort)
    request.on('error', (error: NodeJS.ErrnoException) => {
      // An idle socket that the server closed just now: nothing was read from it, but it may have been written to.
      const stale = request.reusedSocket && (error.code === 'ECONNRESET' || error.code === 'EPIPE')
      if (stale && again && outgoing.repeatable && !signal.aborted) {
        signal.removeEventListener('abort', abort)
        resolve(post(begin, outgoing, false))
      } else fail(error)
    })
    request.on('response', (response) => {
      readResponse(response, outgoing, fail, (answer) => {
        signal.removeEventListener('abort', abort)
        resolve(answer)
      })
    })
    // A server that switches protocols closes the request without a response and without an error.
    request.on('close', () => fail(new RondoError('PEER_GONE', 'The request was closed before its answer')))
    request.end(outgoing.body === '' ? undefined : outgoing.body)
  })
}

/** Nothing thrown here or in what it calls leaves it: an event listener has no caller, so it would end the process. */
function readResponse(
  response: IncomingMessage,
  outgoing: Outgoing,
  fail: (error: unknown) => void,
  done: (answer: unknown) => void,
): void {
  let reader: AnswerReader | undefined
  let over = false
  const step = (run: () => void): void => {
    if (over) return
    try {
      run()
      if (reader?.answer === undefined) return
      over = true
      done(reader.answer)
    } catch (error) {
      over = true
      fail(error)
    }
  }
  const lose = () =>
    step(() => {
      throw new RondoError('PEER_GONE', 'The connection was lost before the answer was complete')
    })
  response.on('error', lose)
  response.on('close', lose)
  response.on('data', (chunk: Buffer) => {
    if (over) return
    step(() => reader?.push(chunk))
    if (over) cutOffIfOpen(response)
  })
  response.on('end', () => step(() => reader?.end()))
  step(() => {
    reader = createAnswerReader(headOf(response), outgoing)
  })
  if (over) cutOffIfOpen(response)
}

function headOf({ headers, statusCode = 0 }: IncomingMessage): AnswerHead {
  return {
    status: statusCode,
    contentType: headers['content-type'],
    challenge: headers['www-authenticate'],
    retryAfter: headers['retry-after'],
    session: [headers['mcp-session-id']].flat()[0],
  }
}

/** The socket goes back to the agent when the server ends the stream; one that does not is cut off. */
function cutOffIfOpen(response: IncomingMessage): void {
  const timer = setTimeout(() => response.destroy(), LINGER_MS).unref()
  response.on('close', () => clearTimeout(timer))
}

function toRondoError(error: unknown): RondoError {
  if (error instanceof RondoError) return error
  const code = (error as NodeJS.ErrnoException | undefined)?.code
  return new RondoError('PEER_GONE', `The request failed (${code ?? 'connection lost'})`, { cause: error })
}
