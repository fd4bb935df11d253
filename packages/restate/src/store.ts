/**
 * Tasks, single use and blobs in Restate: replication and fail-over without a database cluster. Single use and blobs are
 * virtual objects: `RondoOnce/<round and flow>`, `RondoEpoch/current`, `RondoBlob/<id>`. Restate has no clock that its callers
 * can use, so the processes go by their own, which must agree to within a second or so.
 */

import type { ObjectContext } from '@restatedev/restate-sdk'
import { RondoError } from 'rondo'
import { clock, defineOptions, misuse, number, type OptionsOf, text, unchecked } from 'rondo/internal'
import type {
  BlobStore,
  EngineOptions,
  EngineStore,
  OnceAttempt,
  OnceClaim,
  OnceSlot,
  OnceStore,
  OperatorTasks,
  Sealed,
  TaskSummary,
} from 'rondo/store'
import { createEpoch } from 'rondo/store'
import {
  assertEndpoint,
  type CallObject,
  createEndpoint,
  createIngress,
  type EndpointOptions,
  type Ingress,
  type RunDelivered,
} from './connection.ts'
import { createRestateEngine, type TurnRunner } from './engine.ts'
import {
  createOwnerObject,
  createTaskObject,
  type ServiceNames,
  SUMMARY,
  serviceNames,
  type TaskHandlers,
} from './task-object.ts'

export interface RestateStoreOptions {
  /** Address of Restate's ingress, such as http://127.0.0.1:8080, or several: the next one is used when one fails. */
  ingress: string | readonly string[]
  /**
   * Address of its admin API, such as http://127.0.0.1:9070, or several. It registers the endpoint, counts and lists tasks.
   * Without it, register the endpoint by hand: `restate deployments register <url>`. Default: none.
   */
  admin?: string | readonly string[]
  /** Where Restate reaches this process. Without it, the process creates and follows tasks, and others run them. Default: none. */
  endpoint?: EndpointOptions
  /** Beginning of the names of our services in Restate; applications that share a cluster need different ones. Default: `Rondo`. */
  namespace?: string
  /** Headers of every request to Restate, such as a token. Default: none. */
  headers?: Readonly<Record<string, string>>
  /** How long to retry while Restate cannot be reached; then `STORE_UNAVAILABLE`. Default: 10 s. */
  retryMs?: number
  /** How often to poll for changes of other processes. Default: 500 ms. */
  pollMs?: number
  /** The clock, in ms since the Unix epoch. Default: `Date.now`. */
  now?: () => number
}

/**
 * Creates a store whose tasks run on Restate. Needs the package `@restatedev/restate-sdk` and Node 22.
 *
 * @example
 * ```ts
 * const store = createRestateStore({
 *   ingress: ['http://restate-1:8080'],
 *   admin: 'http://restate-1:9070',
 *   endpoint: { host: '0.0.0.0', port: 9080, url: 'http://workers:9080', identityKeys: ['publickeyv1_…'] },
 * })
 * const server = createServer({ name: 'tables', version: '1.0.0', store })
 * ```
 */
export function createRestateStore(options: RestateStoreOptions): EngineStore {
  return assembleStore(options, { defineTask: (names) => createTaskObject(names), deliver: (run) => run })
}

const START_MS = 1_000

/** The parts of a store that tests weaken. */
export interface StoreParts {
  readonly defineTask: (names: ServiceNames) => TaskHandlers
  /** Turns as Restate delivers them. */
  readonly deliver: (run: RunDelivered) => RunDelivered
}

const OPTIONS = defineOptions(
  'createRestateStore',
  {
    ingress: unchecked(),
    admin: unchecked(),
    endpoint: unchecked(),
    namespace: text('Rondo'),
    headers: unchecked(),
    retryMs: number(10_000),
    pollMs: number(500),
    now: clock,
  } satisfies OptionsOf<RestateStoreOptions>,
  { url: 'ingress', ingressUrl: 'ingress' },
)

