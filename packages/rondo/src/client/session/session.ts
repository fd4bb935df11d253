/**
 * A session with a server of 2025-11-25 or older, or of the draft: handshake, requests, the server's own requests, DELETE.
 *
 * A server may drop a session (404) and has then not handled the request: a new session is opened and the request sent
 * once more. A call that was already running is lost, and fails.
 */

import { RondoError } from '../../errors.ts'
import { cleanText } from '../../form/clean-text.ts'
import { isRecord } from '../../lib/json.ts'
import type { ListenFilter, RequestId } from '../../protocol/call.ts'
import { encodeMessage } from '../../protocol/common/json-rpc.ts'
import type { Notice, WireError } from '../../protocol/reply.ts'
import {
  decodeInitialize,
  decodeOutcome,
  encodeInitialize,
  headersOf,
  type Introduction,
} from '../../protocol/rev-2025-11-25/client.ts'
import { type Discovery, type ListRootsResult, LOG_LEVELS, type LogLevel } from '../../protocol/wire.ts'
import { openLeg, PeerError, requestHeaders } from '../peer.ts'
import type { PeerChannel, SendOptions } from '../port.ts'
import { statusError } from '../transport/response-reader.ts'
import { createInbox, type Inbox } from './inbox.ts'
import {
  createLink,
  FORGOTTEN,
  keepServerStream,
  request,
  type SessionLink,
  type SessionLinkOptions,
  sendOnce,
  sessionIn,
} from './send.ts'

interface OlderSession extends Required<PeerChannel> {
  readonly version: string
}

interface Handshake extends Introduction {
  /** The versions that this client accepts. */
  readonly accepts: readonly string[]
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
  nextId(): RequestId
}

const DELETE_MS = 2_000

export async function openSession(
  options: SessionLinkOptions,
  hand: Handshake,
  roots: ListRootsResult | undefined,
): Promise<OlderSession> {
  const link = createLink(options, hand.version)
  const inbox = createInbox(link, roots)
  link.transport.listen?.((message) => {
    // The transport passes notifications to the requests in flight itself.
    if (message.id === undefined) inbox.handleNotification(message, [])
    else inbox.handleRequest(message)
  })
  return createSession(link, inbox, hand, await shakeHands(link, inbox, hand))
}

function createSession(link: SessionLink, inbox: Inbox, hand: Handshake, first: Discovery): OlderSession {
  let discovery = first
  const gaps = new Set<() => void>()
  const onGap = () => {
    for (const report of gaps) report()
  }
  const ask = (method: string, params: Readonly<Record<string, unknown>>) =>
    request(link, inbox, hand.nextId(), method, params)
  const watches = createWatches(ask)
  const level = createLogLevel(async (wanted) => {
    if (discovery.capabilities.logging === undefined) return
    await ask('logging/setLevel', { level: wanted }).catch((error) => link.onWarning(String(error)))
  })
  let stream = openStream(link, inbox, onGap)
  const renew = shareRun(async () => {
    stream.abort()
    link.id = undefined
    discovery = await shakeHands(link, inbox, { ...hand, accepts: [link.version], signal: undefined })
    level.reset()
    watches.reset()
    onGap()
    stream = openStream(link, inbox, onGap)
  })
  const session: OlderSession = {
    get version() {
      return link.version
    },
    get discovery() {
      return discovery
    },
    async exchange(outgoing, flight) {
      await level.ensure(flight.logLevel)
      const epoch = link.epoch
      const response = await sendOnce(link, inbox, outgoing, flight)
      if (response !== FORGOTTEN) return response
      if (link.epoch === epoch) await renew()
      const second = await sendOnce(link, inbox, outgoing, flight)
      if (second === FORGOTTEN)
        throw new RondoError('PEER_UNREACHABLE', 'The server dropped the session twice in a row')
      return second
    },
    async ask(method, params, { signal, timeoutMs = link.limits.timeoutMs }) {
      const ended = signal ? AbortSignal.any([signal, link.signal]) : link.signal
      const leg = openLeg(link.clock, { timeoutMs }, ended)
      const id = hand.nextId()
      try {
        const { maxResponseBytes: maxBytes } = link.limits
        const outgoing = { id, body: encodeMessage(id, method, params), headers: headersOf(link.version) }
        const message = await session.exchange(
          { ...outgoing, signal: leg.signal, maxBytes, repeatable: true },
          { leg },
        )
        const outcome = decodeOutcome(message)
        if (outcome.kind === 'error') throw new PeerError(outcome.error)
        if (outcome.kind === 'complete') return outcome.result
        throw new RondoError('PEER_BAD_RESPONSE', `The response to ${method} is not valid`)
      } finally {
        leg.end()
      }
    },
    follow: (flight) => inbox.enter(flight),
    listen: (filter, listening) =>
      listen({ link, inbox, watches, gaps, capabilities: discovery.capabilities }, filter, listening),
    async close() {
      stream.abort()
      link.close()
      if (link.id === undefined) return
      // A server may refuse this, and ends the session itself later.
      await link.post('', { verb: 'DELETE', timeoutMs: DELETE_MS }).catch(() => {})
    },
  }
  return session
}

