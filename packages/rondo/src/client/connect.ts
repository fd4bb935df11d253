/**
 * `connect`: opens a target over HTTP, over stdio or in memory (C15), negotiates the revision, and returns a client.
 * Runs wherever there is `fetch`.
 */

import { misuse, RondoError } from '../errors.ts'
import { cleanText } from '../form/clean-text.ts'
import { type Clock, sleep, systemClock } from '../lib/clock.ts'
import { isRecord } from '../lib/json.ts'
import { callable, defineOptions, flag, type OptionsOf, unchecked } from '../options.ts'
import { decodeDiscovery } from '../protocol/common/received.ts'
import { guardObserver, type Observer } from '../protocol/observer.ts'
import type { Received, WireError } from '../protocol/reply.ts'
import type { Discovery, ListRootsResult } from '../protocol/wire.ts'
import { type ClientAuth, withAuth } from './auth.ts'
import { type Client, createClient } from './client.ts'
import {
  chooseDialect,
  DIALECTS,
  HANDSHAKE_VERSIONS,
  isDraft,
  type Revision,
  sessionCapabilities,
  sessionDialect,
} from './dialect.ts'
import type { TaskMode } from './flow-options.ts'
import { LIMIT_OPTIONS, type Limits, withLimits } from './limits.ts'
import { createPeer, MAX_MESSAGE, PeerError } from './peer.ts'
import type { RoundPolicy } from './policy.ts'
import type { ClientInfo, Dialect, HeaderSource, Peer, SendOptions } from './port.ts'
import { type Answers, answerableKinds, capabilitiesFor } from './question.ts'
import { createCache, noCache } from './reader.ts'
import { openSession } from './session/session.ts'
import { openPlatformHttp, openProcess } from './transport/platform.ts'
import { statusError } from './transport/response-reader.ts'
import type { StdioTarget } from './transport/stdio.ts'
import { createFetchTransport, type FetchLike, guard, type Transport } from './transport/transport.ts'

/** Anything with a web-standard `fetch`, such as a server object. */
export interface MemoryTarget {
  fetch(request: Request): Promise<Response>
}

/** An HTTP URL, a command to start, or a server object in this process. */
export type ConnectTarget = string | URL | StdioTarget | MemoryTarget

export interface ConnectOptions extends Partial<Limits> {
  /** Handlers for `elicitation`, `sampling` and `roots`; with `together`, a round's questions are passed at once. Default: none. */
  readonly answers?: Answers
  /** The revision to speak, such as `2025-11-25`; `auto` chooses the newest that the server speaks. Default: `auto`. */
  readonly mode?: Mode
  /** Policies that see every round of every call before it is answered. Default: none. */
  readonly onRound?: RoundPolicy | readonly RoundPolicy[]
  /** Headers of every HTTP request, such as `Authorization`; a function is called before each request. Default: none. */
  readonly headers?: HeaderSource
  /** Logs in at servers that require it: `oauth({ … })` of `rondo/client/oauth`. For URLs only. Default: none. */
  readonly auth?: ClientAuth
  /** The name and version that the client sends. Default: `rondo` with its version. */
  readonly clientInfo?: ClientInfo
  /** A function to use for HTTP. Default: `node:http`. */
  readonly fetch?: FetchLike
  /** Caches results as long as the server allows; never those that took several rounds. Default: `true`. */
  readonly cache?: boolean
  /**
   * Whether calls may continue as tasks. `true` subscribes to their changes where the server offers that, `'poll'` only
   * polls; `false` allows no tasks. Default: `true`.
   */
  readonly tasks?: boolean | 'poll'
  /**
   * Whether a server of 2025-11-25 or older may end the stream of a call in order to ask (multi-turn SSE), so that the call
   * can be stored. With `false` it asks while the call is open. Default: `true`.
   *
   * @see docs/guide/13-drafts.md#our-client-in-turns
   */
  readonly turns?: boolean
  /**
   * Speaks drafts: `multi-turn-sse` and `request-state`, which are declared to older servers over HTTP, and
   * `DRAFT-2026-v1`. Set it to `false` for a proxy that drops capabilities it does not know. Default: `true`.
   */
  readonly drafts?: boolean
  /** Observes every request and sends trace context with it: `otel()` from `rondo/otel`. Default: none. */
  readonly telemetry?: Observer
  /** Receives a sentence about something odd but not fatal, such as a tool that had to be omitted. Default: none. */
  readonly onWarning?: (text: string) => void
  /** Cancels connecting. Default: none. */
  readonly signal?: AbortSignal
  /** `now()` and `after(ms, run)`, for tests. Default: the system's clock. */
  readonly clock?: Clock
  /** Returns a number from 0 up to 1, for the jitter between polls. Default: `Math.random`. */
  readonly random?: () => number
  /** Generates ids of pending calls. Default: random UUIDs. */
  readonly createId?: () => string
}

