/**
 * What is served: finds the target of a call and runs its round; answers lists, discovery and completion.
 */

import type { FlowHost, LogEvent } from '../carry/host.ts'
import { answerTask, watchTasks } from '../carry/task/call.ts'
import { runRound } from '../carry/token.ts'
import { isStoreFault, RondoError } from '../errors.ts'
import type { Every } from '../lib/clock.ts'
import { isThenable } from '../lib/json.ts'
import type {
  Call,
  CompleteCall,
  FlowCall,
  Line,
  ListenCall,
  Listing,
  Principal,
  TaskCall,
} from '../protocol/call.ts'
import type { Codecs } from '../protocol/codec.ts'
import type { ParamHeader } from '../protocol/common/headers.ts'
import { SERVER_INFO } from '../protocol/common/meta-key.ts'
import type { Reply } from '../protocol/reply.ts'
import { TASKS_EXTENSION, type TaskState } from '../protocol/task.ts'
import type { ClientCapabilities } from '../protocol/wire.ts'
import type { CachePolicy } from '../tool/definition.ts'
import { type Catalog, createCatalog, type Registry } from '../tool/registry.ts'
import type { Change, ChangeBus } from './http/subscription.ts'
import type { Older } from './session/older.ts'

export interface ServiceOptions {
  readonly host: FlowHost
  readonly registry: Registry
  readonly serverInfo: Service['serverInfo']
  readonly instructions?: string
  readonly pageSize: number
  readonly listCache: CachePolicy
  readonly changes: ChangeBus
  readonly slow: SlowWatch
  readonly codecs: Codecs
  /** Serves clients of earlier eras, unless these are closed. */
  readonly older?: Older
  drain(): void
}

export interface OpenService extends Service {
  /** Something was declared or removed: lists are made anew and subscribers are told. */
  changed(listing: Listing): void
}

/**
 * Versions of the new era go first and alone: a client that shares none of them begins a session anyway. Where there are none,
 * the versions of sessions are named. A draft is named only where there is nothing else, since official clients take its label
 * for one of the new era that they lack, and give up.
 */
function namedVersions({ requestVersions, sessionVersions, draftVersions }: Codecs): readonly string[] {
  if (requestVersions.length > 0) return requestVersions
  const published = sessionVersions.filter((version) => !draftVersions.includes(version))
  return published.length > 0 ? published : sessionVersions
}

export function createService(options: ServiceOptions): OpenService {
  const { host, registry, serverInfo, changes, pageSize, listCache, codecs } = options
  const meta = { [SERVER_INFO]: serverInfo }
  const { ttlMs, scope: cacheScope } = listCache
  const stamp = { resultType: 'complete', ttlMs, cacheScope, _meta: meta }
  const catalog = createCatalog(registry, { pageSize, stamp })
  let discovery: string | undefined

  return {
    serverInfo,
    codecs,
    supportedVersions: codecs.requestVersions,
    namedVersions: namedVersions(codecs),
    older: options.older,
    changes,
    changeKinds: ['tools', 'prompts', 'resources', 'resource'],
    state: host,
    drain: options.drain,
    tasks: host.tasks !== undefined,
    watchTasks: host.tasks && watchTasks(host, host.tasks),
    paramHeaders: registry.paramHeaders,
    answer(call, principal, line) {
      switch (call.kind) {
        case 'flow':
          return watchSlow(options.slow, call, line, answerFlow(host, registry, call, principal, line))
        case 'list':
          return answerList(catalog, call.listing, call.cursor, host.log)
        case 'discover':
          discovery ??= describe(options, meta)
          return { kind: 'serialized', json: discovery }
        case 'complete':
          return answerComplete(registry, call, host.log)
        case 'task':
          return answerTaskCall(host, call, principal)
      }
    },
    changed(listing) {
      catalog.forget(listing)
      options.older?.changed(listing)
      discovery = undefined
      changes.publish({ kind: listing === 'templates' ? 'resources' : listing })
    },
  }
}

