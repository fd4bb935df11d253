/** `connect`: opens a target over HTTP, over stdio or in memory (C15), and returns a client. Runs wherever there is `fetch`. */

import { cleanText } from '../form/clean-text.ts'
import { type Clock, systemClock } from '../lib/clock.ts'
import { guardObserver, type Observer } from '../protocol/observer.ts'
import { type ClientAuth, withAuth } from './auth.ts'
import { type Client, createClient } from './client.ts'
import { DIALECTS } from './dialect.ts'
import { type Limits, type TaskMode, withLimits } from './flow-options.ts'
import { type Mode, negotiate } from './negotiate.ts'
import { type ClientInfo, createPeer, type HeaderSource, MAX_MESSAGE } from './peer.ts'
import type { RoundPolicy } from './policy.ts'
import { type Answers, answerableKinds, capabilitiesFor } from './question.ts'
import { createCache, noCache } from './reader.ts'
import { openPlatformHttp, openProcess } from './transport/platform.ts'
import type { StdioTarget } from './transport/stdio.ts'
import { createFetchTransport, type FetchLike, guard, type Transport } from './transport/transport.ts'

/** Anything with a web-standard `fetch`, such as a server object. */
export interface MemoryTarget {
  fetch(request: Request): Promise<Response>
}

/** An HTTP URL, a command to start, or a server object in this process. */
export type ConnectTarget = string | URL | StdioTarget | MemoryTarget

export interface ConnectOptions extends Partial<Limits> {
  /** The handlers that answer the server's questions. */
  readonly answers?: Answers
  /** The revision to speak. Default `auto`: the newest that the server speaks. */
  readonly mode?: Mode
  /** Sees every round of every call before it is answered. */
  readonly onRound?: RoundPolicy | readonly RoundPolicy[]
  /** The name and version that this client sends. */
  readonly clientInfo?: ClientInfo
  /** Headers for every HTTP request, such as `Authorization`; a function is called before each. */
  readonly headers?: HeaderSource
  /** Logs in at servers that require it: `oauth({ … })` of `rondo/client/oauth`. For URLs only. */
  readonly auth?: ClientAuth
  /** Used instead of `node:http`. */
  readonly fetch?: FetchLike
  /** Caches results as long as the server allows. Default true. */
  readonly cache?: boolean
  /**
   * Whether calls may continue as tasks. `true` subscribes to their changes where the server offers that, `'poll'` only
   * polls; `false` allows no tasks. Default true.
   */
  readonly tasks?: boolean | 'poll'
  /**
   * Whether a server of 2025-11-25 or older may end the stream of a call in order to ask (multi-turn SSE), so that the call
   * can be stored. With `false` it asks while the call is open. Default true.
   */
  readonly turns?: boolean
  /** Receives what was odd but not fatal. */
  readonly onWarning?: (text: string) => void
  /** Observes every request and sends trace context with it: `otel()` from `rondo/otel`. Default: none. */
  readonly telemetry?: Observer
  /** Aborts connecting. */
  readonly signal?: AbortSignal
  readonly clock?: Clock
  /** From 0 to 1, for the jitter between polls. Default `Math.random`. */
  readonly random?: () => number
  /** Names pending calls. Default: random UUIDs. */
  readonly createId?: () => string
}

/** The limit for negotiating a revision. */
const DISCOVER_TIMEOUT_MS = 60_000
/** An older process may never respond to the first request, so that one has less time. */
const SILENCE_MS = 10_000
/** Never resolved: the server object gets the request itself. A loopback address passes a server's Host check. */
const MEMORY_URL = new URL('http://127.0.0.1/mcp')

/** Connects to an MCP server and negotiates a revision. */
export async function connect(target: ConnectTarget, options: ConnectOptions = {}): Promise<Client> {
  const limits = withLimits(options)
  const onWarning = (text: string) => void guard(() => options.onWarning?.(cleanText(text, MAX_MESSAGE)))
  const answers = options.answers ?? {}
  const clock = options.clock ?? systemClock
  const transport = await openTransport(target, limits, options, onWarning)
  const info = options.clientInfo ?? { name: 'rondo', version: '0.1.0' }
  const observer = guardObserver(options.telemetry, clock.now, (error) =>
    onWarning(`The telemetry threw; something was not observed: ${String(error)}`),
  )
  const { headers } = options
  const peer = createPeer({ transport, clock, limits, info, headers, onWarning, observer }, DIALECTS[0])
  try {
    const discovery = await negotiate(peer, {
      mode: options.mode,
      silenceMs: SILENCE_MS,
      turns: options.turns,
      roots: Array.isArray(answers.roots) ? { roots: answers.roots } : undefined,
      reopen: () => openTransport(target, limits, options, onWarning),
      signal: options.signal,
      timeoutMs: Math.min(limits.timeoutMs, DISCOVER_TIMEOUT_MS),
      capabilities: capabilitiesFor(answerableKinds(answers)),
    })
    return createClient({
      peer,
      discovery,
      answers,
      policies: options.onRound === undefined ? [] : [options.onRound].flat(),
      cache: options.cache === false ? noCache : createCache(clock),
      createId: options.createId ?? (() => crypto.randomUUID()),
      tasks: taskModeOf(options.tasks),
      random: options.random ?? Math.random,
    })
  } catch (error) {
    await peer.close()
    throw error
  }
}

function taskModeOf(tasks: ConnectOptions['tasks'] = true): TaskMode {
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
