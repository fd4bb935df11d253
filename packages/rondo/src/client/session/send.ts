/** Requests and streams of a session with an older server: sending, resuming broken streams, the stream of the session. */

import { RondoError } from '../../errors.ts'
import { type Clock, sleep } from '../../lib/clock.ts'
import { isRecord } from '../../lib/json.ts'
import type { RequestId } from '../../protocol/call.ts'
import { encodeMessage } from '../../protocol/common/json-rpc.ts'
import { decodeOutcome, headersOf } from '../../protocol/rev-2025-11-25/client.ts'
import type { Limits } from '../limits.ts'
import { openLeg, PeerError, requestHeaders } from '../peer.ts'
import type { Flight, HeaderSource } from '../port.ts'
import type { Outgoing, ResponseHead, StreamMark, Transport } from '../transport/transport.ts'
import type { Inbox } from './inbox.ts'

type Fields = Readonly<Record<string, unknown>>

export interface SessionLinkOptions {
  readonly transport: Transport
  readonly clock: Clock
  readonly limits: Limits
  readonly headers?: HeaderSource
  readonly onWarning: (text: string) => void
}

export interface SessionLink extends SessionLinkOptions {
  version: string
  /** `Mcp-Session-Id`, where the server sent one. */
  id: string | undefined
  /** Counts the sessions on this link, since a server may drop one. */
  epoch: number
  /** Aborted when the client is closed. */
  readonly signal: AbortSignal
  close(): void
  headersFor(own?: Readonly<Record<string, string>>): Promise<Readonly<Record<string, string>>>
  /** Sends what has no response: a notification, a response of ours, a DELETE. */
  post(body: string, how?: Pick<Outgoing, 'verb'> & { readonly timeoutMs?: number }): Promise<void>
}

const SESSION_ID = /^[\x21-\x7e]{1,1024}$/

export function createLink(options: SessionLinkOptions, version: string): SessionLink {
  const closing = new AbortController()
  const link: SessionLink = {
    ...options,
    version,
    id: undefined,
    epoch: 0,
    signal: closing.signal,
    close: () => closing.abort(new RondoError('PEER_UNREACHABLE', 'This client was closed')),
    headersFor: (own = headersOf(link.version)) =>
      requestHeaders(link.id === undefined ? own : { ...own, 'Mcp-Session-Id': link.id }, options.headers),
    async post(body, { verb, timeoutMs = options.limits.timeoutMs } = {}) {
      const leg = openLeg(options.clock, { timeoutMs })
      try {
        await options.transport.exchange({
          id: 'post',
          body,
          verb,
          oneWay: true,
          headers: await link.headersFor(),
          signal: leg.signal,
          maxBytes: options.limits.maxResponseBytes,
          pause: leg.pause,
        })
      } finally {
        leg.end()
      }
    },
  }
  return link
}

export function sessionIn({ session }: ResponseHead): string | undefined {
  if (session === null || session === undefined) return undefined
  if (SESSION_ID.test(session)) return session
  throw new RondoError('PEER_BAD_RESPONSE', 'The server sent a session id that is not valid in a header')
}

/** Instead of a response: the server does not know the session and has not handled the request. */
export const FORGOTTEN: unique symbol = Symbol('forgotten')

