/**
 * One server behind the gateway: its connections, and what is known of it.
 *
 * W3 A connection to an upstream of an earlier revision declares exactly the kinds of questions that the caller can be asked. An
 *    upstream that takes rounds is told with every request, so one connection of a caller serves all kinds.
 * W5 Connections are never shared between callers.
 * W8 A connection that fails is opened again after a pause that grows, with jitter; until then calls fail at once and say so.
 *    Connections are bounded in number and closed when idle.
 * W10 The revision is found when a connection is opened, and found again with the next one.
 */

import { createHash } from 'node:crypto'
import type { Principal, ServerOptions } from 'rondo'
import {
  type Answers,
  type AskInfo,
  type Client,
  type Clock,
  connect,
  displayText,
  type FlowRequest,
  type InputRequest,
  type InputResponse,
  type QuestionKind,
  RondoError,
} from 'rondo/client'
import type { HoldLimits, UpstreamOptions } from './options.ts'

/** The line of a crash report that says what failed. Node's reports end with its version instead. */
const ERROR_LINE = /^\s*\w*(?:Error|Exception)\b.*:/
export const KINDS: readonly QuestionKind[] = ['form', 'url', 'sampling', 'roots']

/** Takes a question that an upstream pushes while a call is open. */
export type TakeQuestion = (question: InputRequest, info: AskInfo) => Promise<InputResponse>

/** An open connection of one caller. */
export interface Connection {
  readonly client: Client
  /** Whether the upstream returns its questions. Otherwise it pushes them, and the calls that ask are held. */
  readonly rounds: boolean
  readonly revision: string
  /** Runs `fn` when the connection can serve another call, and counts it as used meanwhile. */
  use<T>(fn: () => Promise<T>, signal: AbortSignal): Promise<T>
  /** Counts the connection as used until the returned function is called, without taking a turn of its calls. */
  keep(): () => void
  /** Nothing more is sent through it; the next call opens another one. */
  drop(): void
}

/** The facts that an upstream reported when it was connected last. */
interface Known {
  readonly revision?: string
  readonly server?: string
  /** It serves resources. */
  readonly resources?: boolean
  /** It reports changes of resources. */
  readonly subscribe?: boolean
}

export interface Upstream {
  readonly name: string
  readonly options: UpstreamOptions
  /** Identifies what is configured, for the seal: a call does not continue at another server. */
  readonly identity: string
  readonly known: Known
  /** Registers the call to which the questions about `request` belong. */
  readonly takers: WeakMap<FlowRequest, TakeQuestion>
  /** Opens or finds the connection of a caller. Throws `UpstreamDown` if there is none and none can be opened now. */
  connection(principal: Principal | undefined, kinds: readonly QuestionKind[]): Promise<Connection>
  /** Any open connection of a caller, for requests that ask nothing; opens one for `kinds` if there is none. */
  anyConnection(principal: Principal | undefined, kinds: readonly QuestionKind[]): Promise<Connection>
  close(): Promise<void>
}

/** The upstream cannot be reached. Nothing was sent. */
export class UpstreamDown extends Error {
  readonly reason: string
  /** The server answers, and refuses this caller. */
  readonly isRefusal: boolean

  constructor(name: string, reason: string, retryMs: number, cause?: unknown, isRefusal = false) {
    const again = retryMs > 0 ? ` It is tried again in ${Math.ceil(retryMs / 1000)} s.` : ''
    super(`The server "${name}" does not answer: ${reason}. Nothing was sent to it.${again}`, { cause })
    this.name = 'UpstreamDown'
    this.reason = reason
    this.isRefusal = isRefusal
  }
}

interface UpstreamParts {
  readonly clock: Clock
  readonly limits: Required<HoldLimits>
  readonly clientInfo: { readonly name: string; readonly version: string }
  readonly random: () => number
  warn(message: string): void
  readonly onStderr?: (upstream: string, line: string) => void
  readonly telemetry?: ServerOptions['telemetry']
}

const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 30_000
const MAX_REASON = 300

/** A caller as the key of what belongs to it. */
export function callerKey(principal: Principal | undefined): string {
  return principal === undefined
    ? ''
    : JSON.stringify([principal.issuer, principal.client, principal.subject])
}

/** The owner of a connection. Credentials may depend on what a token allows, so other scopes or claims get a connection of their own. */
export function ownerKey(principal: Principal | undefined, { credentials }: UpstreamOptions): string {
  const caller = callerKey(principal)
  if (credentials === undefined || principal === undefined) return caller
  return JSON.stringify([caller, principal.scopes, principal.claims])
}

