/**
 * `createGateway`: a Rondo server whose tools, prompts and resources are those of other servers.
 *
 * W8 Each upstream is read, watched and tried again by itself; one that is slow or down delays nobody else's calls.
 * W11 Log lines name the upstream and both revisions, and calls are counted by revision.
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import { randomBytes } from 'node:crypto'
import { createServer, RondoError, type Server, type ServerOptions, ToolError } from 'rondo'
import { type Clock, noSecretsInForms, type QuestionKind } from 'rondo/client'
import type { CallFacts, ExtensionHost } from 'rondo/extension'
import { forwarding, UpstreamError } from 'rondo/forward'
import { type Catalog, createCatalog, type Listing } from './catalog.ts'
import { createHandles, HANDLE_TOOL, type Handles } from './handle.ts'
import { createHandover, type Handover, type HandoverResume } from './handover.ts'
import { createHeldCalls, type HeldCalls, HeldEnded, SILENT } from './held.ts'
import { assertGatewayOptions, type GatewayOptions, HOLD, OWN } from './options.ts'
import type { Passing } from './pass.ts'
import { createSentRounds, type Sealer } from './sent.ts'
import { createSubscriptions, type Subscriptions, sleep } from './subscriptions.ts'
import { createUpstreamTasks } from './tasks.ts'
import { callerKey, createUpstream, reasonOf, type Upstream, UpstreamDown } from './upstream.ts'

/** The state of an upstream. */
export interface UpstreamStatus {
  readonly name: string
  /** The revision that it speaks, and its own name, as found last. */
  readonly revision?: string
  readonly server?: string
  /** The tools of it that are offered. */
  readonly tools: number
  /** The reason why it could not be read last. */
  readonly problem?: string
}

/** Calls of clients of one revision at one upstream. */
export interface Traffic {
  /** The revision of the clients. */
  readonly client: string
  readonly upstream: string
  /** The revision that the upstream spoke. */
  readonly revision?: string
  readonly calls: number
  /** When the last of them began, in milliseconds since the epoch. */
  readonly lastAt: number
}

export interface Gateway extends Server {
  /** Reads what the upstreams offer. Rejects if none of them answers, and if names clash. Every entrance waits for it. */
  ready(): Promise<void>
  /** The upstreams in the order of the configuration. */
  upstreams(): readonly UpstreamStatus[]
  /** How many calls are open at upstreams that ask while a call is open. */
  heldCalls(): number
  /** The calls since the start, by revision of client and upstream: shows when the last client of an old revision is gone. */
  traffic(): readonly Traffic[]
}

/** How long the first upstream that answers waits for the others. */
const START_MS = 5_000
/** How long all upstreams are waited for without a word. */
const QUIET_MS = 3_000
/** The default of `tasks.leaseMs`. */
const LEASE_MS = 15_000
const FIRST_RETRY_MS = 1_000
const LONGEST_RETRY_MS = 60_000

/**
 * Creates a gateway. It connects to its upstreams when it begins to serve.
 *
 * @example
 * ```ts
 * const gateway = createGateway({
 *   name: 'tools',
 *   version: '1.0.0',
 *   upstreams: { crm: { url: 'https://crm.example/mcp' }, files: { command: 'node', args: ['files.js'] } },
 * })
 * await gateway.listen({ port: 3000 })
 * ```
 */
