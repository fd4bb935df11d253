/**
 * The options of a server, their defaults and their checks. This is the only file of `serve/` that knows drafts.
 */

import type { FlowLimits } from '../carry/host.ts'
import type { MigrationMode } from '../carry/migration.ts'
import { DRAFT_2026_V1, type DRAFT_VERSION } from '../drafts/draft-2026-v1/codec.ts'
import { attachTurns } from '../drafts/turns/serve.ts'
import type { TurnsOptions } from '../drafts/turns/turn-state.ts'
import { assertOptions, didYouMean, misuse } from '../errors.ts'
import type { Every } from '../lib/clock.ts'
import type { LogOptions } from '../log/log.ts'
import type { Codec } from '../protocol/codec.ts'
import type { Observer } from '../protocol/observer.ts'
import { CODECS, type PublishedEra } from '../protocol/revisions.ts'
import type { KeyRing, KeySource } from '../seal/key-ring.ts'
import { STATE_LIMITS } from '../seal/state.ts'
import type { AttachDraft } from '../session/older.ts'
import type { SessionOptions } from '../session/options.ts'
import type { EngineStore, Store } from '../store/store.ts'
import type { OnEngineEvent } from '../store/task-engine.ts'
import type { CachePolicy } from '../tool/definition.ts'
import { TEXT_BOUNDS } from '../tool/schema/judge.ts'
import { assertInterval } from './heartbeat.ts'
import type { AdmissionOptions } from './http/admission.ts'
import type { Authenticate } from './http/authenticate.ts'
import type { FetchOptions } from './http/fetch.ts'
import type { Shed, WeightOptions } from './limits.ts'
import type { ChangeBus } from './port.ts'

export interface HttpOptions extends AdmissionOptions {
  /** Identifies the caller. Without it every caller is anonymous. */
  authenticate?: Authenticate
  /** Subscriptions that may be open at once. */
  maxSubscriptions?: number
  /** Subscriptions that one caller may have open: an authenticated one, or an address. */
  maxSubscriptionsPerCaller?: number
  /** Bytes of the URIs and task ids that one subscription may name. */
  maxSubscriptionBytes?: number
  /** The header in which your proxy sends the caller's address, such as `x-forwarded-for`. Only behind a proxy that sets it. */
  addressHeader?: string
  /** Interval of the keep-alive comments on an open stream. */
  keepAliveMs?: number
  /** How long a call may be silent before it sends a heartbeat; 0 for never. */
  heartbeatMs?: number
  /** Bytes that a client may leave unread before progress is dropped and a subscription is cut. */
  maxBacklogBytes?: number
  /** Receives errors that no client is told about. */
  onError?: (error: unknown) => void
  /**
   * Receives the reason with which `authenticate` refuses a request, or the error with which it fails. `caller` stands for the
   * address, if that is known.
   */
  onRefused?: (status: number, reason: string, caller?: string, error?: unknown) => void
  /** The timer of heartbeats and keep-alives. */
  every?: Every
  /** Clients of earlier eras get no session. */
  stateless?: boolean
  /** Calls share no timer: on some platforms a timer of one request may not write to another. */
  isolated?: boolean
}

export interface ServerOptions
  extends Omit<HttpOptions, 'onError' | 'onRefused' | 'every' | 'stateless' | 'isolated'>,
    FetchOptions,
    WeightOptions,
    LogOptions,
    DraftOptions {
  /** The server's name: shown by clients, and the default `audience`. */
  name: string
  version: string
  title?: string
  /** How a model should use this server. */
  instructions?: string
  /** `name:base64,…`, a key source, or a ring. Default: the environment variable `RONDO_KEYS`, else a development key. */
  keys?: string | KeySource | KeyRing
  /** The service for which states are sealed. All instances of a service use the same. Default: `name`. */
  audience?: string
  /** Runs every round twice and reports the first difference; sends errors of handlers to the client. Default: false. */
  dev?: boolean
  /** `ctx.sleep` returns at once, as if the time had passed. Default: in development mode only. */
  skipSleep?: boolean
  limits?: Partial<FlowLimits>
  /** Drops arguments that are not in the input schema before checking: some hosts add their own. Default: false. */
  dropUnknownArguments?: boolean
  /** A database that instances share, for tasks, single-use records and journals that are too large for a token. */
  store?: Store | EngineStore
  /** Where journals are kept between rounds; all modes but `sealed` need a `store`. Default: `sealed`. */
  continuation?: MigrationMode
  /** Hands a call back at its next step or ask once its round has run this long. Default: never. */
  maxRoundMs?: number
  /** Hands calls back at their next step or ask while this instance is overloaded. Default: never. */
  shed?: Shed
  /** Entries on one page of a list. Default: 1000. */
  pageSize?: number
  /** How long clients may cache lists. Default: a minute; `public` unless callers are authenticated. */
  listCache?: CachePolicy
  /**
   * Which clients are served: those of 2026-07-28, those of 2025-11-25 and older, those of the draft in between.
   * Default: all.
   */
  eras?: readonly Era[]
  /**
   * Sessions of clients up to 2025-11-25. With `false` they get none and cannot be asked. `server.fetch` has sessions only
   * if this is set, because the platforms it is for share no memory between requests.
   */
  sessions?: SessionOptions | false
  /** Carries changes between instances. Default: within this process. */
  changes?: ChangeBus
  tasks?: TaskOptions
  /** Observes rounds, tasks and other requests: `otel()` from `rondo/otel`, or an observer of your own. Default: none. */
  telemetry?: Observer
  /** The clock, in ms since the epoch. */
  now?: () => number
  /** The timer of a request that only sleeps, for tests: calls `fn` after `ms`, unless the returned function is called first. */
  restTimer?: (ms: number, fn: () => void) => () => void
  /** Returns an unguessable id. */
  randomId?: () => string
}

