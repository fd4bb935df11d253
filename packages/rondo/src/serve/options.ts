/**
 * The options of a server, their defaults and their checks. This is the only file of `serve/` that knows drafts.
 */

import type { FlowLimits } from '../carry/host.ts'
import type { MigrationMode } from '../carry/migration.ts'
import { DRAFT_2026_V1, type DRAFT_VERSION } from '../drafts/draft-2026-v1/codec.ts'
import { attachTurns } from '../drafts/turns/serve.ts'
import type { TurnsOptions } from '../drafts/turns/turn-state.ts'
import { misuse } from '../errors.ts'
import type { Every } from '../lib/clock.ts'
import type { LogOptions } from '../log/log.ts'
import {
  callable,
  defineOptions,
  flag,
  number,
  type Option,
  type OptionSet,
  type OptionsOf,
  unchecked,
} from '../options.ts'
import type { Codec } from '../protocol/codec.ts'
import type { Observer } from '../protocol/observer.ts'
import { CODECS, type PublishedEra } from '../protocol/revisions.ts'
import type { KeyRing, KeySource } from '../seal/key-ring.ts'
import { STATE_LIMITS } from '../seal/state.ts'
import type { AttachDraft } from '../session/older.ts'
import type { SessionOptions } from '../session/options.ts'
import { ENGINE_DEFAULTS } from '../store/engine/lease-engine.ts'
import type { EngineStore, Store } from '../store/store.ts'
import type { OnEngineEvent } from '../store/task-engine.ts'
import type { CachePolicy } from '../tool/definition.ts'
import { POLL_RANGE, TTL_RANGE } from '../tool/registry.ts'
import { TEXT_BOUNDS } from '../tool/schema/judge.ts'
import type { AllowListOptions } from './http/admission.ts'
import type { Authenticate } from './http/authenticate.ts'
import { BODY_OPTIONS, type FetchOptions } from './http/fetch.ts'
import { HTTP_LIMITS, type HttpLimits, type Shed, WEIGHTS, type WeightOptions } from './limits.ts'
import type { ChangeBus } from './port.ts'

export interface HttpOptions extends AllowListOptions, HttpLimits {
  /**
   * Identifies the caller; returns a principal, or a refusal with a status. `oauthResource` of `rondo/oauth` makes one. Default:
   * every caller is anonymous.
   *
   * @see docs/guide/protect-a-server.md
   */
  authenticate?: Authenticate
  /**
   * The header in which your proxy sends the caller's address, such as `x-forwarded-for`; its last entry counts. Set it only behind a
   * proxy that sets the header. Default: the connection's address.
   */
  addressHeader?: string
  /** Receives errors that no client is told about. Default: none. */
  onError?: (error: unknown) => void
  /**
   * Receives the reason with which `authenticate` refuses a request, or the error with which it fails. `caller` stands for the
   * address, if that is known. Default: none.
   */
  onRefused?: (status: number, reason: string, caller?: string, error?: unknown) => void
  /** The timer of heartbeats and keep-alives. Default: `setInterval`. */
  every?: Every
  /** Clients of earlier eras get no session. Default: `false`. */
  stateless?: boolean
  /** Calls share no timer: on some platforms a timer of one request may not write to another. Default: `false`. */
  isolated?: boolean
}

