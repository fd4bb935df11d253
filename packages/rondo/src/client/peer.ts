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
import type { Call, RequestId } from '../protocol/call.ts'
import { encodeCancel } from '../protocol/common/json-rpc.ts'
import { decodeNotification, subscriptionOf } from '../protocol/common/received.ts'
import type { OperationEnd } from '../protocol/observer.ts'
import type { Received, WireError } from '../protocol/reply.ts'
import { LOG_LEVELS } from '../protocol/wire.ts'
import type { CallBody, Dialect, HeaderSource, Leg, Peer, PeerOptions, SendOptions } from './port.ts'
import { guard, type Outgoing } from './transport/transport.ts'

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
  if (typeof wait !== 'number' || !(wait >= 0 && wait <= LONGEST_WAIT_MS)) throw error
  // Clients that were refused together must not come back together.
  const ms = Math.ceil(wait * (1 + JITTER * peer.random()))
  peer.onWarning(`The server is busy; the request is sent again in ${ms} ms`)
  await sleep(peer.clock, ms, signal)
}

const JITTER = 0.25

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
    cancel: encodeCancel(call.id),
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
  const busy = decoded.kind === 'error' && busyMs(decoded.error)
  if (busy !== false && busy !== undefined)
    throw new RondoError('PEER_BUSY', undefined, { data: { retryAfterMs: busy } })
  if (decoded.kind !== 'invalid') return decoded
  throw new RondoError(
    'PEER_BAD_RESPONSE',
    `The response to ${dialect.methodOf(call)} is not valid: ${cleanText(decoded.problem, MAX_MESSAGE)}`,
  )
}

/** `RateLimited` of SEP-3304: nothing was done, and the error says when to try again. Over stdio there is no status 429. */
const RATE_LIMITED = -32023

function busyMs({ code, data }: WireError): number | undefined {
  const wait = code === RATE_LIMITED && isRecord(data) ? data.retryAfterMs : undefined
  return typeof wait === 'number' ? wait : undefined
}

function notify(peer: Peer, call: Call, leg: Leg, sending: SendOptions, message: unknown): void {
  const notice = decodeNotification(message)
  if (notice === undefined) return
  if (notice.kind === 'progress') {
    if (notice.token !== call.id || call.progressToken === undefined) return
    leg.touch()
  } else if (notice.kind === 'log') {
    // In a session all calls share one level.
    if (call.logLevel === undefined) return
    if (LOG_LEVELS.indexOf(notice.level) < LOG_LEVELS.indexOf(call.logLevel)) return
  } else {
    if (call.kind !== 'listen' || subscriptionOf(message) !== call.id) return
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