export function createUpstream(name: string, options: UpstreamOptions, parts: UpstreamParts): Upstream {
  const { clock, limits } = parts
  const takers: Upstream['takers'] = new WeakMap()
  const slots = new Map<string, Slot>()
  const known: { -readonly [key in keyof Known]: Known[key] } = {}
  let failures = 0
  let retryAt = 0
  let lastReason = ''
  const closing = new AbortController()

  const forget = (slot: Slot): void => {
    for (const [key, one] of slots) if (one === slot) slots.delete(key)
  }

  const openOne = async (
    slot: Slot,
    principal: Principal | undefined,
    kinds: readonly QuestionKind[],
  ): Promise<Opened> => {
    const { url, command = '', args, env, cwd, headers, auth, credentials, revision, timeoutMs } = options
    let lastLine = ''
    let errorLine: string | undefined
    const stderr = (line: string): void => {
      if (line.trim() !== '') lastLine = line
      if (ERROR_LINE.test(line)) errorLine = line
      parts.onStderr?.(name, line)
    }
    const client = await connect(url ?? { command, args, env, cwd, stderr }, {
      answers: answersFor(takers, kinds),
      ...(credentials ? { headers: () => credentials(principal, name) } : headers && { headers }),
      ...(auth && { auth }),
      ...(revision && { mode: revision }),
      ...(timeoutMs !== undefined && { timeoutMs }),
      maxRounds: MAX_ROUNDS,
      drafts: false,
      clientInfo: parts.clientInfo,
      ...(parts.telemetry?.begin && { telemetry: named(parts.telemetry, name) }),
      onWarning: (text) => parts.warn(`${name}: ${text}`),
      clock,
      signal: closing.signal,
    }).catch((error: unknown) => {
      const line = errorLine ?? lastLine
      throw line === '' ? error : new Error(`${reasonOf(error)}; it wrote: ${displayText(line)}`)
    })
    known.revision = client.protocolVersion
    known.server = client.server.title ?? client.server.name
    const { resources } = client.server.capabilities
    known.resources = resources !== undefined
    known.subscribe = (resources as { subscribe?: unknown } | undefined)?.subscribe === true
    // One process of an earlier revision cannot say to which call its question belongs.
    const single = url === undefined && !hasRounds(client.protocolVersion) && kinds.length > 0
    return createOpened(client, { single, clock, limits, name, forget: () => forget(slot) })
  }

  const failed = (error: unknown): UpstreamDown => {
    // Credentials of one caller that are refused say nothing about the server: others must not wait for it.
    if (options.credentials !== undefined && !isAway(error))
      return new UpstreamDown(name, reasonOf(error), 0, error, true)
    failures += 1
    const pause = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 1))
    // After the first failure the next call tries again at once: it may have been a restart.
    retryAt = failures > 1 ? clock.now() + pause * (0.5 + parts.random() / 2) : 0
    lastReason = reasonOf(error)
    return new UpstreamDown(name, lastReason, retryAt - clock.now(), error)
  }

  const openSlot = (
    key: string,
    principal: Principal | undefined,
    kinds: readonly QuestionKind[],
  ): Promise<Opened> => {
    const wait = retryAt - clock.now()
    if (wait > 0) return Promise.reject(new UpstreamDown(name, lastReason, wait))
    if (slots.size >= limits.maxConnections && !closeIdle(slots)) {
      const full = `all of its ${limits.maxConnections} connections are in use (hold.maxConnections)`
      return Promise.reject(new UpstreamDown(name, full, 0))
    }
    const slot: Slot = {}
    slot.opening = openOne(slot, principal, kinds).then(
      (opened) => {
        failures = 0
        slot.opened = opened
        if (closing.signal.aborted) opened.drop()
        return opened
      },
      (error: unknown) => {
        forget(slot)
        throw failed(error)
      },
    )
    slots.set(key, slot)
    return slot.opening
  }

  return {
    name,
    options,
    identity: identityOf(name, options),
    known,
    takers,
    async connection(principal, kinds) {
      if (closing.signal.aborted) throw new UpstreamDown(name, 'this gateway is closed', 0)
      const caller = ownerKey(principal, options)
      // A connection that takes rounds says with every request what may be asked.
      const wanted = KINDS.filter((kind) => kinds.includes(kind)).join(',')
      const key = `${caller}\n${known.revision !== undefined && hasRounds(known.revision) ? '*' : wanted}`
      const opened = await (slots.get(key)?.opening ?? openSlot(key, principal, kinds))
      const slot = slots.get(key)
      if (opened.rounds && slot !== undefined && !slots.has(`${caller}\n*`)) {
        slots.delete(key)
        slots.set(`${caller}\n*`, slot)
      }
      return opened
    },
    async anyConnection(principal, kinds) {
      const prefix = `${ownerKey(principal, options)}\n`
      const found = [...slots].find(([key]) => key.startsWith(prefix))
      return found?.[1].opening ?? this.connection(principal, kinds)
    },
    async close() {
      closing.abort(new Error('this gateway is closed'))
      const all = [...slots.values()]
      await Promise.allSettled(all.map(async ({ opening }) => (await opening)?.close()))
    },
  }
}

/** The errors of a server that cannot be reached, whoever calls it. */
export const AWAY: readonly string[] = ['PEER_UNREACHABLE', 'LIMIT_CLIENT_TIMEOUT']

/** True if the server cannot be reached, whoever calls it. */
function isAway(error: unknown): boolean {
  return error instanceof RondoError && AWAY.includes(error.code)
}

interface Slot {
  opening?: Promise<Opened>
  opened?: Opened
}

const MAX_ROUNDS = 64