/** Options that `createServer` and `createRondo` have in common. */
export interface SharedOptions extends LogOptions {
  /**
   * `name:base64,…`, a key source, or a ring. Default: the environment variable `RONDO_KEYS`, else a development key.
   *
   * @see docs/guide/05-keys.md
   */
  keys?: string | KeySource | KeyRing
  /** The clients to serve: `2026-07-28`, `2025-11-25` (and older), `DRAFT-2026-v1`. Default: all. */
  eras?: readonly Era[]
  /** Runs every round twice and reports the first difference; sends handler errors to the client. Default: `false`. */
  dev?: boolean
  /** `ctx.sleep` returns at once, as if the time had passed; each skipped sleep is logged. Default: `dev`. */
  skipSleep?: boolean
  /** Limits of a flow. Default: the default of each limit. */
  limits?: Partial<FlowLimits>
  /**
   * A database that instances share. It keeps tasks and their hooks, single-use records, sessions and open calls of older clients, and
   * journals that are too large for a token. Default: none.
   *
   * @see docs/reference/stores.md
   */
  store?: Store | EngineStore
  /** Options of tasks. Default: the default of each option. */
  tasks?: TaskOptions
  /**
   * Where journals are kept between rounds; all modes but `sealed` need a `store`. Default: `sealed`.
   *
   * @see docs/migrate/from-stored-to-sealed.md
   */
  continuation?: MigrationMode
  /** Hands a call back at its next step or question once its round has run this long. Default: never. */
  maxRoundMs?: number
  /** `{ eventLoopDelayMs }` or a function: hands calls back at their next step or question while this instance is overloaded. Default: never. */
  shed?: Shed
  /**
   * Observes rounds, tasks and other requests: `otel()` from `rondo/otel`, or an observer of your own. Default: none.
   *
   * @see docs/reference/telemetry.md
   */
  telemetry?: Observer
  /** The clock, in ms since the epoch. Default: `Date.now`. */
  now?: () => number
  /** The timer of a request that only sleeps, for tests: calls `fn` after `ms`, unless the returned function is called first. Default: `setTimeout`. */
  restTimer?: (ms: number, fn: () => void) => () => void
  /** Generates ids that nobody can guess. Default: 16 random bytes. */
  randomId?: () => string
}

export const SHARED_OPTIONS: OptionsOf<SharedOptions> = {
  log: unchecked(),
  logAuthorErrors: flag(),
  instance: unchecked(),
  keys: unchecked(),
  eras: unchecked(),
  dev: flag(false),
  skipSleep: flag(),
  limits: unchecked(),
  store: unchecked(),
  tasks: unchecked(),
  continuation: unchecked(),
  maxRoundMs: number(),
  shed: unchecked(),
  telemetry: unchecked(),
  now: callable(),
  restTimer: callable(),
  randomId: callable(),
}

export interface ServerOptions
  extends SharedOptions,
    Omit<HttpOptions, 'onError' | 'onRefused' | 'every' | 'stateless' | 'isolated'>,
    FetchOptions,
    WeightOptions,
    DraftOptions {
  /** The server's name, shown by clients. States are sealed for it, unless `audience` is set. */
  name: string
  /** The server's version. */
  version: string
  /** A display name. Default: none. */
  title?: string
  /** How a model should use this server. Default: none. */
  instructions?: string
  /** The service that states are sealed for; the same on all instances of one service. Default: `name`. */
  audience?: string
  /**
   * Drops arguments that the schema does not name before validation, for hosts that add their own; can be set per tool. Default: `false`.
   *
   * @see docs/guide/02-asking.md#arguments-that-nobody-asked-for
   */
  dropUnknownArguments?: boolean
  /** Entries per page of a list. Default: 1000. */
  pageSize?: number
  /** `{ ttlMs, scope }`: how long clients may cache lists. Default: a minute; `public` unless callers are authenticated. */
  listCache?: CachePolicy
  /**
   * Sessions of clients up to 2025-11-25; with `false` they get none and cannot be asked. `server.fetch` has sessions only
   * if this is set, because the platforms it is for share no memory between requests. Default: the default of each
   * option.
   */
  sessions?: SessionOptions | false
  /** Delivers list changes and resource updates to subscribers; one that instances share notifies the subscribers of all. Default: the store's bus, else this process. */
  changes?: ChangeBus
}