const OPTIONS = defineOptions('connect', {
  ...LIMIT_OPTIONS,
  answers: unchecked<Answers>({}),
  mode: unchecked<Mode>('auto'),
  onRound: unchecked<RoundPolicy | readonly RoundPolicy[]>([]),
  headers: unchecked(),
  auth: unchecked(),
  clientInfo: unchecked<ClientInfo>({ name: 'rondo', version: '0.1.0' }),
  fetch: callable(),
  cache: flag(true),
  tasks: unchecked<boolean | 'poll'>(true),
  turns: flag(true),
  drafts: flag(true),
  telemetry: unchecked(),
  onWarning: callable(),
  signal: unchecked(),
  clock: unchecked<Clock>(systemClock),
  random: callable<() => number>(() => Math.random()),
  createId: callable<() => string>(() => crypto.randomUUID()),
} satisfies OptionsOf<ConnectOptions>)

/** The limit for negotiating a revision. */
const DISCOVER_TIMEOUT_MS = 60_000
/** An older process may never respond to the first request, so that one has less time. */
const SILENCE_MS = 10_000
/** By how much the response to the second request of a process may be ahead of the first one. */
const MOMENT_MS = 500
/** Never resolved: the server object gets the request itself. A loopback address passes a server's Host check. */
const MEMORY_URL = new URL('http://127.0.0.1/mcp')

/**
 * Connects to an MCP server and negotiates a revision.
 *
 * @example
 * ```ts
 * const client = await connect('https://tables.example.com/mcp', {
 *   answers: { elicitation: { form: () => ({ action: 'accept', content: { seat: 'inside' } }) } },
 * })
 * const result = await client.callTool('book')
 * ```
 */
export async function connect(target: ConnectTarget, given: ConnectOptions = {}): Promise<Client> {
  const options = OPTIONS.read(given)
  const { mode, drafts, turns, answers, clock, headers, signal } = options
  if (!drafts && isDraft(mode))
    throw misuse(`connect cannot speak ${mode} with drafts: false. Leave one of the two out.`)
  if (!drafts && answers.apps)
    throw misuse('connect cannot declare answers.apps with drafts: false. Leave one of the two out.')
  const limits = withLimits(options)
  const onWarning = (text: string) => void guard(() => options.onWarning?.(cleanText(text, MAX_MESSAGE)))
  const transport = await openTransport(target, limits, options, onWarning)
  const observer = guardObserver(options.telemetry, clock.now, (error) =>
    onWarning(`The telemetry threw; something was not observed: ${String(error)}`),
  )
  const peer = createPeer(
    {
      transport,
      clock,
      limits,
      info: options.clientInfo,
      headers,
      onWarning,
      random: options.random,
      observer,
    },
    DIALECTS[0],
  )
  try {
    const discovery = await negotiate(peer, {
      mode,
      silenceMs: SILENCE_MS,
      turns,
      drafts,
      roots: Array.isArray(answers.roots) ? { roots: answers.roots } : undefined,
      reopen: () => openTransport(target, limits, options, onWarning),
      signal,
      timeoutMs: Math.min(limits.timeoutMs, DISCOVER_TIMEOUT_MS),
      capabilities: capabilitiesFor(answerableKinds(answers), answers.apps),
    })
    return createClient({
      peer,
      discovery,
      answers,
      policies: [options.onRound].flat(),
      cache: options.cache ? createCache(clock) : noCache,
      createId: options.createId,
      tasks: taskModeOf(options.tasks),
      random: options.random,
    })
  } catch (error) {
    await peer.close()
    throw withLoginHint(error, options)
  }
}

/** Says how to log in, if the server wants that and the caller did nothing about it. */
function withLoginHint(error: unknown, { auth, headers }: ConnectOptions): unknown {
  if (!(error instanceof RondoError) || error.code !== 'PEER_HTTP' || auth !== undefined) return error
  const { data, cause } = error
  if (!isRecord(data) || data.status !== 401) return error
  const how =
    headers === undefined
      ? 'It requires a login: pass auth (oauth() of rondo/client/oauth), or headers with a token'
      : 'It does not accept the credentials in headers; auth (oauth() of rondo/client/oauth) can log in'
  return new RondoError('PEER_HTTP', `${reasonOf(error)}. ${how}.`, { data, cause })
}

