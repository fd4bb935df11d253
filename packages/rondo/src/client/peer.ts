/**
 * One server as the client sees it: sends a call in the server's dialect, waits within its time, returns what was received.
 * Knows nothing of rounds.
 *
 * peer 1: Every request has an id that this connection never used before (C3).
 * peer 2: Every request says who sends it and what this client can be asked.
 * peer 3: Notifications reach only the request they belong to.
 * peer 4: A caller's callbacks cannot break a request.
 */

import { RondoError } from '../errors.ts'
import { cleanText } from '../form/clean-text.ts'
import { type Clock, sleep } from '../lib/clock.ts'
import { isRecord } from '../lib/json.ts'
import type { Call, Envelope, ListenFilter, RequestId } from '../protocol/call.ts'
import type { ParamHeader } from '../protocol/common/headers.ts'
import type { Observer, OperationEnd } from '../protocol/observer.ts'
import type { Notice, Received, WireError } from '../protocol/reply.ts'
import { type ClientCapabilities, type Discovery, LOG_LEVELS, type LogLevel } from '../protocol/wire.ts'
import type { Dialect } from './dialect.ts'
import type { Limits } from './flow-options.ts'
import type { Asker, Flight } from './session/inbox.ts'
import { guard, type Outgoing, type ResponseHead, type Transport } from './transport/transport.ts'

type Body<C> = C extends Call ? Omit<C, keyof Envelope> : never
/** A call without its envelope. */
type CallBody = Body<Call>

export interface SendOptions {
  readonly signal?: AbortSignal
  readonly timeoutMs?: number
  readonly deadlineAt?: number
  readonly capabilities?: ClientCapabilities
  readonly mirrored?: readonly ParamHeader[]
  /** Asks the server for log messages of this level and above. */
  readonly logLevel?: LogLevel
  /** Asks the server for progress. */
  readonly progress?: boolean
  readonly trace?: Readonly<Record<string, string>>
  /** Sent in `_meta`, beside the keys of the protocol. */
  readonly meta?: Readonly<Record<string, unknown>>
  readonly endless?: boolean
  readonly onNotice?: (notice: Notice) => unknown
  /** Has a question answered that an older server sends while it works on the request. */
  readonly onQuestion?: Asker
  /** Whether the deadline counts the time in which somebody is asked. */
  readonly countHumanTime?: boolean
  readonly onHead?: (head: ResponseHead) => void
}

export interface ClientInfo {
  readonly name: string
  readonly version: string
  readonly title?: string
}

/** Headers for every HTTP request; a function is called before each. */
export type HeaderSource =
  | Readonly<Record<string, string>>
  | (() => Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>)

interface PeerOptions {
  readonly transport: Transport
  readonly clock: Clock
  readonly limits: Limits
  readonly info: ClientInfo
  /** Sent with every HTTP request, for authentication. */
  readonly headers?: HeaderSource
  readonly onWarning: (text: string) => void
  /** Telemetry. It never throws. */
  readonly observer?: Observer
}

/** How requests reach the server: each on its own, or in a session. */
export interface PeerChannel {
  /** Sends a request and returns its response. */
  exchange(outgoing: Outgoing, flight: Flight & { readonly logLevel?: LogLevel }): Promise<unknown>
  /** Reports changes until the signal is aborted or some may have been missed. Absent where a subscription is a request. */
  listen?(filter: ListenFilter, options: Pick<SendOptions, 'signal' | 'onNotice'>): Promise<never>
  /** Answers questions of the flight's task on whatever stream they arrive. Returns the function that stops it. */
  follow?(flight: Flight): () => void
  /** Sends a request of this session that is no call, and returns its result. */
  ask?(
    method: string,
    params: Readonly<Record<string, unknown>>,
    options: Pick<SendOptions, 'signal' | 'timeoutMs'>,
  ): Promise<Readonly<Record<string, unknown>>>
  /** What the server said of itself in the handshake. */
  readonly discovery?: Discovery
  close(): Promise<void>
}