export function assembleStore(options: RestateStoreOptions, parts: StoreParts): EngineStore {
  const { namespace, headers, retryMs, pollMs, now } = OPTIONS.read(options)
  if (!/^[A-Za-z][A-Za-z0-9_]*$/.test(namespace))
    throw misuse('namespace must begin with a letter and contain only letters, digits and underscores')
  if (options.endpoint) assertEndpoint(options.endpoint)
  const connect = (addresses: string | readonly string[], register?: () => Promise<boolean>) =>
    createIngress({
      addresses: [addresses].flat(),
      headers,
      retryMs,
      attemptMs: Math.min(Math.max(retryMs, 1_000), 10_000),
      register,
    })
  let isRegistered = false
  const ingress = connect(options.ingress, async () => {
    if (isRegistered) return false
    await ready()
    return true
  })
  const admin = options.admin === undefined ? undefined : connect(options.admin)
  const names = serviceNames(namespace)
  let opening: Promise<void> | undefined
  const call: CallObject = async (service, key, handler, input, once = false) => {
    // If Restate cannot be reached, the call itself reports that; a mistake in the options is reported here. A call that
    // finds no service registers again: Restate may have been unable to reach the endpoint until now.
    opening ??= ready().catch((error) => {
      if (error instanceof TypeError) throw error
    })
    await opening
    return await ingress.call([service, key, handler], input, once)
  }

  const runners = new Set<TurnRunner>()
  let joined = () => {}
  const joining = new Promise<void>((resolve) => {
    joined = resolve
  })
  const run: RunDelivered = async (wake, gone) => {
    // A process that has just started may get a turn before it is there for it.
    await Promise.race([joining, new Promise((resolve) => setTimeout(resolve, START_MS).unref())])
    const [best] = [...runners].sort((a, b) => a.load() - b.load())
    if (best === undefined) throw new Error('No worker runs in this process')
    await best.run(wake, gone)
  }
  const objects = {
    task: parts.defineTask(names),
    owner: createOwnerObject(names),
    once: createOnceObject(names),
    epoch: createEpochObject(),
    blob: createBlobObject(names),
  }
  const endpoint = options.endpoint && createEndpoint(options.endpoint, names, objects, parts.deliver(run))
  let preparing: Promise<void> | undefined
  const prepare = async () => {
    await endpoint?.open()
    if (admin) await endpoint?.register(admin)
    isRegistered = true
  }
  const ready = () => {
    preparing ??= prepare().catch((error) => {
      preparing = undefined
      throw error
    })
    return preparing
  }
  const operator = createOperator(admin, names.task, now)
  const blobs = createBlobs(names, call, now)
  return {
    kind: 'restate',
    tasks: operator,
    once: createOnce(names, call, now),
    blobs,
    createEngine: (engineOptions: EngineOptions = {}) =>
      createRestateEngine(
        {
          names,
          call,
          now,
          pollMs,
          operator,
          ready,
          join(runner) {
            if (endpoint === undefined)
              throw misuse(
                'A process that runs tasks needs the option endpoint, where Restate delivers them: createRestateStore({ …, endpoint: { port } }). Or set tasks.concurrency to 0',
              )
            runners.add(runner)
            joined()
            return () => void runners.delete(runner)
          },
        },
        engineOptions,
      ),
    async ready() {
      await ready()
      // Goes through Restate to an endpoint and back.
      await blobs.get('ready')
    },
    // Nothing is left to sweep: Restate deletes each object by a delayed call.
    sweep: async () => 0,
    async close() {
      await endpoint?.close()
      ingress.close()
      admin?.close()
    },
  }
}

/** Counts and lists with SQL over the states of all tasks. This reads every task, so it is for people, not for programs. */
function createOperator(admin: Ingress | undefined, service: string, now: () => number): OperatorTasks {
  const read = async (id?: string): Promise<readonly TaskSummary[]> => {
    if (admin === undefined)
      throw misuse(
        'Counting and listing tasks needs the address of the admin API: createRestateStore({ …, admin })',
      )
    if (id !== undefined && !/^[\w-]+$/.test(id)) return []
    const one = id === undefined ? '' : ` AND service_key = '${id}'`
    const query = `SELECT value_utf8 AS summary FROM state WHERE service_name = '${service}' AND key = '${SUMMARY}'${one}`
    const { status, body } = await admin.request('POST', '/query', { query })
    if (status >= 300)
      throw new RondoError(
        'STORE_UNAVAILABLE',
        `The admin API of Restate refused a query with status ${status}`,
      )
    const { rows } = JSON.parse(body) as { rows: readonly { summary: string }[] }
    return rows
      .map(({ summary }) => JSON.parse(summary) as TaskSummary)
      .filter(({ expiresAt }) => expiresAt > now())
  }
  return {
    async stats() {
      const at = now()
      const tasks = await read()
      const open = tasks.filter(({ status }) => status === 'working' || status === 'input_required')
      const due = open.flatMap(({ worker, dueAt }) =>
        worker === undefined && dueAt !== undefined && dueAt <= at ? [at - dueAt] : [],
      )
      const running = open.filter(({ worker }) => worker !== undefined).length
      const oldestDueMs = due.reduce((oldest, ms) => Math.max(oldest, ms), 0)
      return { due: due.length, oldestDueMs, running, parked: open.length - due.length - running }
    },
    async list({ id, status, owner, after, limit = 100 }) {
      const isNewer = (a: Place, b: Place) =>
        b.createdAt - a.createdAt || (a.id < b.id ? 1 : a.id > b.id ? -1 : 0)
      return (await read(id))
        .filter((task) => status === undefined || task.status === status)
        .filter(
          (task) =>
            !owner || (task.owner.tenant === owner.tenant && task.owner.principal === owner.principal),
        )
        .sort(isNewer)
        .filter((task) => after === undefined || isNewer(after, task) < 0)
        .slice(0, limit)
    },
  }
}

type Place = Pick<TaskSummary, 'id' | 'createdAt'>

interface OnceRow {
  readonly digest: string
  readonly claimant: string
  readonly holdUntil: number
  readonly response?: string
}

interface Attempted {
  readonly at: number
  readonly slot: OnceSlot
  readonly attempt: OnceAttempt
}

const ROW = 'row'