export function createGateway(options: GatewayOptions): Gateway {
  assertGatewayOptions(options)
  const clock = options.clock ?? systemClock
  const limits = { ...HOLD, ...options.hold }
  const server = createServer(serverOptions(options))
  const port = forwarding(server)
  const { warn } = port
  const requests = new AsyncLocalStorage<Running>()
  const clientInfo = { name: options.name, version: options.version }
  const upstreams = Object.entries(options.upstreams).map(([name, upstream]) =>
    createUpstream(name, upstream, {
      clock,
      limits,
      clientInfo,
      random: Math.random,
      warn,
      onStderr: options.onStderr,
      telemetry: options.telemetry,
    }),
  )
  const held = createHeldCalls(limits, clock, (id) => handover?.release(id))
  const several = upstreams.length > 1
  const traffic = new Map<string, Traffic>()
  let extension: ExtensionHost | undefined
  let handover: Handover | undefined
  const sealer: Sealer = {
    seal: (purpose, data) => attached(extension).seal(purpose, data),
    open: (purpose, sealed) => attached(extension).open(purpose, sealed),
  }
  const vetting = {
    policies: options.onRound === undefined ? [noSecretsInForms()] : [options.onRound].flat(),
    labels: several,
  }
  const tasks = createUpstreamTasks({ upstreams, sealer, vetting, warn })
  port.tasks(tasks)
  const handles = options.ask && createHandles(clock, options.ask.place)
  if (handles) declareStatus(server, handles)
  const passing: Passing = {
    held,
    decide: options.decide,
    approvals: options.approvals,
    ask: options.ask,
    ...vetting,
    tasks,
    followTasks: options.followTasks ?? true,
    stored: options.store !== undefined,
    get handover() {
      return handover
    },
    sent: options.store?.records && createSentRounds(options.store.records, sealer),
    instance: randomBytes(9).toString('base64url'),
    clock,
    waitMs: limits.waitMs,
    handles,
    serves: (upstream, uri, principal) => catalog.serves(upstream, uri, principal),
    onCall(client, { name: upstream, known: { revision } }) {
      const key = JSON.stringify([client, upstream, revision])
      const calls = (traffic.get(key)?.calls ?? 0) + 1
      traffic.set(key, { client, upstream, ...(revision && { revision }), calls, lastAt: clock.now() })
    },
    onHeld: (id) => void requests.getStore()?.held.add(id),
    onAsked({ name }) {
      const running = requests.getStore()
      if (running) running.sentTo = name
    },
    onDetached: () => void requests.getStore()?.held.clear(),
    inTurn: () => requests.getStore()?.isTurn === true,
  }
  const seen = createSeen(options.onClient)
  server.use({
    name: 'gateway',
    attach(host) {
      extension = host
      const { records, bus } = options.store ?? {}
      if (records && bus)
        handover = createHandover({
          records,
          bus,
          sealer,
          clock,
          waitMs: limits.waitMs,
          leaseMs: options.tasks?.leaseMs ?? LEASE_MS,
          warn,
          end: (id) => void held.cancel(id),
          isStopping: async () => (await server.notReady()) === 'draining',
          resume: resumeFor(held, () => handover),
        })
      return undefined
    },
    async around(call, next) {
      seen(call)
      const listing = LISTING[call.method]
      if (listing && call.target) await catalog.admit(listing, call.target, call.principal)
      const running: Running = { held: new Set(), isTurn: call.kind === 'turn' }
      let isOpen = false
      try {
        const reply = await requests.run(running, next)
        isOpen = reply.kind === 'input_required' || reply.kind === 'pending'
        const isStopped = reply.kind === 'error' && reply.error.code === 'SERVER_DRAINING'
        // It has been sent, so its client must not be told to send it again.
        return isStopped && running.sentTo !== undefined ? stoppedAt(running.sentTo) : reply
      } finally {
        // A pushed call ends with its request, even while it waits for an answer.
        if (!isOpen) for (const id of running.held) held.cancel(id)
      }
    },
  })
  const kinds = options.ask?.kinds ?? []
  const subscriptions = new Map(
    upstreams.map((upstream) => [upstream.name, subscriptionsOf(upstream, options, { clock, kinds, warn })]),
  )
  const catalog = createCatalog({
    server,
    passing,
    several,
    rename: options.rename,
    kinds,
    warn,
    upstreams,
    subscriptions,
    instructions: options.instructions,
    reserved: new Set(handles ? [HANDLE_TOOL] : []),
  })
  const watch = createWatch(upstreams, { clock, kinds, catalog, warn })

  let starting: Promise<void> | undefined
  const ready = (): Promise<void> => {
    starting ??= watch.start().catch((error) => {
      starting = undefined
      throw error
    })
    return starting
  }
  const isReady = (): Promise<boolean> =>
    ready().then(
      () => true,
      (error: unknown) => {
        warn(reasonOf(error))
        return false
      },
    )
  const close = async (): Promise<void> => {
    held.close()
    handover?.close()
    handles?.close()
    tasks.close()
    watch.stop()
    for (const one of subscriptions.values()) one.close()
    await Promise.all(upstreams.map((one) => one.close()))
  }
  return {
    ...server,
    ready,
    heldCalls: () => held.size,
    traffic: () => [...traffic.values()],
    upstreams: () =>
      upstreams.map(({ name, known }) => ({
        name,
        ...(known.revision !== undefined && { revision: known.revision }),
        ...(known.server !== undefined && { server: known.server }),
        tools: catalog.count(name),
        ...(watch.problem(name) !== undefined && { problem: watch.problem(name) }),
      })),
    async fetch(request) {
      if (await isReady()) return server.fetch(request)
      return new Response(UNREADY.body, { status: 503, headers: UNREADY.headers })
    },
    nodeHandler(given) {
      const handler = server.nodeHandler(given)
      return async (request, response) => {
        if (await isReady()) handler(request, response)
        else response.writeHead(503, { ...UNREADY.headers, Connection: 'close' }).end(UNREADY.body)
      }
    },
    async listen(given) {
      assertPrivate(options, given)
      await ready()
      return server.listen(given)
    },
    async stdio(given) {
      await ready()
      await server.stdio(given)
      await close()
    },
    async close() {
      await server.close()
      await close()
    },
  }
}