function taskModeOf(tasks: boolean | 'poll'): TaskMode {
  if (tasks === 'poll') return 'poll'
  return tasks ? 'listen' : 'off'
}

async function openTransport(
  target: ConnectTarget,
  limits: Limits,
  options: ConnectOptions,
  onWarning: (text: string) => void,
): Promise<Transport> {
  if (typeof target === 'string' || target instanceof URL) return openHttp(target, options)
  if (options.auth) throw new TypeError('options.auth needs the URL of a server; this target has none')
  if ('command' in target) {
    return openProcess(target, { maxBytes: limits.maxResponseBytes, onWarning })
  }
  if (typeof target.fetch !== 'function') {
    throw new TypeError('The target must be a URL, { command }, or an object with a fetch function')
  }
  return createFetchTransport((request) => target.fetch(request), MEMORY_URL, 'memory')
}

async function openHttp(
  target: string | URL,
  { fetch, auth }: Pick<ConnectOptions, 'fetch' | 'auth'>,
): Promise<Transport> {
  if (!URL.canParse(target)) throw new TypeError(`"${String(target)}" is not a URL`)
  const url = new URL(target)
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new TypeError(`The URL of a server must be http: or https:, not ${url.protocol}`)
  }
  if (url.username !== '' || url.password !== '') {
    throw new TypeError('Credentials belong in options.headers, not in the URL')
  }
  const transport = await (fetch === undefined ? openPlatformHttp(url) : createFetchTransport(fetch, url))
  return auth === undefined ? transport : withAuth(transport, auth.open(url))
}

// Finds the revision that client and server share.
//
// `server/discover` is sent first. A server that refuses it and names a version we share is asked again in that version. Any
// other JSON-RPC response shows an older era, as do an HTTP status such as 404 or 405, and a process that stays silent or
// exits: then `initialize` follows. A login, a failing server or a body that is not a message shows nothing, and is an error.
//
// A silent process may only be slow to start. It reads both requests then, so if it knows the first one, that response is here
// about when the second one is, and wins.
//
// A process is started once more if the first request spoiled it: it exited, or it is a bridge whose server was initialized
// for that request and now refuses `initialize`.

/** The revision to speak; `auto` negotiates it. */
export type Mode = 'auto' | Revision

interface Negotiation extends SendOptions {
  readonly mode?: Mode
  /** How long a process may take to respond to the first request before it counts as an older one. */
  readonly silenceMs?: number
  /** Whether an older server may ask in turns. Default true. */
  readonly turns?: boolean
  /** Whether drafts are spoken. Default true. */
  readonly drafts?: boolean
  /** Roots that do not change. */
  readonly roots?: ListRootsResult
  /** Starts a server again that exited at the first request. */
  reopen?(): Promise<Transport>
}

/** The outcome of `server/discover`. */
type ProbeResult =
  | { readonly kind: 'rounds'; readonly discovery: Discovery; readonly dialect: Dialect }
  | { readonly kind: 'older'; readonly offered?: readonly unknown[]; readonly cause?: RondoError }

const UNSUPPORTED_VERSION = -32022
/** Characters of a server's versions in a message. */
const MAX_SHOWN = 200
/** The HTTP statuses of an older endpoint for a request it does not know. */
const OLDER_STATUSES = new Set<unknown>([400, 404, 405, 406, 415])

/** Sets the dialect of the peer, and its channel where there is a session. */
async function negotiate(peer: Peer, options: Negotiation = {}): Promise<Discovery> {
  const { mode = 'auto' } = options
  if (chooseDialect([mode])) return discoverOnly(peer, options)
  if (mode !== 'auto') return initialize(peer, [mode], options)
  const { channel } = peer
  const first = beginProbe(peer, options)
  const finding = await first.inTime()
  if (finding.kind === 'rounds') return finding.discovery
  const { offered } = finding
  const versions = sessionVersions(offered, options)
  const isGone = finding.cause?.code === 'PEER_UNREACHABLE'
  if (isGone) await restart(peer, options)
  try {
    const discovery = await initialize(peer, versions, options)
    const late = await first.soFar()
    if (late?.kind !== 'rounds') return discovery
    peer.channel = channel
    peer.dialect = late.dialect
    return late.discovery
  } catch (error) {
    const mayRestart = peer.transport.kind === 'stdio' && !isGone
    if (
      !(error instanceof RondoError) ||
      !(isRefusal(error) || (mayRestart && error.code === 'PEER_UNREACHABLE'))
    )
      throw error
    const late = await first.soFar()
    if (late?.kind === 'rounds') return late.discovery
    if (!mayRestart || !(await restart(peer, options))) throw noSharedVersion(offered, error)
    return initialize(peer, versions, options).catch((second: unknown) => {
      throw second instanceof RondoError && isRefusal(second) ? noSharedVersion(offered, second) : second
    })
  }
}