export interface TaskOptions {
  /** How long a task lives after its creation, unless its tool says otherwise. Default: a day. */
  ttlMs?: number
  /**
   * How long a task may live because it sleeps, or because a question or hook of it is open for a limited time (`within`). It then
   * lives for `ttlMs` from the end of that wait on. A longer wait fails at once. Default: 30 days.
   */
  maxTtlMs?: number
  /** How often clients should poll a task, unless its tool says otherwise; a new task sooner, from a twelfth on. Default: a second. */
  pollMs?: number
  /** Tasks that this process runs at the same time; 0 leaves them to other processes. Default: 16. */
  concurrency?: number
  /**
   * Adds the tools `task_status` and `task_cancel`, for hosts that cannot follow tasks: a call that becomes a task then returns a
   * sentence with its id. `waitMs` is how long `task_status` waits for a task that is working (default: 25 s). Default: false.
   */
  tools?: boolean | { waitMs?: number }
  /**
   * Passes the tasks that a request names as related (`io.modelcontextprotocol/relatedTaskIds`, a draft) to the handler as
   * `ctx.relatedTaskIds`, if they are the caller's own. Default: false, and the field is ignored.
   */
  related?: boolean
  /** Sealed bytes of the arguments, of one step's result, of a question or of the result. Default: 16 MiB. */
  maxPieceBytes?: number
  /** Sealed bytes of one task's journal; multiplied by `maxOpen`, what one caller can store. Default: 16 MiB. */
  maxJournalBytes?: number
  /** Unfinished tasks that one caller may have. Default: 100. */
  maxOpen?: number
  /** Ended tasks that are kept for one caller; beyond it, those that ended first are deleted. Default: 1000. */
  maxEnded?: number
  /** Bytes of the ended tasks that are kept for one caller. Default: 64 MiB. */
  maxEndedBytes?: number
  /** Receives events about the queue, lost leases and turns that threw. */
  onEvent?: OnEngineEvent
  /** How long a worker without a heartbeat keeps a task. Default: 15 s. */
  leaseMs?: number
}

/** The versions that work alike, named after the newest of them. */
export type Era = PublishedEra | typeof DRAFT_VERSION

export interface DraftOptions {
  /**
   * How questions go to clients that declare the experimental capabilities `multi-turn-sse` and `request-state`.
   * `false`: these clients are served like any other of their revision.
   */
  turns?: TurnsOptions | false
}

interface Revisions {
  readonly codecs: readonly Codec[]
  /** What the drafts add to the sessions of a server with these options. */
  attach(options: DraftOptions): AttachDraft | undefined
}

/** The revisions that a server speaks by default, and the hook by which drafts extend its sessions. */
export const REVISIONS: Revisions = {
  codecs: [...CODECS, DRAFT_2026_V1],
  attach: ({ turns }) => (turns === false ? undefined : attachTurns(turns)),
}

/** An era is named after its newest version. */
const ERAS: readonly (string | undefined)[] = REVISIONS.codecs.map(({ versions: [newest] }) => newest)

export function assertEras(eras: readonly Era[] | undefined): void {
  if (eras === undefined || (eras.length > 0 && eras.every((era) => ERAS.includes(era)))) return
  throw misuse(`eras must be a non-empty list of ${ERAS.join(', ')}; got ${JSON.stringify(eras)}.`)
}

const MINUTE = 60_000

export const DEFAULT_LIMITS: FlowLimits = {
  ...STATE_LIMITS,
  maxStoredBytes: 1024 * 1024,
  maxRememberedBytes: 16 * 1024 * 1024,
  maxRounds: 32,
  promoteRounds: 8,
  maxMoves: 4,
  roundTtlMs: 60 * MINUTE,
  flowTtlMs: 24 * 60 * MINUTE,
  maxEntries: 1000,
  maxQuestions: 16,
  maxReasks: 3,
  maxDeferMs: 10_000,
  maxInlineSleepMs: 10_000,
  slowHandlerMs: MINUTE,
  ...TEXT_BOUNDS,
}

