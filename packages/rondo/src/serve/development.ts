/**
 * Development mode for a whole process: `rondo play` and `rondo console` install a hook before they load a file, and every
 * server that is created afterwards uses it, whichever copy of this package the file imports. A process without the hook
 * is not affected.
 *
 * The hook sees content (answers, results, messages of errors), which no log of ours does. It exists only where the
 * person at the keyboard started the server for themselves, on loopback.
 */

import type { TracedRound, Tracer } from '../carry/host.ts'
import type { Entry, Journal } from '../journal/journal.ts'
import type { LogEvent, RoundLine } from '../log/event.ts'
import { createLog } from '../log/log.ts'
import type { Principal } from '../protocol/call.ts'
import type { InputRequest } from '../protocol/wire.ts'
import type { RunTrace } from '../replay/input.ts'
import type { EngineStore, Store } from '../store/store.ts'
import type { EngineEvent } from '../store/task-engine.ts'
import type { ServerOptions } from './options.ts'

export interface Development {
  log?(event: LogEvent): void
  round?(event: RoundLine, operations: readonly TracedOperation[]): void
  /** Called from time to time while a round takes long. */
  running?(round: UnendedRound): void
  task?(event: EngineEvent): void
  /** Milliseconds by which the clock of the current request is ahead. */
  skewMs?(): number
  /** The caller of the current request, for a server that does not authenticate callers itself. */
  principal?(): Principal | undefined
  /** Keys of the questions that the current request finds with other wording, as after a deploy. */
  reworded?(): readonly string[]
  /** Called with the store of every server that has one. */
  store?(store: Store | EngineStore): void
  /** Called by `listen` and `stdio` instead of serving, while a file is loaded whose server this process is to serve. */
  onServe?: () => void
  /** Options that take the place of the server's own. */
  replace?(options: Affected): Partial<Affected>
  /** What was mounted on servers that are not ours, which cannot stop it. */
  mounted?: Mounted[]
  /** The origin at which the routes of extensions are served. */
  pages?: string
}

interface Mounted {
  drain(): void
  close(): Promise<void>
}

/** What one operation of a handler did in one round. */
export interface TracedOperation {
  readonly key: string
  readonly kind: string
  /** `held`: a step or an effect that was reached and has not run. `failed`: it threw. */
  readonly state: 'ran' | 'failed' | 'replayed' | 'answered' | 'asked' | 'held' | 'running'
  /** From the call to the end of the work, for what ran. */
  readonly ms?: number
  /** The recorded answer or result as JSON, cut off where it is long. */
  readonly value?: string
  readonly effectKey?: string
  /** Attempts that failed in this round and are retried. */
  readonly failedAttempts?: number
  /** The line of the author's file that called it. */
  readonly source?: string
}

/** A round that has not ended. */
export interface UnendedRound extends TracedRound {
  readonly operations: readonly TracedOperation[]
  readonly status?: string
}

const SLOT = Symbol.for('rondo.development')

type Slot = { [SLOT]?: Development }

/** Puts every server that this process creates from now on into development mode. */
export function develop(hook: Development): void {
  const slot = globalThis as Slot
  slot[SLOT] = hook
}

/**
 * Runs `load`, during which no server of this process serves by itself: `onServe` is called instead. A file that also does
 * more than it exports would otherwise open its real port before the command can refuse it.
 */
export async function loadInDevelopment<T>(load: () => Promise<T>, onServe: () => void): Promise<T> {
  const hook = (globalThis as Slot)[SLOT]
  if (hook === undefined) return load()
  hook.onServe = onServe
  try {
    return await load()
  } finally {
    hook.onServe = undefined
  }
}

/** A promise that never settles if the server must not serve now. */
export function heldInDevelopment(): Promise<never> | undefined {
  const onServe = (globalThis as Slot)[SLOT]?.onServe
  if (onServe === undefined) return undefined
  onServe()
  return new Promise(() => {})
}