export interface TaskOptions {
  /**
   * How long a task lives, unless its tool sets `taskTtlMs`; counted from the end of the last sleep or time limit (`within`) that it
   * waits for, if that is later. Default: 1 day.
   */
  ttlMs?: number
  /**
   * How long such a wait may keep a task alive, counted from its creation. A sleep or a `within` that ends later fails at once with
   * `LIMIT_SLEEP`. Default: 30 days.
   */
  maxTtlMs?: number
  /** How often clients should poll a task, unless its tool sets `taskPollMs`; a new task sooner, from a twelfth on. Default: 1 s. */
  pollMs?: number
  /** Tasks that this process runs at the same time; 0 leaves them to others. Default: 16. */
  concurrency?: number
  /**
   * Adds the tools `task_status` and `task_cancel`, for hosts that cannot follow tasks: a call that becomes a task then returns a
   * sentence with its id. `{ waitMs }` sets how long `task_status` waits for a task that is working (25 s). Default: `false`.
   *
   * @see docs/guide/14-tasks.md#hosts-that-cannot-follow-tasks
   */
  tools?: boolean | { waitMs?: number }
  /**
   * Passes the tasks that a request names in `_meta["io.modelcontextprotocol/relatedTaskIds"]`, a draft of the tasks extension, to the
   * handler as `ctx.relatedTaskIds`, if they are the caller's own; 16 at most. Default: `false`.
   */
  related?: boolean
  /** Bytes of one sealed value: the arguments, one step, one question or the result. Then `LIMIT_STATE_BYTES`. Default: 16 MiB. */
  maxPieceBytes?: number
  /** Bytes of the journal of one task, sealed; multiplied by `maxOpen`, what one caller can store. Then `LIMIT_STATE_BYTES`. Default: 16 MiB. */
  maxJournalBytes?: number
  /** Open tasks per caller. Default: 100. */
  maxOpen?: number
  /**
   * Ended tasks that are kept for a caller. Beyond it, those that ended first are deleted before they expire. Default: 1000.
   *
   * @see docs/reference/stores.md#limits-and-lifetimes
   */
  maxEnded?: number
  /** Bytes of the results, errors and messages of the ended tasks that are kept for a caller. Default: 64 MiB. */
  maxEndedBytes?: number
  /**
   * How long a failed task keeps its journal, so that an operator can examine and retry it; 0 for not at all. Needs a store with
   * a part for operators: SQLite and PostgreSQL have it. Default: 1 day.
   *
   * @see docs/guide/operate-tasks.md
   */
  keepFailedMs?: number
  /** Stores the name of a task's tool in the clear, so that operators can list by it without the keys. Default: `false`. */
  listTools?: boolean
  /** Receives events about the queue, lost leases and turns that threw. Default: none. */
  onEvent?: OnEngineEvent
  /**
   * How long a worker may keep a task, or an instance a running call of an older client, without a heartbeat; twice as long for single
   * use. Default: 15 s.
   *
   * @see docs/guide/15-production.md#calls-that-wait
   */
  leaseMs?: number
}

/** The options of tasks, with their defaults. */
export interface TaskSettings extends Required<Omit<TaskOptions, 'onEvent'>> {
  readonly onEvent?: OnEngineEvent
}

const DAY_MS = 86_400_000
const { maxOpenTasks, maxEndedTasks, maxEndedBytes, maxJournalBytes, leaseMs } = ENGINE_DEFAULTS

const TASKS = defineOptions('tasks', {
  ttlMs: number(DAY_MS, TTL_RANGE),
  maxTtlMs: number(30 * DAY_MS, TTL_RANGE),
  pollMs: number(1_000, POLL_RANGE),
  concurrency: number(16),
  tools: unchecked<boolean | { waitMs?: number }>(false),
  related: flag(false),
  maxPieceBytes: number(16 * 1_048_576),
  maxJournalBytes: number(maxJournalBytes),
  maxOpen: number(maxOpenTasks),
  maxEnded: number(maxEndedTasks),
  maxEndedBytes: number(maxEndedBytes),
  keepFailedMs: number(DAY_MS, { min: 0, max: 366 * DAY_MS }),
  listTools: flag(false),
  onEvent: callable<OnEngineEvent | undefined>(),
  leaseMs: number(leaseMs, { min: 1 }),
} satisfies OptionsOf<TaskOptions>)

/** `of` names the option in messages: `createServer: tasks`. */
export function readTaskOptions(given: TaskOptions | undefined, of?: string): TaskSettings {
  return TASKS.read(given, of)
}

/** The versions that work alike, named after the newest of them. */
export type Era = PublishedEra | typeof DRAFT_VERSION

export interface DraftOptions {
  /**
   * How questions go to clients that declare the experimental capabilities `multi-turn-sse` and `request-state`.
   * With `false`, these clients are served like any other of their revision. Default: the default of each option.
   *
   * @see docs/guide/13-drafts.md
   */
  turns?: TurnsOptions | false
}