/** The handlers of a slot. Its row is deleted by a call that it sends to itself, for the time at which it expires. */
function createOnceObject(names: ServiceNames) {
  return {
    async claim(ctx: ObjectContext, { at, slot, attempt }: Attempted): Promise<OnceClaim> {
      if (slot.expiresAt <= at) return { kind: 'refused', reason: 'expired' }
      const row = await ctx.get<OnceRow>(ROW)
      if (row !== null) {
        if (row.digest !== slot.digest) return { kind: 'refused', reason: 'used' }
        if (row.response !== undefined) return { kind: 'stored', response: row.response }
        if (row.claimant !== attempt.claimant && row.holdUntil > at)
          return { kind: 'busy', retryMs: row.holdUntil - at }
      }
      const { claimant, holdMs } = attempt
      ctx.set<OnceRow>(ROW, { digest: slot.digest, claimant, holdUntil: at + holdMs })
      if (row === null) deleteLater(ctx, names.once, slot.expiresAt - at)
      return { kind: 'first' }
    },
    async renew(ctx: ObjectContext, { at, attempt: { claimant, holdMs } }: Attempted): Promise<boolean> {
      const row = await ctx.get<OnceRow>(ROW)
      if (row === null || row.claimant !== claimant || row.response !== undefined) return false
      ctx.set<OnceRow>(ROW, { ...row, holdUntil: at + holdMs })
      return true
    },
    async settle(
      ctx: ObjectContext,
      { slot, response }: { readonly slot: OnceSlot; readonly response: Sealed },
    ): Promise<Sealed> {
      const row = await ctx.get<OnceRow>(ROW)
      if (row === null || row.digest !== slot.digest) return response
      if (row.response !== undefined) return row.response
      ctx.set<OnceRow>(ROW, { ...row, response })
      return response
    },
    delete: (ctx: ObjectContext): Promise<null> => deleteAll(ctx),
  }
}

const EPOCH_KEY = 'current'

function createEpochObject() {
  return {
    async current(ctx: Pick<ObjectContext, 'get'>): Promise<string | null> {
      return await ctx.get<string>(ROW)
    },
    /** Starts the given epoch, unless there is one and `replace` is false; returns the current one. */
    async start(
      ctx: ObjectContext,
      input: { readonly epoch: string; readonly replace: boolean },
    ): Promise<string> {
      const current = input.replace ? null : await ctx.get<string>(ROW)
      if (current === null) ctx.set(ROW, input.epoch)
      return current ?? input.epoch
    },
  }
}

interface BlobRow {
  readonly sealed: Sealed
  readonly expiresAt: number
}

function createBlobObject(names: ServiceNames) {
  return {
    async put(
      ctx: ObjectContext,
      { at, sealed, expiresAt }: BlobRow & { readonly at: number },
    ): Promise<null> {
      if ((await ctx.get<BlobRow>(ROW)) !== null) return null
      ctx.set<BlobRow>(ROW, { sealed, expiresAt })
      deleteLater(ctx, names.blob, expiresAt - at)
      return null
    },
    async read(ctx: Pick<ObjectContext, 'get'>, { at }: { readonly at: number }): Promise<Sealed | null> {
      const row = await ctx.get<BlobRow>(ROW)
      return row !== null && row.expiresAt > at ? row.sealed : null
    },
    delete: (ctx: ObjectContext): Promise<null> => deleteAll(ctx),
  }
}

async function deleteAll(ctx: ObjectContext): Promise<null> {
  ctx.clearAll()
  return null
}

function deleteLater(ctx: ObjectContext, service: string, delay: number): void {
  ctx.genericSend({
    service,
    method: 'delete',
    key: ctx.key,
    parameter: Buffer.from('{}'),
    delay: Math.max(delay, 1),
  })
}

function createOnce(names: ServiceNames, call: CallObject, now: () => number): OnceStore {
  const onSlot = (slot: OnceSlot, handler: string, input: object) =>
    call(names.once, `${slot.round} ${slot.flow}`, handler, { at: now(), slot, ...input }, true)
  const start = async (replace: boolean) =>
    String(await call(names.epoch, EPOCH_KEY, 'start', { epoch: createEpoch(), replace }, true))
  const epoch = async () =>
    ((await call(names.epoch, EPOCH_KEY, 'current', {})) as string | null) ?? (await start(false))
  return {
    epoch,
    renewEpoch: () => start(true),
    async claim(slot, attempt) {
      if (slot.epoch !== (await epoch())) return { kind: 'refused', reason: 'epoch' }
      return (await onSlot(slot, 'claim', { attempt })) as OnceClaim
    },
    renew: async (slot, attempt) => (await onSlot(slot, 'renew', { attempt })) as boolean,
    settle: async (slot, response) => (await onSlot(slot, 'settle', { response })) as Sealed,
  }
}

function createBlobs(names: ServiceNames, call: CallObject, now: () => number): BlobStore {
  return {
    async put(id, sealed, expiresAt) {
      await call(names.blob, id, 'put', { at: now(), sealed, expiresAt }, true)
    },
    async get(id) {
      return ((await call(names.blob, id, 'read', { at: now() })) as Sealed | null) ?? undefined
    },
  }
}