/** Runs `work` with a hook, for the servers that it creates. */
export async function developing<T>(hook: Development, work: () => T | Promise<T>): Promise<T> {
  const slot = globalThis as Slot
  const before = slot[SLOT]
  slot[SLOT] = hook
  try {
    return await work()
  } finally {
    slot[SLOT] = before
  }
}

type Affected = Pick<
  ServerOptions,
  | 'dev'
  | 'keys'
  | 'log'
  | 'logAuthorErrors'
  | 'instance'
  | 'now'
  | 'restTimer'
  | 'tasks'
  | 'authenticate'
  | 'store'
  | 'skipSleep'
>

/** What development mode adds to the options. */
interface Added {
  tracer?: Tracer
  /** Who calls, if the server has not found out. */
  developer?: () => Principal | undefined
}

/** The options as development mode wants them; unchanged in a process without the hook. */
export function inDevelopment<O extends Affected>(options: O): O & Added {
  const hook = (globalThis as Slot)[SLOT]
  if (hook === undefined) return options
  const now = options.now ?? Date.now
  if (options.store) hook.store?.(options.store)
  return {
    ...options,
    dev: options.dev ?? true,
    // Whoever watches wants to see a call sleep.
    skipSleep: options.skipSleep ?? (hook.round ? false : undefined),
    now: hook.skewMs ? () => now() + (hook.skewMs?.() ?? 0) : options.now,
    log: hook.log ? bothLogs(options, hook.log) : options.log,
    authenticate: options.authenticate ?? hook.principal,
    developer: hook.principal,
    tasks: hook.task
      ? { ...options.tasks, onEvent: bothEvents(options.tasks?.onEvent, hook.task) }
      : options.tasks,
    tracer: hook.round ? createTracer({ ...hook, round: hook.round }, now) : undefined,
    ...hook.replace?.(options),
  }
}

/** Remembers what was mounted on a server that is not ours. */
export function mountedInDevelopment(mounted: Mounted): void {
  const hook = (globalThis as Slot)[SLOT]
  if (hook) hook.mounted = [...(hook.mounted ?? []), mounted]
}

/** The origin at which browsers reach the routes of extensions; undefined if only the operator knows it. */
export function pagesInDevelopment(): string | undefined {
  return (globalThis as Slot)[SLOT]?.pages
}

export function mountedHere(): readonly Mounted[] {
  return (globalThis as Slot)[SLOT]?.mounted ?? []
}

type LogOption = ServerOptions['log']

/** Whoever installed the hook shows the log, so it is written as JSON only if the author asked for that. */
function bothLogs(options: Affected, hook: (event: LogEvent) => void): LogOption {
  const { write } = createLog({ ...options, log: options.log ?? 'off' })
  return (event) => {
    hook(event)
    write?.(event)
  }
}

function bothEvents(
  own: ((event: EngineEvent) => void) | undefined,
  hook: (event: EngineEvent) => void,
): (event: EngineEvent) => void {
  return (event) => {
    hook(event)
    own?.(event)
  }
}

interface Call {
  readonly at: number
  readonly source?: string
  effectKey?: string
  failedAttempts?: number
}

/** Shorter rounds are reported when they end, and longer ones this often at most. */
const LONG_MS = 150

interface Seen {
  readonly calls: Map<string, Call>
  /** Stops reporting that the round runs. */
  stop(): void
}

