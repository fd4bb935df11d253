/**
 * From a target to a client: over HTTP, over stdio, or to a server object in memory (C15). It runs wherever there is `fetch`.
 */

import { type Clock, systemClock } from '../lib/clock.ts'
import { type Client, createClient } from './client.ts'
import { DIALECTS } from './dialect.ts'
import { type Limits, type TaskMode, withLimits } from './flow-options.ts'
import { type Mode, negotiate } from './negotiate.ts'
import { type ClientInfo, createPeer, type HeaderSource } from './peer.ts'
import type { RoundPolicy } from './policy.ts'
import { type Answers, answerableKinds, capabilitiesFor } from './question.ts'
import { createCache, noCache } from './reader.ts'
import { createFetchTransport, type FetchLike } from './transport/fetch.ts'
import { openPlatformHttp, openProcess } from './transport/platform.ts'
import type { StdioTarget } from './transport/stdio.ts'
import { guard, type Transport } from './transport/transport.ts'

/** Anything that answers web requests: our own server object, or any other. */
export interface MemoryTarget {
  fetch(request: Request): Promise<Response>
}

/** An HTTP URL, a command to start, or a server object in this process. */
export type ConnectTarget = string | URL | StdioTarget | MemoryTarget

export interface ConnectOptions extends Partial<Limits> {
  /** Who answers the server's questions. */
  readonly answers?: Answers
  /** The revision to speak. Default `auto`: whatever the server speaks, the newest first. */
  readonly mode?: Mode
  /** Looks at every round of every call before it is answered. */
  readonly onRound?: RoundPolicy | readonly RoundPolicy[]
  /** What this client calls itself. */
  readonly clientInfo?: ClientInfo
  /** Headers for every HTTP request, such as `Authorization`; a function is asked before each. */
  readonly headers?: HeaderSource
  /** Used instead of `node:http`. */
  readonly fetch?: FetchLike
  /** Keep answers as long as the server allows. Default true. */
  readonly cache?: boolean
  /**
   * Whether calls may go on as tasks. `true` lets the server tell how they stand where it does that, `'poll'` only looks;
   * `false` asks servers to answer in rounds. Default true.
   */
  readonly tasks?: boolean | 'poll'
  /**
   * Whether a server of 2025-11-25 or older may end the stream of a call in order to ask (multi-turn SSE), which it does only
   * for clients that declare so; such a call can be kept for later. With `false` it asks while the call is open. Default true.
   */
  readonly turns?: boolean
  /** Told about what was odd but no reason to fail. Default: nobody is. */
  readonly onWarning?: (text: string) => void
  /** Gives up connecting. */
  readonly signal?: AbortSignal
  readonly clock?: Clock
  /** From 0 to 1; spreads the looks at tasks. Default: chance. */
  readonly random?: () => number
  /** Names pending calls. Default: random UUIDs. */
  readonly createId?: () => string
}

/** Finding out what a server speaks takes no longer than this. */
const DISCOVER_TIMEOUT_MS = 60_000
/** An older process may never answer the first request, so it gets less time than others. */
const SILENCE_MS = 10_000
/** Never resolved: the server object gets the request itself. A loopback name passes a server's Host check. */
const MEMORY_URL = new URL('http://127.0.0.1/mcp')

/** Connects to an MCP server and finds out what it speaks. */
export async function connect(target: ConnectTarget, options: ConnectOptions = {}): Promise<Client> {
  const limits = withLimits(options)
  const onWarning = (text: string) => void guard(() => options.onWarning?.(text))
  const answers = options.answers ?? {}
  const clock = options.clock ?? systemClock
  const transport = await openTransport(target, limits, options, onWarning)
  const info = options.clientInfo ?? { name: 'rondo', version: '0.1.0' }
  const peer = createPeer(
    { transport, clock, limits, info, headers: options.headers, onWarning },
    DIALECTS[0],
  )
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
  if (typeof target === 'string' || target instanceof URL) return openHttp(target, options.fetch)
  if ('command' in target) {
    return openProcess(target, { maxBytes: limits.maxResponseBytes, onWarning })
  }
  if (typeof target.fetch !== 'function') {
    throw new TypeError('The target must be a URL, { command }, or an object with a fetch function')
  }
  return createFetchTransport((request) => target.fetch(request), MEMORY_URL, 'memory')
}

async function openHttp(target: string | URL, fetch: FetchLike | undefined): Promise<Transport> {
  if (!URL.canParse(target)) throw new TypeError(`"${String(target)}" is not a URL`)
  const url = new URL(target)
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new TypeError(`A server is reached by http: or https:, not by ${url.protocol}`)
  }
  if (url.username !== '' || url.password !== '') {
    throw new TypeError('Credentials belong in options.headers, not in the URL')
  }
  return fetch === undefined ? openPlatformHttp(url) : createFetchTransport(fetch, url)
}