export interface Peer extends PeerOptions {
  dialect: Dialect
  transport: Transport
  channel: PeerChannel
  /** Aborted when this client is closed. */
  readonly closed: AbortSignal
  /** Returns an id that was never used on this connection. */
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
    channel: {
      exchange: async (outgoing) =>
        peer.transport.exchange({
          ...outgoing,
          headers: await requestHeaders(outgoing.headers, options.headers),
        }),
      async close() {},
    },
    closed: closing.signal,
    nextId() {
      lastId += 1
      return lastId
    },
    async send(body, sending = {}) {
      closing.signal.throwIfAborted()
      if (body.kind === 'listen' && peer.channel.listen) return peer.channel.listen(body.filter, sending)
      const { timeoutMs = options.limits.timeoutMs, deadlineAt, countHumanTime } = sending
      const times = { timeoutMs, deadlineAt, countHumanTime }
      const leg = openLeg(options.clock, times, sending.signal)
      legs.add(leg)
      try {
        for (let attempt = 0; ; attempt++) {
          try {
            const id = peer.dialect.legId?.(body) ?? peer.nextId()
            return await observed(peer, envelop(peer, body, id, sending), leg, sending)
          } catch (error) {
            await waitWhileBusy(peer, error, attempt, leg.signal)
          }
        }
      } finally {
        legs.delete(leg)
        leg.end()
      }
    },
    async close() {
      closing.abort(new RondoError('PEER_UNREACHABLE', 'This client was closed'))
      for (const leg of legs) leg.abort(closing.signal.reason)
      await peer.channel.close()
      await peer.transport.close()
    },
  }
  return peer
}

const MAX_BUSY = 3
const LONGEST_WAIT_MS = 10_000

/** Waits as long as a busy server asked, which has done nothing yet. Throws every other error. */
async function waitWhileBusy(
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
    ...(sending.meta && { meta: sending.meta }),
  }
}

/** Sends a request inside its span, with its trace context. */
async function observed(peer: Peer, call: Call, leg: Leg, sending: SendOptions): Promise<Received> {
  const { observer, clock, dialect } = peer
  if (!observer?.begin) return exchange(peer, call, leg, sending)
  const flow = call.kind === 'flow' && call.method !== 'resources/read' ? { target: call.target } : {}
  const operation = {
    kind: 'client' as const,
    method: dialect.methodOf(call),
    requestId: call.id,
    protocolVersion: call.protocolVersion,
    began: clock.now(),
    ...flow,
  }
  const one = observer.begin(operation)
  if (!one) return exchange(peer, call, leg, sending)
  const traced = { ...call, trace: { ...call.trace, ...one.trace } }
  const { onQuestion } = sending
  // Questions arrive on streams that were opened in other contexts.
  const inside: SendOptions = onQuestion
    ? { ...sending, onQuestion: (question, signal) => one.run(() => onQuestion(question, signal)) }
    : sending
  try {
    const received = await one.run(() => exchange(peer, traced, leg, inside))
    one.end(endOf(received))
    return received.kind === 'input_required' ? { ...received, span: one.span } : received
  } catch (error) {
    one.end({ code: error instanceof RondoError ? error.code : 'PEER_UNREACHABLE' })
    throw error
  }
}

function endOf(received: Received): OperationEnd {
  if (received.kind === 'error') return { code: 'PEER_ERROR', rpc: received.error.code }
  if (received.kind === 'task') return { outcome: 'task', task: received.task.taskId }
  if (received.kind === 'input_required') return { outcome: 'input_required' }
  return { outcome: received.result.isError === true ? 'tool_error' : 'complete' }
}

async function exchange(peer: Peer, call: Call, leg: Leg, sending: SendOptions): Promise<Received> {
  const { dialect, limits } = peer
  const { body, headers } = dialect.encodeRequest(call, sending.mirrored)
  const onNotification = (notification: unknown) => notify(peer, call, leg, sending, notification)
  const outgoing: Outgoing = {
    id: call.id,
    body,
    headers,
    signal: leg.signal,
    maxBytes: limits.maxResponseBytes,
    endless: sending.endless,
    repeatable: !(call.kind === 'flow' && call.method === 'tools/call'),
    poll: call.kind === 'task' && call.action === 'get',
    cancel: dialect.encodeCancel(call.id),
    buffer: dialect.createBuffer?.(limits.maxQuestionSize + limits.maxStateBytes),
    onNotification,
    onHead: sending.onHead,
    pause: leg.pause,
  }
  const message = await peer.channel.exchange(outgoing, {
    leg,
    task: call.kind === 'task' ? call.taskId : undefined,
    onQuestion: sending.onQuestion,
    onNotification,
    logLevel: call.logLevel,
  })
  const decoded = dialect.decodeResponse(call, message)
  if (decoded.kind !== 'invalid') return decoded
  throw new RondoError(
    'PEER_BAD_RESPONSE',
    `The response to ${dialect.methodOf(call)} is not valid: ${cleanText(decoded.problem, MAX_MESSAGE)}`,
  )
}