/** Sends a request and returns its response unchecked, or FORGOTTEN. */
export async function sendOnce(
  link: SessionLink,
  inbox: Inbox,
  outgoing: Outgoing,
  flight: Flight,
): Promise<unknown> {
  const had = link.id
  let status = 0
  /** Ends the other streams of this call once one of them has the response. */
  const over = new AbortController()
  const reading: Outgoing = {
    ...outgoing,
    signal: AbortSignal.any([outgoing.signal, over.signal]),
    onHead: undefined,
    onNotification: link.transport.listen
      ? flight.onNotification
      : (notification) => inbox.handleNotification(notification, [asked]),
    onRequest: (question) => inbox.handleRequest(question, asked),
  }
  let continued = (_message: unknown): void => {}
  const elsewhere = new Promise<unknown>((resolve) => {
    continued = resolve
  })
  const asked: Flight = link.transport.listen
    ? flight
    : {
        ...flight,
        async answer(body, hasState) {
          const post = async (): Promise<void> => {
            let code = 0
            const message = await followStream(link, {
              ...reading,
              body,
              headers: await link.headersFor(),
              oneWay: !hasState,
              mayAcknowledge: true,
              repeatable: false,
              buffer: undefined,
              onHead(head) {
                code = head.status
              },
            })
            if (code >= 400)
              throw new RondoError('PEER_HTTP', `HTTP status ${code}`, { data: { status: code } })
            if (isRecord(message) && message.id === outgoing.id) continued(message)
          }
          // The call has ended because nobody answers: the server is told all the same.
          if (reading.signal.aborted) return link.post(body)
          try {
            await whileBusy(link, reading.signal, post, !hasState)
          } catch (error) {
            if (!reading.signal.aborted) throw error
          }
        },
      }
  const leave = inbox.enter(asked)
  // In a session, hanging up does not cancel. The transport of a process sends the notification by itself.
  const cancel = () => {
    if (outgoing.cancel !== undefined && !link.signal.aborted) link.post(outgoing.cancel).catch(() => {})
  }
  if (link.transport.kind !== 'stdio') outgoing.signal.addEventListener('abort', cancel, { once: true })
  try {
    const here = followStream(link, {
      ...reading,
      headers: await link.headersFor(outgoing.headers),
      onHead(head) {
        status = head.status
      },
    })
    const message = await Promise.race([here, elsewhere])
    return had !== undefined && status === 404 && !isUnknownMethod(message) ? FORGOTTEN : message
  } catch (error) {
    const refused = error instanceof RondoError && error.code === 'PEER_HTTP' && isRecord(error.data)
    if (refused && had !== undefined && status === 404) return FORGOTTEN
    throw error
  } finally {
    outgoing.signal.removeEventListener('abort', cancel)
    leave()
    over.abort(OVER)
  }
}

const MAX_BUSY = 5

/**
 * Sends an answer again that the server could not take now: somebody gave it, and would not be asked once more. The first one
 * counts, so that an answer which may have arrived can be repeated, unless the server would continue the call twice.
 */
async function whileBusy(
  link: SessionLink,
  signal: AbortSignal,
  post: () => Promise<void>,
  isRepeatable: boolean,
): Promise<void> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await post()
    } catch (error) {
      const { code, data } = error instanceof RondoError ? error : {}
      const { status, retryAfterMs } = isRecord(data) ? data : {}
      const isBusy = code === 'PEER_BUSY' || status === 503 || (code === 'PEER_UNREACHABLE' && isRepeatable)
      if (!isBusy || attempt >= MAX_BUSY || signal.aborted) throw error
      const wait = typeof retryAfterMs === 'number' ? retryAfterMs : FIRST_WAIT_MS * 2 ** attempt
      await sleep(link.clock, Math.min(LONGEST_WAIT_MS, wait), signal)
    }
  }
}

const OVER = new RondoError('PEER_UNREACHABLE', 'The call is over')

/** The other reason for status 404. */
function isUnknownMethod(message: unknown): boolean {
  return isRecord(message) && isRecord(message.error) && message.error.code === -32601
}

/** Sends a request of the session itself and returns its result. */
export async function request(
  link: SessionLink,
  inbox: Inbox,
  id: RequestId,
  method: string,
  params: Fields,
): Promise<Fields> {
  const leg = openLeg(link.clock, { timeoutMs: link.limits.timeoutMs }, link.signal)
  try {
    const message = await sendOnce(
      link,
      inbox,
      {
        id,
        body: encodeMessage(id, method, params),
        headers: headersOf(link.version),
        signal: leg.signal,
        maxBytes: link.limits.maxResponseBytes,
        repeatable: true,
        pause: leg.pause,
      },
      { leg },
    )
    const outcome = decodeOutcome(message)
    if (outcome.kind === 'error') throw new PeerError(outcome.error)
    if (outcome.kind === 'complete') return outcome.result
    throw new RondoError('PEER_BAD_RESPONSE', `The response to ${method} is not valid`)
  } finally {
    leg.end()
  }
}