/** The defaults, overridden by what is given. Throws if a limit is not a number of 0 or more. */
export function resolveLimits(given: Partial<FlowLimits> = {}): FlowLimits {
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(DEFAULT_LIMITS, name))
      throw misuse(`There is no limit named "${name}".${didYouMean(name, DEFAULT_LIMITS)}`)
    if (value !== undefined && !(Number.isFinite(value) && value >= 0)) {
      throw misuse(`limits.${name} must be a number of 0 or more.`)
    }
  }
  const set = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
  return { ...DEFAULT_LIMITS, ...set }
}

const COUNTS = [
  'maxSubscriptions',
  'maxSubscriptionsPerCaller',
  'maxSubscriptionBytes',
  'maxBacklogBytes',
] as const

export function assertHttpOptions(options: HttpOptions): void {
  for (const name of COUNTS) {
    const value: unknown = options[name]
    if (value !== undefined && !(typeof value === 'number' && value >= 0)) {
      throw misuse(`${name} must be a number of 0 or more.`)
    }
  }
  assertInterval('keepAliveMs', options.keepAliveMs, 1)
  assertInterval('heartbeatMs', options.heartbeatMs, 0)
  const { addressHeader } = options
  if (addressHeader !== undefined && (typeof addressHeader !== 'string' || !/^[\w-]+$/.test(addressHeader))) {
    throw misuse('addressHeader must be the name of a header, such as x-forwarded-for.')
  }
}

const FROM_LISTEN = {
  allowedHosts: true,
  allowedOrigins: true,
  retryAfterSeconds: true,
  authenticate: true,
  maxSubscriptions: true,
  maxSubscriptionsPerCaller: true,
  maxSubscriptionBytes: true,
  addressHeader: true,
  keepAliveMs: true,
  heartbeatMs: true,
  maxBacklogBytes: true,
  maxBodyBytes: true,
} as const

/** What `listen` takes besides its own options. */
export const HTTP_OPTIONS: Readonly<Record<keyof HttpOptions | 'maxBodyBytes', true>> = {
  ...FROM_LISTEN,
  onError: true,
  onRefused: true,
  every: true,
  stateless: true,
  isolated: true,
}

const SERVER_OPTIONS: Readonly<Record<keyof ServerOptions | 'every', true>> = {
  ...FROM_LISTEN,
  every: true,
  name: true,
  version: true,
  maxDepth: true,
  maxMessageWeight: true,
  maxWeightInFlight: true,
  maxWeightInFlightPerCaller: true,
  title: true,
  instructions: true,
  keys: true,
  audience: true,
  dev: true,
  skipSleep: true,
  limits: true,
  dropUnknownArguments: true,
  store: true,
  continuation: true,
  maxRoundMs: true,
  shed: true,
  pageSize: true,
  listCache: true,
  eras: true,
  sessions: true,
  changes: true,
  tasks: true,
  telemetry: true,
  now: true,
  restTimer: true,
  randomId: true,
  log: true,
  logAuthorErrors: true,
  instance: true,
  turns: true,
}

const TASK_OPTIONS: Readonly<Record<keyof TaskOptions, true>> = {
  ttlMs: true,
  maxTtlMs: true,
  pollMs: true,
  concurrency: true,
  tools: true,
  related: true,
  maxPieceBytes: true,
  maxJournalBytes: true,
  maxOpen: true,
  maxEnded: true,
  maxEndedBytes: true,
  onEvent: true,
  leaseMs: true,
}

/** A text such as 'false', from a variable of the environment, would count as true. */
const SWITCHES = ['dev', 'skipSleep', 'logAuthorErrors'] as const

/** Options of `listen` that are looked for here. */
const OF_LISTEN = [
  'port',
  'host',
  'path',
  'health',
  'ready',
  'signals',
  'graceMs',
  'drainDelayMs',
  'releasePort',
]

export function assertServerOptions(options: ServerOptions): void {
  const given: Readonly<Record<string, unknown>> = { ...options }
  const misplaced = OF_LISTEN.find((name) => given[name] !== undefined)
  if (misplaced !== undefined) {
    throw misuse(`${misplaced} is an option of listen, not of createServer: server.listen({ ${misplaced} })`)
  }
  assertOptions('createServer', options, SERVER_OPTIONS)
  for (const name of SWITCHES) {
    const value: unknown = options?.[name]
    if (value !== undefined && typeof value !== 'boolean') {
      throw misuse(`createServer: ${name} must be true or false; got ${JSON.stringify(value)}.`)
    }
  }
  assertIdentity(options)
  assertOptions('createServer: tasks', options.tasks, TASK_OPTIONS)
}

function assertIdentity({ name, version }: Partial<ServerOptions> = {}): void {
  if (typeof name !== 'string' || name === '' || typeof version !== 'string' || version === '') {
    throw misuse(
      "createServer needs a name and a version: createServer({ name: 'tracker', version: '1.0.0' })",
    )
  }
}