interface FirstProbe {
  /** The result. A process that is silent for too long counts as an older one for now. */
  inTime(): Promise<ProbeResult>
  /** The result of a process that was silent, if it comes after all. Ends the request if not. */
  soFar(): Promise<ProbeResult | undefined>
}

function beginProbe(peer: Peer, options: Negotiation): FirstProbe {
  const { silenceMs = Number.POSITIVE_INFINITY, signal } = options
  const ending = new AbortController()
  const isProcess = peer.transport.kind === 'stdio'
  const probing = probe(peer, {
    ...options,
    signal: signal ? AbortSignal.any([signal, ending.signal]) : ending.signal,
  })
  probing.catch(() => {})
  return {
    async inTime() {
      if (!isProcess || silenceMs >= (options.timeoutMs ?? Number.POSITIVE_INFINITY)) return probing
      let stop = (): void => {}
      const silence = new Promise<ProbeResult>((resolve) => {
        stop = peer.clock.after(silenceMs, () => resolve({ kind: 'older' }))
      })
      return Promise.race([probing, silence]).finally(stop)
    },
    async soFar() {
      const moment = sleep(peer.clock, MOMENT_MS, ending.signal).then(() => undefined)
      moment.catch(() => {})
      const found = await Promise.race([probing, moment]).catch(() => undefined)
      ending.abort()
      return found
    },
  }
}

/** Starts the process again. Returns false if the target is not a process. */
async function restart(peer: Peer, { reopen }: Negotiation): Promise<boolean> {
  if (!reopen || peer.transport.kind !== 'stdio') return false
  await peer.transport.close()
  peer.transport = await reopen()
  return true
}

/** Silence is no evidence here: the process has all of its time. */
async function discoverOnly(peer: Peer, options: Negotiation): Promise<Discovery> {
  const finding = await probe(peer, options)
  if (finding.kind === 'rounds') return finding.discovery
  const { offered, cause } = finding
  if (cause?.code === 'PEER_UNREACHABLE' || cause?.code === 'LIMIT_CLIENT_TIMEOUT') throw cause
  const found = offered ? `it speaks ${listVersions(offered)}` : `server/discover failed: ${reasonOf(cause)}`
  const detail = `The server does not speak ${peer.dialect.version}, the only revision that mode allows; ${found}. With mode: 'auto' this client also tries older revisions.`
  throw new RondoError('PEER_REVISION', detail, { cause })
}

/** The versions to try, best first: those that the server offers, or all of them with the draft last. */
function sessionVersions(
  offered: readonly unknown[] = [],
  { drafts = true }: Negotiation,
): readonly Revision[] {
  const spoken = HANDSHAKE_VERSIONS.filter((one) => drafts || !isDraft(one))
  const shared = spoken.filter((one) => offered.includes(one))
  return shared.length > 0 ? shared : [...spoken].sort((a, b) => Number(isDraft(a)) - Number(isDraft(b)))
}

async function initialize(
  peer: Peer,
  accepts: readonly Revision[],
  options: Negotiation,
): Promise<Discovery> {
  const [version = HANDSHAKE_VERSIONS[0]] = accepts
  const offered = draftsFor(peer, options)
  const hand = {
    version,
    accepts,
    capabilities: sessionCapabilities(options.capabilities, offered),
    clientInfo: peer.info,
    timeoutMs: options.timeoutMs,
    signal: options.signal,
    nextId: peer.nextId,
  }
  const session = await openSession(peer, hand, options.roots)
  peer.channel = session
  peer.dialect = sessionDialect(session.version, session.discovery.capabilities, offered.turns)
  return session.discovery
}

/**
 * Over HTTP only: one process needs no state. If the process is a bridge to a server elsewhere, it passes the declaration on,
 * and may drop questions that have a member which it does not know.
 */