function notify(peer: Peer, call: Call, leg: Leg, sending: SendOptions, message: unknown): void {
  const notice = peer.dialect.decodeNotification(message)
  if (notice === undefined) return
  if (notice.kind === 'progress') {
    if (notice.token !== call.id || call.progressToken === undefined) return
    leg.touch()
  } else if (notice.kind === 'log') {
    // In a session all calls share one level.
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

interface LegTimes {
  readonly timeoutMs: number
  /** When the whole call must be over. */
  readonly deadlineAt?: number
  /** Whether the deadline counts the time in which somebody is asked. */
  readonly countHumanTime?: boolean
}

/** The time of one request. Its signal is aborted when the request or the whole call takes too long, or the caller aborts. */
export interface Leg {
  readonly signal: AbortSignal
  /** Restarts the request's own timeout, never the deadline: the server reported progress. */
  touch(): void
  /** Stops the clock while somebody is asked. Returns the function that starts it again. */
  pause(): () => void
  /** Ends the time limit: a subscription was accepted. */
  relax(): void
  abort(reason: unknown): void
  /** Releases the timer; the request is over. */
  end(): void
}

export function openLeg(clock: Clock, times: LegTimes, outer?: AbortSignal): Leg {
  const { timeoutMs, countHumanTime = false } = times
  let deadlineAt = times.deadlineAt ?? Number.POSITIVE_INFINITY
  let pauses = 0
  let pausedAt = 0
  let over = false
  const controller = new AbortController()
  // Many legs may share one signal, and Node warns about more than ten listeners.
  const outside = outer && AbortSignal.any([outer])
  const giveUp = () => controller.abort(outside?.reason)
  let stop = () => {}
  const touch = () => {
    stop()
    if (over || (pauses > 0 && !countHumanTime)) return
    const left = Math.max(0, deadlineAt - clock.now())
    const allowed = pauses > 0 ? Number.POSITIVE_INFINITY : timeoutMs
    // Decided now, since timers may fire slightly early.
    const reason = () =>
      left <= allowed
        ? new RondoError('LIMIT_CLIENT_DEADLINE')
        : new RondoError('LIMIT_CLIENT_TIMEOUT', `The server did not respond within ${timeoutMs} ms`)
    const ms = Math.min(allowed, left)
    if (ms < Number.POSITIVE_INFINITY) stop = clock.after(ms, () => controller.abort(reason()))
  }
  const resume = () => {
    pauses -= 1
    if (pauses === 0 && !countHumanTime) deadlineAt += clock.now() - pausedAt
    if (!controller.signal.aborted) touch()
  }
  if (outside?.aborted) giveUp()
  else {
    outside?.addEventListener('abort', giveUp, { once: true })
    touch()
  }
  return {
    signal: controller.signal,
    touch,
    pause() {
      if (pauses === 0) pausedAt = clock.now()
      pauses += 1
      touch()
      return resume
    },
    relax: () => stop(),
    abort: (reason) => controller.abort(reason),
    end() {
      over = true
      stop()
      outside?.removeEventListener('abort', giveUp)
    },
  }
}

/** The protocol's own headers win over the caller's, in any spelling. */
export async function requestHeaders(
  own: Readonly<Record<string, string>>,
  source: HeaderSource | undefined,
): Promise<Readonly<Record<string, string>>> {
  if (source === undefined) return own
  const taken = new Set(Object.keys(own).map((name) => name.toLowerCase()))
  const others = typeof source === 'function' ? await source() : source
  const free = Object.entries(others).filter(([name]) => !taken.has(name.toLowerCase()))
  return { ...own, ...Object.fromEntries(free) }
}

/** Characters of a server's own words in a message of ours. */
export const MAX_MESSAGE = 2_000

/**
 * The server responded with a JSON-RPC error, which `peer` holds unchanged.
 *
 * @example
 * ```ts
 * try {
 *   await client.callTool('book')
 * } catch (error) {
 *   if (error instanceof PeerError) console.error(error.peer.code, error.peer.message)
 *   throw error
 * }
 * ```
 */
export class PeerError extends RondoError {
  readonly peer: WireError

  constructor(peer: WireError) {
    super('PEER_ERROR', `${cleanText(peer.message, MAX_MESSAGE, 'many')} (${peer.code})`, { data: peer.data })
    this.name = 'PeerError'
    this.peer = peer
  }
}
