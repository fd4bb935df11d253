/**
 * Creates the host of calls from options, for our own server and for a mount in another one.
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import type { FlowHost, FlowPlatform, RunningRound, StateCarrier, Tracer } from '../carry/host.ts'
import { createMigration, type MigrationMode, sealedWithHandles } from '../carry/migration.ts'
import { placeOfTask } from '../carry/task/journal.ts'
import { sealedStates } from '../carry/token.ts'
import { misuse } from '../errors.ts'
import { idle } from '../lib/clock.ts'
import { createRoster } from '../lib/collection.ts'
import { isRecord } from '../lib/json.ts'
import { type Codec, createCodecs } from '../protocol/codec.ts'
import { guardObserver } from '../protocol/observer.ts'
import type { Scope } from '../replay/run-state.ts'
import { deriveBytes, digest, drawId } from '../seal/envelope.ts'
import { type KeyHolder, resolveKeys } from '../seal/key-ring.ts'
import { LEASE_MS } from '../store/engine/lease-engine.ts'
import type { TaskHead } from '../store/task-engine.ts'
import { createOverload } from './limits.ts'
import { createEvents, createLog, type Log } from './log.ts'
import { assertEras, REVISIONS, resolveLimits, type ServerOptions } from './options.ts'
import { createTaskHost } from './task-work.ts'

type Shared =
  | 'keys'
  | 'sealSuite'
  | 'eras'
  | 'dev'
  | 'limits'
  | 'store'
  | 'tasks'
  | 'continuation'
  | 'maxRoundMs'
  | 'shed'
  | 'log'
  | 'logAuthorErrors'
  | 'telemetry'
  | 'instance'
  | 'now'
  | 'restTimer'
  | 'skipSleep'
  | 'randomId'

export interface HostOptions extends Pick<ServerOptions, Shared> {
  /** The service for which states are sealed. All instances of a service use the same. */
  audience: string
}

export interface OpenHost extends FlowHost {
  /** Sets `draining`. */
  drain(): void
  /** Stops timers. */
  close(): void
}

export function createHost(
  options: HostOptions & { tracer?: Tracer },
  keys: KeyHolder = resolveKeys(options.keys, { suite: options.sealSuite }),
  codecs: readonly Codec[] = REVISIONS.codecs,
): OpenHost {
  assertEras(options.eras)
  assertStore(options.store)
  const platform = createPlatform(options)
  const written = createLog({ ...options, now: platform.now })
  const { instance } = written
  const observer = guardObserver(options.telemetry, platform.now, (error) =>
    written.log({ event: 'warning', message: 'The telemetry threw; something was not observed', error }),
  )
  const log = createEvents(written, observer)
  const overload = createOverload(options.shed, platform.now, (error) =>
    log({ event: 'warning', message: 'The function `shed` threw; nothing is shed', error }),
  )
  const placeOf = (task: TaskHead) => host.tasks && placeOfTask(host, host.tasks, task)
  const host: OpenHost & { draining: boolean } = {
    audience: options.audience,
    codecs: createCodecs(codecs, options.eras),
    keys,
    limits: resolveLimits(options.limits),
    platform,
    dev: options.dev ?? false,
    skipSleep: options.skipSleep ?? options.dev ?? false,
    tracer: options.tracer,
    log,
    silent: written.observer.event === undefined && observer?.event === undefined,
    observer,
    instance,
    running: createRoster<RunningRound>(),
    draining: false,
    overloaded: overload.overloaded,
    maxRoundMs: options.maxRoundMs ?? Number.POSITIVE_INFINITY,
    states: chooseStates(options, platform, log),
    tasks: createTaskHost(options, { log, instance, observer, placeOf }),
    leaseMs: options.tasks?.leaseMs ?? LEASE_MS,
    store: options.store,
    drain() {
      host.draining = true
    },
    close() {
      keys.close()
      overload.close()
    },
  }
  return host
}

// Captured here: a test that replaces the global timers must not stop the timers of the runtime.
const { setTimeout, clearTimeout } = globalThis

/** Beyond this a timer fires at once. */
const MAX_DELAY_MS = 2 ** 31 - 1

const scope: Scope = { storage: new AsyncLocalStorage<object>(), running: 0 }

/** What replay needs of its environment, on Node and on runtimes that have its crypto. */
function createPlatform({
  now = Date.now,
  randomId = drawId,
  restTimer: rest,
}: Pick<HostOptions, 'now' | 'randomId' | 'restTimer'>): FlowPlatform {
  return {
    now,
    randomId,
    idle,
    digest,
    derive: deriveBytes,
    after(ms, fn) {
      const timer = setTimeout(fn, Math.min(ms, MAX_DELAY_MS))
      return () => clearTimeout(timer)
    },
    rest,
    scope,
  }
}

const MODES: readonly MigrationMode[] = ['stored', 'dual', 'sealed-first', 'sealed']

function chooseStates(
  { continuation: mode = 'sealed', store }: Pick<ServerOptions, 'continuation' | 'store'>,
  { randomId }: FlowPlatform,
  log: Log,
): StateCarrier {
  if (!MODES.includes(mode)) {
    throw misuse(`continuation must be one of ${MODES.join(', ')}; got ${JSON.stringify(mode)}.`)
  }
  if (mode === 'sealed') return store ? sealedWithHandles(store.blobs) : sealedStates
  if (!store) throw misuse(`continuation: '${mode}' needs a store: createServer({ store, … })`)
  return createMigration({
    mode,
    blobs: store.blobs,
    randomId,
    report: (finding) => log({ event: 'continuation', ...finding }),
  })
}

/** The address of a database is an easy mistake, and may contain a password: no message shows what was given. */
function assertStore(store: unknown): void {
  if (store === undefined || isRecord(store)) return
  throw misuse(
    `store must be a store, such as createPostgresStore({ connectionString }); got ${store === null ? 'null' : `a value of the type ${typeof store}`}.`,
  )
}
