/**
 * A test bench: creates instances of your server in development mode, which share a key, a clock under your control and a
 * store in memory, and calls their tools with the same bytes as a client.
 */

import { openTask } from '../carry/task/operate.ts'
import { misuse } from '../errors.ts'
import { type Duration, toMilliseconds } from '../lib/clock.ts'
import type { LogEvent } from '../log/event.ts'
import type { FlowMethod, Principal } from '../protocol/call.ts'
import { TASKS_EXTENSION } from '../protocol/reply.ts'
import type { ClientCapabilities } from '../protocol/wire.ts'
import { generateKey, parseKeys } from '../seal/key-ring.ts'
import { developing } from '../serve/development.ts'
import { approverOf } from '../serve/extension.ts'
import type { ServerOptions } from '../serve/options.ts'
import type { Server } from '../serve/server.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import type { EngineStore, Store } from '../store/store.ts'
import {
  createTestCall,
  exchange,
  PRINCIPAL_HEADER,
  type Sent,
  type TestCall,
  type TestMessage,
  toRound,
} from './call.ts'
import { createTestTask, type TestTask } from './task.ts'

/** The options that a bench passes to your server: spread them over your own. */
export interface BenchOptions
  extends Required<
      Pick<ServerOptions, 'keys' | 'now' | 'restTimer' | 'dev' | 'skipSleep' | 'log' | 'authenticate'>
    >,
    Pick<ServerOptions, 'store'> {}

export interface BenchSetup {
  /** `false` omits the store, to test the limits of a server without one. Default: a store in memory. */
  store?: false
}

export interface CallOptions {
  /** The caller. Default: anonymous. */
  principal?: Principal
  /** The client's capabilities. Default: every kind of question. */
  capabilities?: ClientCapabilities
}

/** The server that a bench tests: a `Server`, or the handler of an official one (`createMcpHandler(build)`). */
export interface BenchServer {
  fetch(request: Request): Promise<Response>
  close(): Promise<void>
}

export interface TestBench<S extends BenchServer = Server> {
  /** Calls a tool as a client that cannot follow a task. */
  tool(name: string, args?: Record<string, unknown>, options?: CallOptions): TestCall
  /** Calls a tool as a client that can follow a task. */
  task(name: string, args?: Record<string, unknown>, options?: CallOptions): TestTask
  /** Gets a prompt. */
  prompt(name: string, args?: Record<string, string>, options?: CallOptions): TestCall
  /** Reads a resource. */
  resource(uri: string, options?: CallOptions): TestCall
  /** The clock of all instances and of the store. Its `advance(ms)` moves it and waits for nothing. */
  readonly clock: { now: number; advance(ms: number): void }
  /**
   * Lets time pass (`'3 days'`), and waits until the tasks that are due then have done their work. A request that sleeps moves
   * the clock by itself.
   */
  advance(duration: Duration): Promise<void>
  /** The log events of all instances. */
  readonly events: LogEvent[]
  /** The instance that receives the next request. `server.deliver(id, event)` delivers to a [hook](docs/guide/time-and-events.md). */
  readonly server: S
  /** Sends the next request to a new instance, as after a restart or behind a load balancer. */
  otherInstance(): void
}

const ANYTHING: ClientCapabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} }
const FOLLOWS = { [TASKS_EXTENSION]: {} }

/**
 * Creates a bench that calls the tools of a server round by round, without a socket. `make` creates one instance: `(options) => createServer({ name, version, ...options })` and its tools; for an official server,
 * `(options) => createMcpHandler(build)`, whose `createRondo` gets the options.
 *
 * @example
 * ```ts
 * const bench = createBench((options) => createServer({ name: 'tables', version: '1.0.0', ...options }))
 * ```
 */
export function createBench<S extends BenchServer = Server>(
  make: (options: BenchOptions) => S,
  setup: BenchSetup = {},
): TestBench<S> {
  const shared = createShared(setup)
  return assembleBench(shared, () => make(shared.options))
}

/**
 * Creates a bench for a server that a file creates with options of its own. Servers that are created while `load` runs get the
 * bench's key, clock, log and callers, and its store if they have one. `load` imports the file and returns its server, as in
 * `async () => (await import(file)).default`. All instances of this bench are that one server.
 *
 * @example
 * ```ts
 * const imported = await importBench(async () => (await import(file)).default)
 * ```
 */