/** The reply to a request that arrived before any upstream answered. The log has the reason. */
const UNREADY = {
  headers: { 'Content-Type': 'application/json', 'Retry-After': '1' },
  body: '{"jsonrpc":"2.0","error":{"code":-32603,"message":"The gateway is not ready; retry later"}}',
}

/** The lists that name what a call uses. */
const LISTING: Readonly<Record<string, Listing | undefined>> = {
  'tools/call': 'tools',
  'prompts/get': 'prompts',
  'resources/read': 'resources',
}

/** A request or turn that is running. */
interface Running {
  /** The calls that are held for it. */
  readonly held: Set<string>
  readonly isTurn: boolean
  /** The upstream that asked something, and so has been sent the call. */
  sentTo?: string
}

function stoppedAt(upstream: string): { kind: 'error'; error: RondoError } {
  const message = `The gateway is stopping, so the call at "${upstream}" was ended. It may have had effects there, and was not sent again.`
  return { kind: 'error', error: new UpstreamError({ code: -32603, message }) }
}

/** Continues a call that is held here for an instance that got the next round of it. */
function resumeFor(held: HeldCalls, handover: () => Handover | undefined): HandoverResume {
  return async (id, caller, answers) => {
    try {
      const step = await held.resume(id, caller, answers, {
        line: SILENT,
        signal: new AbortController().signal,
      })
      if (step.kind === 'asks') await handover()?.hold(id, caller, step.step)
      return { kind: 'step', step }
    } catch (error) {
      const reason = `The call failed: ${reasonOf(error)}. It may have had effects, and was not sent again.`
      return { kind: 'failed', message: error instanceof HeldEnded ? error.message : reason }
    }
  }
}

function subscriptionsOf(
  upstream: Upstream,
  { decide, hold }: GatewayOptions,
  parts: Omit<WatchParts, 'catalog'>,
): Subscriptions {
  return createSubscriptions({
    upstream,
    ...parts,
    max: hold?.maxWatched ?? HOLD.maxWatched,
    async mayRead({ uri, annotations, principal }) {
      if (decide === undefined) return true
      const facts = { upstream: upstream.name, tool: uri, method: 'resources/read' as const, arguments: {} }
      return (await decide({ ...facts, annotations, ...(principal && { principal }) })) === 'allow'
    },
  })
}

function attached(host: ExtensionHost | undefined): ExtensionHost {
  if (host === undefined) throw new TypeError('The gateway is not attached to its server.')
  return host
}

/** Declares the tool with which a model gets the result of a call that outlived its request. */
function declareStatus(server: Server, handles: Handles): void {
  const input = {
    type: 'object',
    properties: {
      id: { type: 'string' },
      count: {
        type: 'integer',
        description: 'One more than in the last call, so that no two calls are the same',
      },
    },
    required: ['id'],
  } as const
  const description =
    'Returns the result of a call that waits for an answer of the user. Use it only when a result says so.'
  const annotations = { readOnlyHint: true }
  server.tool(HANDLE_TOOL, { description, input, annotations }, async ({ id, count }, ctx) => {
    const status = await handles.status(String(id), callerKey(ctx.principal))
    if (status === 'unknown') throw new ToolError('There is no such call, or it ended long ago.')
    if (status === 'open') return handles.result(String(id), 'the server', Number(count ?? 0) + 1)
    if ('error' in status) throw status.error
    return status.result
  })
}

const MAX_SEEN = 64

/** Reports each kind of client once. */
function createSeen(
  report: GatewayOptions['onClient'],
): (call: Pick<CallFacts, 'client' | 'protocolVersion'>) => void {
  const known = new Set<string>()
  return ({ client, protocolVersion }) => {
    const key = JSON.stringify([client?.name, client?.version, protocolVersion])
    if (report === undefined || known.has(key) || known.size >= MAX_SEEN) return
    known.add(key)
    report({ ...(client && { name: client.name, version: client.version }), revision: protocolVersion })
  }
}

/** Options of the server alone. */
function serverOptions(options: GatewayOptions): ServerOptions {
  const own = new Set<string>(OWN)
  return Object.fromEntries(
    Object.entries(options).filter(([name]) => !own.has(name)),
  ) as unknown as ServerOptions
}

const LOOPBACK = new Set(['127.0.0.1', '::1', 'localhost'])

/** W5: who listens on other addresses than loopback has to know the callers. */
function assertPrivate(
  { authenticate }: GatewayOptions,
  given: { host?: string; authenticate?: unknown } = {},
): void {
  const { host = '127.0.0.1' } = given
  if (LOOPBACK.has(host) || authenticate !== undefined || given.authenticate !== undefined) return
  throw new TypeError(
    `A gateway that listens on ${host} needs authenticate: everybody who reaches it can use its servers.`,
  )
}