const MAX_FAILURES = 5
const MAX_ATTEMPTS = 100
const FIRST_WAIT_MS = 250
const LONGEST_WAIT_MS = 30_000

/**
 * Sends a request and reads its stream to the response. A stream that breaks, or that the server closes before, is resumed
 * if its events have ids, since the call continues at the server. Bounded by failed attempts, attempts, and the time.
 */
async function followStream(link: SessionLink, outgoing: Outgoing): Promise<unknown> {
  let mark: StreamMark = {}
  let failures = 0
  let firstBreak: unknown
  const watched: Outgoing = {
    ...outgoing,
    onMark(one) {
      mark = { ...mark, ...one }
      failures = 0
    },
  }
  let next = watched
  for (let attempt = 0; ; attempt++) {
    try {
      return await link.transport.exchange(next)
    } catch (error) {
      failures += 1
      const broken =
        error instanceof RondoError && error.code === 'PEER_UNREACHABLE' && !outgoing.signal.aborted
      if (!broken) throw error
      // A resumption that cannot connect must not look like a request that was never sent.
      firstBreak ??= error
      if (mark.id === undefined || failures > MAX_FAILURES || attempt >= MAX_ATTEMPTS) throw firstBreak
    }
    await sleep(link.clock, waitBefore(mark, failures), outgoing.signal)
    next = {
      ...watched,
      verb: 'GET',
      body: '',
      headers: await streamHeaders(link, mark),
      onHead: assertResumed,
    }
  }
}

/** As long as the server asks for, or with exponential backoff. */
function waitBefore({ retryMs }: StreamMark, failures: number): number {
  return Math.min(LONGEST_WAIT_MS, retryMs ?? FIRST_WAIT_MS * 2 ** Math.max(0, failures - 1))
}

async function streamHeaders(
  link: SessionLink,
  { id }: StreamMark,
): Promise<Readonly<Record<string, string>>> {
  const { 'Content-Type': _, ...headers } = await link.headersFor()
  return { ...headers, Accept: 'text/event-stream', ...(id !== undefined && { 'Last-Event-ID': id }) }
}

function assertResumed({ status }: { readonly status: number }): void {
  if (status === 200) return
  throw new RondoError('PEER_HTTP', `The stream cannot be resumed (HTTP status ${status})`, {
    data: { status },
  })
}

/** A stream that lasted this long resets the count of failures. */
const GOOD_MS = 5_000

/**
 * Keeps the stream open on which an older server sends what belongs to no call. Many servers have none (405). Resolves when
 * there is no stream, when it fails too often, or when `signal` is aborted. `onGap`: changes may have been missed.
 */
export async function keepServerStream(
  link: SessionLink,
  inbox: Inbox,
  signal: AbortSignal,
  onGap: () => void,
): Promise<void> {
  let mark: StreamMark = {}
  for (let failures = 0; failures <= MAX_FAILURES; failures++) {
    const begunAt = link.clock.now()
    try {
      await link.transport.exchange({
        id: 'stream',
        verb: 'GET',
        body: '',
        headers: await streamHeaders(link, mark),
        signal,
        maxBytes: link.limits.maxResponseBytes,
        endless: true,
        onMark(one) {
          mark = { ...mark, ...one }
        },
        onRequest: (message) => inbox.handleRequest(message),
        onNotification: (message) => inbox.handleNotification(message),
      })
      return
    } catch (error) {
      if (signal.aborted) return
      if (!(error instanceof RondoError) || error.code !== 'PEER_UNREACHABLE')
        return warnUnlessAbsent(link, error)
    }
    if (link.clock.now() - begunAt >= GOOD_MS) failures = 0
    await sleep(link.clock, waitBefore(mark, failures + 1), signal).catch(() => {})
    if (signal.aborted) return
    if (mark.id === undefined) onGap()
  }
  link.onWarning('The stream of the session broke too often and is no longer opened')
}

function warnUnlessAbsent(link: SessionLink, error: unknown): void {
  const status = error instanceof RondoError && isRecord(error.data) ? error.data.status : undefined
  if (status === 405 || status === 404 || status === 400) return
  link.onWarning(`The stream of the session failed: ${String(error)}`)
}