/** Calls during a run wait for that run. */
function shareRun(run: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | undefined
  return () => {
    running ??= run().finally(() => {
      running = undefined
    })
    return running
  }
}

function openStream(link: SessionLink, inbox: Inbox, onGap: () => void): AbortController {
  const stop = new AbortController()
  if (link.transport.kind !== 'stdio') {
    const signal = AbortSignal.any([stop.signal, link.signal])
    keepServerStream(link, inbox, signal, onGap).catch((error) => link.onWarning(String(error)))
  }
  return stop
}

/** Sends `initialize` and `notifications/initialized`. Sets version, session id and epoch of the link. */
async function shakeHands(link: SessionLink, inbox: Inbox, hand: Handshake): Promise<Discovery> {
  const { message, session, status } = await introduce(link, inbox, hand)
  const outcome = decodeOutcome(message)
  if (outcome.kind === 'error') throw refusalOf(outcome.error, status)
  const discovery = outcome.kind === 'complete' ? decodeInitialize(outcome.result) : undefined
  if (discovery === undefined)
    throw new RondoError('PEER_BAD_RESPONSE', 'The response to initialize is not valid')
  const [version = ''] = discovery.supportedVersions
  if (!hand.accepts.includes(version)) {
    const ours = hand.accepts.join(', ')
    throw new RondoError(
      'PEER_REVISION',
      `The server speaks ${cleanText(version, 100)}; this client accepts ${ours}`,
    )
  }
  link.version = version
  link.id = session
  link.epoch += 1
  await link.post(encodeMessage(undefined, 'notifications/initialized'))
  return discovery
}

/** An overloaded or failing server refuses nothing: the status counts, whatever its body says. */
function refusalOf(error: WireError, status: number): RondoError {
  const cause = new PeerError(error)
  return status === 429 || status >= 500 ? statusError({ status }, cause) : cause
}

async function introduce(
  link: SessionLink,
  inbox: Inbox,
  hand: Handshake,
): Promise<{ message: unknown; session: string | undefined; status: number }> {
  const { 'MCP-Protocol-Version': _, ...own } = headersOf(hand.version)
  const leg = openLeg(link.clock, { timeoutMs: hand.timeoutMs ?? link.limits.timeoutMs }, hand.signal)
  let session: string | undefined
  let status = 200
  const id = hand.nextId()
  try {
    const message = await link.transport.exchange({
      id,
      body: encodeInitialize(id, hand),
      headers: await requestHeaders(own, link.headers),
      signal: leg.signal,
      maxBytes: link.limits.maxResponseBytes,
      repeatable: true,
      pause: leg.pause,
      onHead(head) {
        status = head.status
        session = sessionIn(head)
      },
      onRequest: (request) => inbox.handleRequest(request),
      onNotification: (notification) => inbox.handleNotification(notification),
    })
    return { message, session, status }
  } finally {
    leg.end()
  }
}

/** The log level of the whole session, lowered when a call wants more. Notifications are filtered for each call. */
interface LogLevelSetting {
  ensure(level: LogLevel | undefined): Promise<void>
  /** For a new session. */
  reset(): void
}

function createLogLevel(set: (level: LogLevel) => Promise<void>): LogLevelSetting {
  let known = LOG_LEVELS.length
  return {
    async ensure(level) {
      if (level === undefined || LOG_LEVELS.indexOf(level) >= known) return
      known = LOG_LEVELS.indexOf(level)
      await set(level)
    },
    reset() {
      known = LOG_LEVELS.length
    },
  }
}