/** W11: telemetry of the requests to one upstream, which names it. Their spans are inside the span of the caller's round. */
function named(
  telemetry: NonNullable<ServerOptions['telemetry']>,
  peer: string,
): Pick<typeof telemetry, 'begin'> {
  return { begin: (operation) => telemetry.begin?.({ ...operation, peer }) }
}

/** Whether a server of this revision returns its questions. */
export function hasRounds(revision: string): boolean {
  return revision >= '2026'
}

/** Handlers for these kinds, which pass each question to the call that it belongs to. */
function answersFor(takers: Upstream['takers'], kinds: readonly QuestionKind[]): Answers {
  const take = (request: InputRequest, info: AskInfo): Promise<never> => {
    const taker = takers.get(info.request)
    if (taker === undefined) throw new Error('The question belongs to no open call')
    return taker(request, info) as Promise<never>
  }
  const elicit = (params: unknown, info: AskInfo): Promise<never> =>
    take({ method: 'elicitation/create', params } as InputRequest, info)
  const has = new Set(kinds)
  const elicitation = { ...(has.has('form') && { form: elicit }), ...(has.has('url') && { url: elicit }) }
  return {
    together: true,
    ...(Object.keys(elicitation).length > 0 && { elicitation }),
    ...(has.has('sampling') && {
      sampling: (params, info) => take({ method: 'sampling/createMessage', params }, info),
    }),
    ...(has.has('roots') && { roots: (params, info) => take({ method: 'roots/list', params }, info) }),
  }
}

/** Closes the connection that was unused for longest. Returns false if all are in use. */
function closeIdle(slots: ReadonlyMap<string, Slot>): boolean {
  const idle = [...slots.values()].flatMap(({ opened }) => (opened?.idle ? [opened] : []))
  const [oldest] = idle.sort((a, b) => a.usedAt - b.usedAt)
  oldest?.drop()
  return oldest !== undefined
}

function identityOf(name: string, { url, command, args, cwd }: UpstreamOptions): string {
  return createHash('sha256')
    .update(JSON.stringify([name, url, command, args, cwd]))
    .digest('base64url')
    .slice(0, 16)
}

/** A sentence without our code in front and without a full stop, to stand inside another one. */
export function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error)
  return displayText(text.replace(/^\[\w+\] /, ''))
    .slice(0, MAX_REASON)
    .replace(/\.$/, '')
}

interface Opened extends Connection {
  readonly idle: boolean
  readonly usedAt: number
  /** Ends the connection, even if it is used, and resolves when its process is gone. */
  close(): Promise<void>
}

interface OpenedParts {
  /** One call at a time. */
  readonly single: boolean
  readonly clock: Clock
  readonly limits: Required<HoldLimits>
  readonly name: string
  forget(): void
}

function createOpened(client: Client, { single, clock, limits, name, forget }: OpenedParts): Opened {
  let uses = 0
  let usedAt = clock.now()
  let dropped = false
  let turn: Promise<unknown> = Promise.resolve()
  let ending: Promise<void> | undefined
  const end = (): Promise<void> => {
    ending ??= client.close().catch(() => {})
    return ending
  }
  const drop = (): void => {
    if (dropped) return
    dropped = true
    stopIdle()
    forget()
    if (uses === 0) void end()
  }
  const armIdle = (): (() => void) => clock.after(limits.idleMs, drop)
  let stopIdle = armIdle()
  const keep = (): (() => void) => {
    let isKept = true
    uses += 1
    stopIdle()
    return () => {
      if (!isKept) return
      isKept = false
      uses -= 1
      usedAt = clock.now()
      if (uses === 0 && dropped) void end()
      else if (uses === 0) stopIdle = armIdle()
    }
  }
  return {
    client,
    rounds: hasRounds(client.protocolVersion),
    revision: client.protocolVersion,
    get idle() {
      return uses === 0
    },
    get usedAt() {
      return usedAt
    },
    drop,
    close() {
      drop()
      return end()
    },
    keep,
    async use(fn, signal) {
      const release = keep()
      let done = (): void => {}
      try {
        if (single) {
          const before = turn
          const own = new Promise<void>((resolve) => {
            done = resolve
          })
          // A call that gives up its place does not let the next one overtake those before it.
          turn = before.then(() => own)
          await inTime(before, clock, limits.queueMs, signal, name)
        }
        return await fn()
      } finally {
        done()
        release()
      }
    },
  }
}

/** Waits for the turn of a call. */
async function inTime(
  before: Promise<unknown>,
  clock: Clock,
  ms: number,
  signal: AbortSignal,
  name: string,
): Promise<void> {
  let stop = (): void => {}
  let onAbort = (): void => {}
  const late = new Promise<never>((_, reject) => {
    const busy =
      'another call of it is open, perhaps waiting for an answer, and a process of its revision serves one at a time'
    stop = clock.after(ms, () => reject(new UpstreamDown(name, busy, 0)))
    onAbort = () => reject(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
  })
  try {
    await Promise.race([before, late])
  } finally {
    stop()
    signal.removeEventListener('abort', onAbort)
  }
}