const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, fn) {
    const timer = setTimeout(fn, ms)
    timer.unref()
    return () => clearTimeout(timer)
  },
}

interface Watch {
  start(): Promise<void>
  problem(upstream: string): string | undefined
  stop(): void
}

interface WatchParts {
  readonly clock: Clock
  readonly kinds: readonly QuestionKind[]
  readonly catalog: Catalog
  warn(message: string): void
}

/** Keeps the catalog in step with the upstreams, each in a loop of its own. */
function createWatch(upstreams: readonly Upstream[], { clock, kinds, catalog, warn }: WatchParts): Watch {
  const problems = new Map<string, string>()
  const stopped = new AbortController()
  const { signal } = stopped
  /** A start that fails is an error that has all reasons. */
  let isStarted = false
  let lastError: unknown

  const read = async (upstream: Upstream): Promise<boolean> => {
    try {
      await catalog.sync(upstream)
      if (problems.delete(upstream.name) && isStarted) warn(`The server "${upstream.name}" answers again.`)
      return true
    } catch (error) {
      const problem = error instanceof UpstreamDown ? error.reason : reasonOf(error)
      if (problems.get(upstream.name) !== problem && isStarted && !signal.aborted)
        warn(sayProblem(upstream.name, problem))
      problems.set(upstream.name, problem)
      lastError = error
      return false
    }
  }
  const follow = async (upstream: Upstream, isRead: boolean): Promise<void> => {
    let failures = isRead ? 0 : 1
    while (!signal.aborted) {
      if (failures > 0) {
        const pause = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** (failures - 1))
        await sleep(clock, pause * (0.5 + Math.random() / 2), signal)
      }
      if (failures > 0 && !(await read(upstream))) {
        failures += 1
        continue
      }
      if (failures > 0) catalog.publish()
      failures = 0
      const broken = await changes(upstream).catch((error: unknown) => error)
      // An upstream that is gone is tried soon. One that ends or refuses subscriptions is read again now and then.
      if (!isUnreachable(broken)) await sleep(clock, LONGEST_RETRY_MS, signal)
      // The subscription has ended, so something may have been missed.
      failures = 1
    }
  }
  /** Publishes changes until the subscription ends. */
  const changes = async (upstream: Upstream): Promise<void> => {
    const { client } = await upstream.anyConnection(undefined, kinds)
    const filter = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true }
    for await (const change of client.subscribe(filter, { signal })) {
      if (change.kind === 'task' || change.kind === 'resource') continue
      if (await read(upstream)) catalog.publish(change.kind === 'gap' ? undefined : change.kind)
      // However often an upstream says so: what arrives meanwhile is one change.
      await sleep(clock, FIRST_RETRY_MS, signal)
    }
  }

  return {
    problem: (name) => problems.get(name),
    async start() {
      const pending = new Set(upstreams)
      let isAnyRead = false
      let onFirst = (): void => {}
      const first = new Promise<void>((resolve) => {
        onFirst = resolve
      })
      const reads = upstreams.map(async (upstream) => {
        const isRead = await read(upstream)
        pending.delete(upstream)
        isAnyRead ||= isRead
        if (isRead) onFirst()
        return isRead
      })
      const stopSaying = clock.after(QUIET_MS, () => {
        if (!isAnyRead)
          for (const { name } of pending)
            warn(`Waiting for the server "${name}", which has not answered yet.`)
      })
      // Hosts give a server little time to start, so the upstreams that answer do not wait long for the others.
      await Promise.race([Promise.all(reads), first.then(() => sleep(clock, START_MS, signal))])
      stopSaying()
      if (!isAnyRead) {
        const [one, ...others] = upstreams.map(({ name }) => sayProblem(name, problems.get(name) ?? ''))
        const all = upstreams.map(({ name }) => `${name}: ${problems.get(name)}`)
        if (others.length === 0) throw new Error(one, { cause: lastError })
        throw new Error(`No server answers. ${all.join('; ')}`)
      }
      catalog.publish()
      const late = new Set(pending)
      for (const { name } of late) problems.set(name, 'it has not answered yet')
      for (const [name, problem] of problems) warn(`${sayProblem(name, problem)} It is tried again.`)
      isStarted = true
      upstreams.forEach(async (upstream, i) => {
        const isRead = (await reads[i]) === true
        if (isRead && late.has(upstream)) catalog.publish()
        void follow(upstream, isRead)
      })
    },
    stop: () => stopped.abort(),
  }
}

function sayProblem(name: string, problem: string): string {
  return `The server "${name}" does not answer: ${problem}.`
}

function isUnreachable(error: unknown): boolean {
  return error instanceof UpstreamDown || (error instanceof RondoError && error.code === 'PEER_UNREACHABLE')
}
