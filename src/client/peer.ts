/**
 * One server as seen from here: sends a call in its dialect, waits in time, gives what was received. Knows nothing of
 * rounds.
 *
 * 1. Every request has an id that this connection never used before (C3). 2. Every request says who asks and what we
 * can be asked. 3. Notifications reach only the request they belong to. 4. Callers' callbacks cannot break a request.
 */

import { RondoError } from '../errors.ts'
import { guard } from '../lib/guard.ts'
import { isRecord } from '../lib/is-record.ts'
import type { Call, Envelope, RequestId } from '../protocol/call.ts'
import type { ParamHeader } from '../protocol/param-header.ts'
import type { Notice, Received } from '../protocol/received.ts'
import { type ClientCapabilities, LOG_LEVELS, type LogLevel } from '../protocol/wire.ts'
import { type Clock, sleep } from './clock.ts'
import type { Dialect } from './dialect.ts'
import { type Leg, openLeg } from './leg.ts'
import type { Limits } from './limits.ts'
import { type HeaderSource, requestHeaders } from './request-headers.ts'
import type { Asker } from './session/inbox.ts'
import type { Session } from './session/session.ts'
import type { AnswerHead, Outgoing, Transport } from './transport/transport.ts'
import { createTurnBuffer } from './transport/turn-buffer.ts'

type Body<C> = C extends Call ? Omit<C, keyof Envelope> : never
/** A call without its envelope. */
type CallBody = Body<Call>

export interface SendOptions {
  readonly signal?: AbortSignal
  readonly timeout?: number
  readonly deadlineAt?: number
  readonly capabilities?: ClientCapabilities
  readonly mirrored?: readonly ParamHeader[]
  /** Asks the server for log messages from this level on. */
  readonly logLevel?: LogLevel
  /** Asks the server for progress. */
  readonly progress?: boolean
  readonly trace?: Readonly<Record<string, string>>
  readonly endless?: boolean
  readonly onNotice?: (notice: Notice) => unknown
  /** Has a question answered that an older server sends while it works on the request. */
  readonly onQuestion?: Asker
  /** Whether the deadline goes on while somebody is asked. */
  readonly countHumanTime?: boolean
  readonly onHead?: (head: AnswerHead) => void
}

export interface ClientInfo {
  readonly name: string
  readonly version: string
  readonly title?: string
}

export interface PeerOptions {
  readonly transport: Transport
  readonly clock: Clock
  readonly limits: Limits
  readonly info: ClientInfo
  /** Sent with every HTTP request, for authentication. */
  readonly headers?: HeaderSource
  readonly onWarning: (text: string) => void
}

export interface Peer extends PeerOptions {
  dialect: Dialect
  /** Fires when this client was closed. */
  readonly closed: AbortSignal
  transport: Transport
  /** With servers of an older era. */
  session?: Session
  /** An id that was never used on this connection. */
  nextId(): number
  send(body: CallBody, options?: SendOptions): Promise<Received>
  close(): Promise<void>
}

export function createPeer(options: PeerOptions, dialect: Dialect): Peer {
  const legs = new Set<Leg>()
  let lastId = 0
  const closing = new AbortController()
  const peer: Peer = {
    ...options,
    dialect,
    closed: closing.signal,
    nextId() {
      lastId += 1
      return lastId
    },
    async send(body, sending = {}) {
      closing.signal.throwIfAborted()
      if (peer.session && body.kind === 'listen') return peer.session.listen(body.filter, sending)
      const { timeout = options.limits.timeout, deadlineAt, countHumanTime } = sending
      const times = { timeout, deadlineAt, countHumanTime }
      const leg = openLeg(options.clock, times, sending.signal)
      legs.add(leg)
      try {
        for (let attempt = 0; ; attempt++) {
          try {
            const id = peer.dialect.legId?.(body) ?? peer.nextId()
            return await exchange(peer, envelop(peer, body, id, sending), leg, sending)
          } catch (error) {
            await comeBackLater(peer, error, attempt, leg.signal)
          }
        }
      } finally {
        legs.delete(leg)
        leg.end()
      }
    },
    async close() {
      closing.abort(new RondoError('PEER_GONE', 'This client was closed'))
      for (const leg of legs) leg.abort(closing.signal.reason)
      await peer.session?.close()
      await peer.transport.close()
    },
  }
  return peer
}

const MAX_BUSY = 3
const LONGEST_WAIT_MS = 10_000

/** Waits as long as a busy server asked for; throws every other error. Such a server has done nothing yet. */
async function comeBackLater(
  peer: Peer,
  error: unknown,
  attempt: number,
  signal: AbortSignal,
): Promise<void> {
  if (!(error instanceof RondoError) || error.code !== 'PEER_BUSY' || attempt >= MAX_BUSY) throw error
  const wait = isRecord(error.data) ? error.data.retryAfterMs : undefined
  if (typeof wait !== 'number' || wait > LONGEST_WAIT_MS) throw error
  await sleep(peer.clock, wait, signal)
}

function envelop(peer: Peer, body: CallBody, id: RequestId, sending: SendOptions): Call {
  return {
    ...body,
    id,
    protocolVersion: peer.dialect.version,
    capabilities: sending.capabilities ?? {},
    clientInfo: peer.info,
    ...(sending.logLevel && { logLevel: sending.logLevel }),
    ...(sending.progress && { progressToken: id }),
    ...(sending.trace && { trace: sending.trace }),
  }
}

async function exchange(peer: Peer, call: Call, leg: Leg, sending: SendOptions): Promise<Received> {
  const { dialect, transport, limits } = peer
  const { body, headers } = dialect.encodeRequest(call, sending.mirrored)
  const onNotification = (notification: unknown) => notify(peer, call, leg, sending, notification)
  const outgoing: Outgoing = {
    id: call.id,
    body,
    headers: peer.session ? headers : await requestHeaders(headers, peer.headers),
    signal: leg.signal,
    maxBytes: limits.maxResponseBytes,
    endless: sending.endless,
    repeatable: !(call.kind === 'flow' && call.method === 'tools/call'),
    cancel: dialect.encodeCancel(call.id),
    turns: dialect.turns && createTurnBuffer(),
    onNotification,
    onHead: sending.onHead,
  }
  const { onQuestion } = sending
  const message = peer.session
    ? await peer.session.exchange(outgoing, {
        leg,
        task: call.kind === 'task' ? call.taskId : undefined,
        onQuestion,
        onNotification,
        logLevel: call.logLevel,
      })
    : await transport.exchange(outgoing)
  const decoded = dialect.decodeResponse(call, message)
  if (decoded.kind !== 'invalid') return decoded
  throw new RondoError(
    'PEER_ANSWER',
    `The answer to ${dialect.methodOf(call)} is not valid: ${decoded.problem}`,
  )
}

function notify(peer: Peer, call: Call, leg: Leg, sending: SendOptions, message: unknown): void {
  const notice = peer.dialect.decodeNotification(message)
  if (notice === undefined) return
  if (notice.kind === 'progress') {
    if (notice.token !== call.id || call.progressToken === undefined) return
    leg.touch()
  } else if (notice.kind === 'log') {
    // A session has one level for all its calls.
    if (call.logLevel === undefined) return
    if (LOG_LEVELS.indexOf(notice.level) < LOG_LEVELS.indexOf(call.logLevel)) return
  } else {
    if (call.kind !== 'listen' || peer.dialect.subscriptionOf(message) !== call.id) return
    leg.relax()
  }
  void guard(
    () => sending.onNotice?.(notice),
    (error) => peer.onWarning(`A callback for ${notice.kind} threw: ${String(error)}`),
  )
}