function createTracer(
  hook: Pick<Development, 'reworded' | 'running'> & { readonly round: NonNullable<Development['round']> },
  now: () => number,
): Tracer {
  const rounds = new WeakMap<object, Seen>()
  return {
    begin(place, before) {
      const calls = new Map<string, Call>()
      const other = hook.reworded?.() ?? []
      const operations: { key: string; kind: string }[] = []
      const entries: Entry[] = [...before.entries]
      let status: string | undefined
      let timer: NodeJS.Timeout | undefined
      const changed = (): void => {
        if (!hook.running) return
        timer ??= setTimeout(() => {
          timer = undefined
          const said = status === undefined ? {} : { status }
          hook.running?.({
            ...place,
            operations: describe(operations, entries, before, calls, true),
            ...said,
          })
        }, LONG_MS).unref()
      }
      const trace: RunTrace = {
        called(key, kind) {
          calls.set(key, { at: now(), source: callerOf(longStack()) })
          operations.push({ key, kind })
          changed()
        },
        recorded(entry) {
          entries.push(entry)
          changed()
        },
        status(message) {
          status = message
          changed()
        },
        keyed(name: string, effectKey: string) {
          const call = calls.get(name)
          if (call) call.effectKey = effectKey
        },
        retried(name) {
          const call = calls.get(name)
          if (call) call.failedAttempts = (call.failedAttempts ?? 0) + 1
          changed()
        },
        ...(other.length > 0 && {
          reword: (name, request) => (other.includes(name) ? withOtherWords(request) : request),
        }),
      }
      rounds.set(trace, { calls, stop: () => clearTimeout(timer) })
      return trace
    },
    end(event, trace, before, report) {
      const { calls, stop } = (trace && rounds.get(trace)) ?? { calls: new Map() }
      stop?.()
      hook.round(event, report ? describe(report.operations, report.journal.entries, before, calls) : [])
    },
  }
}

function withOtherWords(request: InputRequest): InputRequest {
  if (request.method !== 'elicitation/create') return request
  const { params } = request
  return { ...request, params: { ...params, message: `${params.message} (reworded)` } } as InputRequest
}

const ASKS: readonly string[] = ['form', 'confirm', 'url', 'sampling', 'roots']

function describe(
  operations: readonly { readonly key: string; readonly kind: string }[],
  journal: readonly Entry[],
  before: Journal,
  calls: ReadonlyMap<string, Call>,
  isRunning = false,
): TracedOperation[] {
  const known = new Set(before.entries.map(({ key }) => key))
  const entries = new Map(journal.map((entry) => [entry.key, entry]))
  return operations.map(({ key, kind }) => {
    const entry = entries.get(key)
    const call = calls.get(key)
    const isAsk = ASKS.includes(kind)
    const isNew = entry !== undefined && !known.has(key)
    const pending = isAsk ? 'asked' : isRunning ? 'running' : 'held'
    const done = isAsk ? 'answered' : entry && 'failure' in entry ? 'failed' : 'ran'
    return {
      key,
      kind,
      state: entry === undefined ? pending : isNew ? done : 'replayed',
      ...(isNew && !isAsk && call && { ms: Math.max(0, entry.at - call.at) }),
      ...(entry && { value: recordedValue(entry) }),
      ...(call?.effectKey !== undefined && { effectKey: call.effectKey }),
      ...(call?.failedAttempts !== undefined && { failedAttempts: call.failedAttempts }),
      ...(call?.source !== undefined && { source: call.source }),
    }
  })
}

const MAX_VALUE = 2_000

function recordedValue(entry: Entry): string {
  const value =
    'answer' in entry
      ? entry.answer
      : 'failure' in entry
        ? entry.failure
        : 'value' in entry
          ? entry.value
          : undefined
  return (JSON.stringify(value) ?? 'undefined').slice(0, MAX_VALUE)
}

/** Our own frames alone are more than the usual ten. */
function longStack(): string | undefined {
  const { stackTraceLimit } = Error
  Error.stackTraceLimit = 40
  const { stack } = new Error()
  Error.stackTraceLimit = stackTraceLimit
  return stack
}

const [, ROOT = ''] = /^(?:file:\/\/)?(.*\/)(?:src|dist)\//.exec(import.meta.url) ?? []

/** Our own files: built, or the sources to which a source map leads. */
const OWN: readonly string[] = [`${ROOT}src/`, `${ROOT}dist/`]

/** The first line of a stack that is not in this package, in another package or in Node. */
function callerOf(stack = ''): string | undefined {
  for (const line of stack.split('\n').slice(1)) {
    const [, place] = /^\s+at (?:.*\()?(?:file:\/\/)?(\/[^()]+:\d+):\d+\)?$/.exec(line) ?? []
    if (place === undefined || place.includes('/node_modules/')) continue
    if (!OWN.some((own) => place.startsWith(own))) return place
  }
  return undefined
}