export async function importBench<S extends BenchServer = Server>(
  load: () => Promise<S>,
): Promise<TestBench<S>> {
  const shared = createShared({})
  const { options } = shared
  const server = await developing(
    { replace: ({ store }) => ({ ...options, store: store && options.store }) },
    load,
  )
  return assembleBench(shared, () => server)
}

/** The parts that all instances of a bench share. */
interface Shared {
  readonly clock: TestBench['clock']
  readonly events: LogEvent[]
  readonly options: BenchOptions
}

function createShared(setup: BenchSetup): Shared {
  const clock = {
    now: Date.UTC(2026, 6, 28),
    advance(ms: number) {
      clock.now += ms
    },
  }
  const events: LogEvent[] = []
  const store = setup.store === false ? undefined : createMemoryStore({ now: () => clock.now })
  const options: BenchOptions = {
    keys: generateKey('bench'),
    now: () => clock.now,
    restTimer(ms, fn) {
      const timer = setImmediate(() => {
        clock.now += ms
        fn()
      })
      return () => clearImmediate(timer)
    },
    dev: true,
    skipSleep: false,
    log: (event) => void events.push(event),
    authenticate: ({ headers }) => {
      const header = headers(PRINCIPAL_HEADER)
      return header === undefined ? undefined : JSON.parse(decodeURIComponent(header))
    },
    store,
  }
  return { clock, events, options }
}

function assembleBench<S extends BenchServer>(
  { clock, events, options }: Shared,
  make: () => S,
): TestBench<S> {
  let server = make()
  let lastId = 0

  const send = (sent: Sent): Promise<TestMessage> => {
    lastId += 1
    return exchange(server, sent, lastId)
  }
  const advance = async (duration: Duration): Promise<void> => {
    const ms = toMilliseconds(duration)
    if (ms === undefined)
      throw misuse(`bench.advance takes milliseconds, or text such as '3 days'; got ${duration}.`)
    clock.now += ms
    if (options.store) await untilSettled(options.store)
  }
  const otherInstance = (): void => {
    server = make()
  }
  const restart = async (): Promise<void> => {
    await server.close()
    otherInstance()
    // An instance starts its worker with its first request, even one that it refuses.
    const first = { method: 'server/discover', params: {}, principal: undefined, capabilities: ANYTHING }
    await send(first).catch(() => {})
  }
  const call = (
    method: FlowMethod,
    params: Sent['params'],
    { principal, capabilities = ANYTHING }: CallOptions = {},
  ): TestCall => {
    const sending = async (sent: Sent) => toRound(await send(sent))
    return createTestCall({ method, params, principal, capabilities, send: sending, otherInstance })
  }
  const task = (
    params: Sent['params'],
    { principal, capabilities = ANYTHING }: CallOptions = {},
  ): TestTask => {
    const following = { ...capabilities, extensions: { ...capabilities.extensions, ...FOLLOWS } }
    const waitsFor = async (id: string) => {
      const [found] = (await options.store?.tasks.list({ id })) ?? []
      if (found === undefined || found.worker !== undefined || found.status !== 'working') return undefined
      return { hooks: found.openHooks, until: found.dueAt }
    }
    const labelsOf = async (id: string): Promise<Record<string, string>> => {
      const store = options.store
      const stored = await store?.operator?.read(id)
      if (stored?.labels === undefined) return {}
      const opened = openTask(parseKeys(String(options.keys)), stored)
      if (opened.kind === 'refused')
        throw new Error(
          `The ${opened.piece} of the task does not open: pass the keys of the bench to the server.`,
        )
      return Object.fromEntries(opened.labels ?? [])
    }
    const now = () => clock.now
    return createTestTask({
      params,
      principal,
      capabilities: following,
      send,
      restart,
      waitsFor,
      labelsOf,
      approver: () => approverOf(server),
      now,
      advance,
    })
  }

  return {
    tool: (name, args = {}, given) => call('tools/call', { name, arguments: args }, given),
    task: (name, args = {}, given) => task({ name, arguments: args }, given),
    prompt: (name, args = {}, given) => call('prompts/get', { name, arguments: args }, given),
    resource: (uri, given) => call('resources/read', { uri }, given),
    clock,
    advance,
    events,
    get server() {
      return server
    },
    otherInstance,
  }
}

const SETTLE_MS = 5_000

/** Waits in real time until no task is due or running. */
async function untilSettled({ tasks }: Pick<Store, 'tasks'> | EngineStore): Promise<void> {
  for (const end = Date.now() + SETTLE_MS; Date.now() < end; ) {
    const { due, running } = await tasks.stats()
    if (due === 0 && running === 0) return
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
}