interface Revisions {
  readonly codecs: readonly Codec[]
  /** The part that the drafts add to the sessions of a server with these options. */
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

const limit = (initial: number): Option<number> => number(initial, { finite: true })

const LIMITS: OptionSet<OptionsOf<FlowLimits>> = defineOptions('limits', {
  maxRounds: limit(32),
  promoteRounds: limit(8),
  maxMoves: limit(4),
  roundTtlMs: limit(60 * MINUTE),
  flowTtlMs: limit(24 * 60 * MINUTE),
  maxEntries: limit(1000),
  maxQuestions: limit(16),
  maxReasks: limit(3),
  maxInlineSleepMs: limit(10_000),
  slowHandlerMs: limit(MINUTE),
  maxDeferMs: limit(10_000),
  maxTextLength: limit(TEXT_BOUNDS.maxTextLength),
  maxPatternText: limit(TEXT_BOUNDS.maxPatternText),
  maxBytes: limit(STATE_LIMITS.maxBytes),
  maxRememberedBytes: limit(16 * 1_048_576),
  maxStoredBytes: limit(1_048_576),
  warnBytes: limit(STATE_LIMITS.warnBytes),
  clockSkewMs: limit(STATE_LIMITS.clockSkewMs),
})

/** The limits of a flow, with their defaults. `of` names the option in messages: `createServer: limits`. */
export function resolveLimits(given: Partial<FlowLimits> = {}, of?: string): FlowLimits {
  return LIMITS.read(given, of)
}

const HEADER_NAME = /^[\w-]+$/

const FROM_LISTEN = {
  ...HTTP_LIMITS.table,
  allowedHosts: unchecked(),
  allowedOrigins: unchecked(),
  authenticate: unchecked(),
  addressHeader: {
    initial: undefined,
    mustBe: (value: unknown) =>
      typeof value === 'string' && HEADER_NAME.test(value)
        ? undefined
        : 'the name of a header, such as x-forwarded-for',
  },
  ...BODY_OPTIONS.table,
} satisfies Partial<OptionsOf<ServerOptions>>

/** The options that `listen` has besides its own. */
export const HTTP_OPTIONS: OptionsOf<HttpOptions & FetchOptions> = {
  ...FROM_LISTEN,
  onError: callable(),
  onRefused: callable(),
  every: callable(),
  stateless: flag(),
  isolated: flag(),
}

const SERVER_OPTIONS = defineOptions('createServer', {
  ...SHARED_OPTIONS,
  ...FROM_LISTEN,
  ...WEIGHTS.table,
  name: unchecked(),
  version: unchecked(),
  title: unchecked(),
  instructions: unchecked(),
  audience: unchecked(),
  dropUnknownArguments: flag(false),
  pageSize: number(1_000, { min: 1 }),
  listCache: unchecked(),
  sessions: unchecked(),
  changes: unchecked(),
  turns: unchecked(),
  /** For tests. */
  every: callable(),
} satisfies OptionsOf<ServerOptions & Pick<HttpOptions, 'every'>>)

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

/** Throws if an option does not exist or has an invalid value. */
export function readServerOptions(options: ServerOptions): ServerOptions & { pageSize: number } {
  const given: Readonly<Record<string, unknown>> = { ...options }
  const misplaced = OF_LISTEN.find((name) => given[name] !== undefined)
  if (misplaced !== undefined) {
    throw misuse(`${misplaced} is an option of listen, not of createServer: server.listen({ ${misplaced} })`)
  }
  const { pageSize } = SERVER_OPTIONS.read(options)
  assertIdentity(options)
  readTaskOptions(options.tasks, 'createServer: tasks')
  resolveLimits(options.limits, 'createServer: limits')
  return { ...options, pageSize }
}

function assertIdentity({ name, version }: Partial<ServerOptions> = {}): void {
  if (typeof name !== 'string' || name === '' || typeof version !== 'string' || version === '') {
    throw misuse(
      "createServer needs a name and a version: createServer({ name: 'tracker', version: '1.0.0' })",
    )
  }
}