function draftsFor(
  { transport }: Peer,
  { turns = true, drafts = true }: Negotiation,
): Parameters<typeof sessionCapabilities>[1] {
  const declared = drafts && transport.kind !== 'stdio'
  return { drafts: declared, turns: declared && turns }
}

async function probe(peer: Peer, options: Negotiation): Promise<ProbeResult> {
  let received = await discover(peer, options)
  if (received.kind === 'error' && received.error.code === UNSUPPORTED_VERSION) {
    const offered = versionsIn(received.error)
    const dialect = chooseDialect(offered)
    if (dialect === undefined) return { kind: 'older', offered }
    peer.dialect = dialect
    received = await discover(peer, options)
    // It offers our version and refuses it, so a handshake would not help.
    if (received.kind === 'error') {
      const cause = new PeerError(received.error)
      const detail = `The server offers ${listVersions(offered)}, and refuses it: ${reasonOf(cause)}`
      throw new RondoError('PEER_REVISION', detail, { cause })
    }
  }
  if (received.kind === 'absent') return { kind: 'older', cause: received.cause }
  if (received.kind === 'error') return { kind: 'older', cause: new PeerError(received.error) }
  const discovery = received.kind === 'complete' ? decodeDiscovery(received.result) : undefined
  if (discovery === undefined) {
    return {
      kind: 'older',
      cause: new RondoError('PEER_BAD_RESPONSE', 'The response to server/discover is not valid'),
    }
  }
  const dialect = chooseDialect(discovery.supportedVersions)
  if (dialect === undefined) return { kind: 'older', offered: discovery.supportedVersions }
  peer.dialect = dialect
  return { kind: 'rounds', discovery, dialect }
}

async function discover(
  peer: Peer,
  options: Negotiation,
): Promise<Received | { readonly kind: 'absent'; readonly cause: RondoError }> {
  const { signal, capabilities, timeoutMs } = options
  const line = peer.transport.kind === 'stdio'
  let status = 200
  try {
    const received = await peer.send(
      { kind: 'discover' },
      {
        signal,
        capabilities,
        timeoutMs,
        onHead(head) {
          status = head.status
        },
      },
    )
    if (received.kind !== 'error' || status < 300 || OLDER_STATUSES.has(status)) return received
    throw statusError({ status }, new PeerError(received.error))
  } catch (error) {
    if (!(error instanceof RondoError)) throw error
    const quiet = line && (error.code === 'LIMIT_CLIENT_TIMEOUT' || error.code === 'PEER_UNREACHABLE')
    if ((quiet || isAbsent(error)) && !signal?.aborted) return { kind: 'absent', cause: error }
    throw error
  }
}

function isAbsent({ code, data }: RondoError): boolean {
  return code === 'PEER_HTTP' && isRecord(data) && OLDER_STATUSES.has(data.status)
}

/** Whether the server understood the handshake no better than the first request. */
function isRefusal(error: RondoError): boolean {
  return error.code === 'PEER_ERROR' || error.code === 'PEER_BAD_RESPONSE' || isAbsent(error)
}

function versionsIn({ data }: WireError): readonly unknown[] {
  return isRecord(data) && Array.isArray(data.supported) ? data.supported : []
}

function listVersions(offered: readonly unknown[]): string {
  const named = offered.filter((one) => typeof one === 'string').join(', ')
  return cleanText(named, MAX_SHOWN) || 'no version it names'
}

/** Our sentence, without the code in front of it. */
function reasonOf(cause: RondoError | undefined): string {
  return cause?.message.replace(/^\[\w+\] /, '') ?? 'no reason is known'
}

/** `cause` is how `initialize` failed, after `server/discover` did. */
function noSharedVersion(offered: readonly unknown[] | undefined, cause: RondoError): RondoError {
  const reason = reasonOf(cause)
  if (/already initiali[sz]ed/i.test(reason)) {
    const detail = `The server refuses initialize: ${reason}. A proxy in front of it seems to share one session among its clients; restart the proxy, or run one for this client.`
    return new RondoError('PEER_REVISION', detail, { cause })
  }
  const ours = [...DIALECTS.map(({ version }) => version), ...HANDSHAKE_VERSIONS].join(', ')
  const finding = offered
    ? `The server speaks ${listVersions(offered)}, and initialize failed: ${reason}`
    : `The server knows neither server/discover nor initialize, which failed: ${reason}`
  return new RondoError('PEER_REVISION', `${finding}. This client speaks ${ours}. Is this an MCP endpoint?`, {
    cause,
  })
}