// A subscription at an older server, which has no request for it. Changes of lists arrive unasked where the server declared
// them; a resource is watched with `resources/subscribe`, once for all subscriptions.

export interface Watches {
  add(uris: readonly string[]): Promise<void>
  remove(uris: readonly string[]): Promise<void>
  /** For a new session, which watches nothing. */
  reset(): void
}

function createWatches(ask: (method: string, params: { uri: string }) => Promise<unknown>): Watches {
  const counts = new Map<string, number>()
  return {
    async add(uris) {
      for (const uri of uris) {
        const count = counts.get(uri) ?? 0
        counts.set(uri, count + 1)
        if (count === 0) await ask('resources/subscribe', { uri })
      }
    },
    async remove(uris) {
      for (const uri of uris) {
        const count = counts.get(uri)
        if (count === undefined) continue
        if (count > 1) counts.set(uri, count - 1)
        else {
          counts.delete(uri)
          await ask('resources/unsubscribe', { uri })
        }
      }
    },
    reset: () => counts.clear(),
  }
}

interface Parts {
  readonly link: SessionLink
  readonly inbox: Inbox
  readonly watches: Watches
  /** Called when the stream was lost or the session was replaced. */
  readonly gaps: Set<() => void>
  readonly capabilities: Readonly<Record<string, unknown>>
}

/** Reports changes until the signal is aborted or some may have been missed. */
async function listen(
  { link, inbox, watches, gaps, capabilities }: Parts,
  filter: ListenFilter,
  { signal = link.signal, onNotice }: Pick<SendOptions, 'signal' | 'onNotice'>,
): Promise<never> {
  const agreed = agreeOn(filter, capabilities)
  const uris = agreed.resourceSubscriptions ?? []
  const ended = AbortSignal.any([signal, link.signal])
  let stop = () => {}
  const over = new Promise<never>((_, reject) => {
    if (ended.aborted) return reject(ended.reason)
    const abort = () => reject(ended.reason)
    const onGap = () => reject(new RondoError('PEER_UNREACHABLE', 'Changes may have been missed'))
    ended.addEventListener('abort', abort)
    gaps.add(onGap)
    const remove = inbox.onChange((notice) => {
      if (isWanted(notice, agreed)) onNotice?.(notice)
    })
    stop = () => {
      ended.removeEventListener('abort', abort)
      gaps.delete(onGap)
      remove()
    }
  })
  try {
    await Promise.race([watches.add(uris), over])
    onNotice?.({ kind: 'subscribed', filter: agreed })
    return await over
  } finally {
    stop()
    if (!link.signal.aborted) watches.remove(uris).catch(() => {})
  }
}

/** The part of the filter that the server can report. */
function agreeOn(filter: ListenFilter, capabilities: Readonly<Record<string, unknown>>): ListenFilter {
  const has = (what: string, flag: string) =>
    isRecord(capabilities[what]) && (capabilities[what] as Record<string, unknown>)[flag] === true
  const uris = filter.resourceSubscriptions
  return {
    ...(filter.toolsListChanged && has('tools', 'listChanged') && { toolsListChanged: true }),
    ...(filter.promptsListChanged && has('prompts', 'listChanged') && { promptsListChanged: true }),
    ...(filter.resourcesListChanged && has('resources', 'listChanged') && { resourcesListChanged: true }),
    ...(uris && has('resources', 'subscribe') && { resourceSubscriptions: uris }),
    // A server that declares tasks may send notifications about them, and need not.
    ...(filter.taskIds && isRecord(capabilities.tasks) && { taskIds: filter.taskIds }),
  }
}

function isWanted(notice: Notice, filter: ListenFilter): boolean {
  switch (notice.kind) {
    case 'tools':
      return filter.toolsListChanged === true
    case 'prompts':
      return filter.promptsListChanged === true
    case 'resources':
      return filter.resourcesListChanged === true
    case 'task':
      return filter.taskIds?.includes(notice.task.taskId) === true
    case 'resource':
      return filter.resourceSubscriptions?.includes(notice.uri) === true
    default:
      return false
  }
}