async function answerFlow(
  host: FlowHost,
  registry: Registry,
  call: FlowCall,
  principal: Principal | undefined,
  line: Line,
): Promise<Reply> {
  const target = registry.find(call.method, call.target)
  if (!target) return unknownTarget(call)
  try {
    return await runRound({ host, target, call, principal, line })
  } catch (error) {
    return toErrorReply(error, host.log)
  }
}

async function answerTaskCall(
  host: FlowHost,
  call: TaskCall,
  principal: Principal | undefined,
): Promise<Reply> {
  if (!host.tasks) return { kind: 'error', error: new RondoError('PEER_METHOD') }
  try {
    return await answerTask(host, host.tasks, call, principal)
  } catch (error) {
    return toErrorReply(error, host.log)
  }
}

function describe(
  { host: { tasks }, registry, instructions, listCache, codecs }: ServiceOptions,
  meta: object,
): string {
  const has = (listing: Listing): boolean => registry.rows(listing).length > 0
  return JSON.stringify({
    resultType: 'complete',
    supportedVersions: codecs.requestVersions,
    capabilities: {
      tools: has('tools') ? { listChanged: true } : undefined,
      prompts: has('prompts') ? { listChanged: true } : undefined,
      resources: has('resources') || has('templates') ? { listChanged: true, subscribe: true } : undefined,
      completions: has('prompts') || has('templates') ? {} : undefined,
      logging: {},
      extensions: tasks ? { [TASKS_EXTENSION]: {} } : undefined,
    },
    instructions,
    ttlMs: listCache.ttlMs,
    cacheScope: listCache.scope,
    _meta: meta,
  })
}

/*
 * The seam between the entrances (HTTP, fetch, stdio) and what is served. An entrance turns bytes into a `Call`, asks
 * the service, and turns the `Reply` into bytes; it knows nothing of tools, journals or seals.
 */

/** Reports tasks as they change; returns a function that ends this. */
export type WatchTasks = (
  taskIds: readonly string[],
  principal: Principal | undefined,
  capabilities: ClientCapabilities,
  listener: (task: TaskState) => void,
) => Promise<() => void>

export interface Service {
  readonly serverInfo: { readonly name: string; readonly version: string; readonly title?: string }
  readonly codecs: Codecs
  readonly supportedVersions: readonly string[]
  /** What a client of another version is told to speak. */
  readonly namedVersions?: readonly string[]
  readonly changes: ChangeBus
  /** The changes a subscriber may be told of: those whose capability is declared. */
  readonly changeKinds: readonly Change['kind'][]
  /** Answers everything but `subscriptions/listen`, which the entrances serve from `changes`. Never rejects. */
  answer(
    call: Exclude<Call, ListenCall>,
    principal: Principal | undefined,
    line: Line,
  ): Reply | Promise<Reply>
  /** Serves clients of earlier eras. Absent where these are closed. */
  readonly older?: Older
  paramHeaders(tool: string): readonly ParamHeader[]
  /** There is a store for tasks. */
  readonly tasks?: boolean
  readonly watchTasks?: WatchTasks
  /** `draining` is true from the moment the process was told to stop. */
  readonly state: { readonly draining: boolean }
  /** From now on `state.draining` is true. */
  drain(): void
}

/* Parts of answering that are the same in every era: lists, completion, targets that do not exist. */

const MAX_COMPLETIONS = 100

export function unknownTarget({ method, target }: FlowCall): Reply {
  if (method === 'resources/read') {
    return { kind: 'error', error: new RondoError('PEER_RESOURCE', undefined, { data: { uri: target } }) }
  }
  const detail = `Unknown ${method === 'tools/call' ? 'tool' : 'prompt'}: ${target}`
  return { kind: 'error', error: new RondoError('PEER_PARAMS', detail) }
}

/** What was thrown, as a reply. What nobody foresaw is logged, and what the operator has to look after. */
export function toErrorReply(error: unknown, log: (event: LogEvent) => void): Reply {
  if (!(error instanceof RondoError)) log({ event: 'warning', message: 'A request failed inside', error })
  else if (isStoreFault(error)) log({ event: 'warning', message: 'The store failed a request', error })
  const known =
    error instanceof RondoError ? error : new RondoError('SERVER_INTERNAL', undefined, { cause: error })
  return { kind: 'error', error: known }
}

export function answerList(
  catalog: Catalog,
  listing: Listing,
  cursor: string | undefined,
  log: (event: LogEvent) => void,
): Reply {
  try {
    return { kind: 'serialized', json: catalog.page(listing, cursor) }
  } catch (error) {
    return toErrorReply(error, log)
  }
}

export async function answerComplete(
  registry: Registry,
  { ref, argument, context }: CompleteCall,
  log: (event: LogEvent) => void,
): Promise<Reply> {
  const completer = registry.completer(ref, argument.name)
  try {
    const found = completer ? await completer(argument.value, context) : []
    const values = found.slice(0, MAX_COMPLETIONS)
    const completion = { values, total: found.length, hasMore: found.length > values.length }
    return { kind: 'complete', result: { completion } }
  } catch (error) {
    return toErrorReply(error, log)
  }
}

export interface SlowWatch {
  readonly slowCallMs: number
  readonly every: Every
  log(event: LogEvent): void
}

/**
 * Says once that a call is taking long, unless it waits for an answer: a handler that never ends would otherwise leave no
 * trace. The call goes on.
 */
export async function watchSlow<T>(
  { slowCallMs, every, log }: SlowWatch,
  { method, target }: FlowCall,
  line: Line & { readonly waiting?: boolean },
  work: Promise<T>,
): Promise<T> {
  if (slowCallMs === 0) return work
  const stop = every(slowCallMs, () => {
    if (line.waiting === true) return
    stop()
    const seconds = Math.round(slowCallMs / 1000)
    log({
      event: 'warning',
      message: `A call of "${target}" (${method}) is still running after ${seconds} s and waits for no answer`,
    })
  })
  try {
    return await work
  } finally {
    stop()
  }
}

/**
 * Asks the service and calls `finish` once, at once where the service answers at once. A fault of the service is an
 * internal error to the client and goes to `onError`; so is a reply that cannot be sent, and `finish` is then called with
 * that error instead.
 */
export function settle(
  service: Service,
  call: Exclude<Call, ListenCall>,
  principal: Principal | undefined,
  line: Line,
  onError: (error: unknown) => void,
  finish: (reply: Reply) => void,
): void {
  let reply: Reply | Promise<Reply>
  try {
    reply = service.answer(call, principal, line)
  } catch (error) {
    reply = internalError(error, onError)
  }
  const done = (settled: Reply): void => finishOnce<Reply>(settled, finish, onError)
  if (isThenable(reply)) reply.then(done, (error) => done(internalError(error, onError)))
  else done(reply)
}

/** Finishes with `reply`, or with an internal error where that throws: a result that cannot be encoded, for example. */
export function finishOnce<R>(
  reply: R | ErrorReply,
  finish: (reply: R | ErrorReply) => void,
  onError: (error: unknown) => void,
): void {
  try {
    finish(reply)
  } catch (error) {
    try {
      finish(internalError(error, onError))
    } catch (again) {
      onError(again)
    }
  }
}

export type ErrorReply = Extract<Reply, { kind: 'error' }>

export function internalError(error: unknown, onError: (error: unknown) => void): ErrorReply {
  onError(error)
  return { kind: 'error', error: new RondoError('SERVER_INTERNAL', undefined, { cause: error }) }
}

/** A listener for faults that cannot add one of its own. */
export function quietly(listener: (error: unknown) => void = () => {}): (error: unknown) => void {
  return (error) => {
    try {
      listener(error)
    } catch {
      // Nobody is left to be told.
    }
  }
}

/** Counts what is being served, and tells when nothing is. */
export interface InFlight {
  enter(): void
  leave(): void
  readonly size: number
  /** Resolves as soon as nothing is being served. */
  idle(): Promise<void>
}

export function createInFlight(): InFlight {
  let size = 0
  let waiting: (() => void)[] = []
  return {
    enter() {
      size++
    },
    leave() {
      if (--size > 0) return
      const ready = waiting
      waiting = []
      for (const resolve of ready) resolve()
    },
    get size() {
      return size
    },
    idle() {
      return size === 0 ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve))
    },
  }
}
