/**
 * The connections between this process and Restate: calls of handlers through Restate's ingress and of its admin API, and the endpoint where
 * Restate calls the objects and delivers turns. The package `@restatedev/restate-sdk` is loaded only here.
 *
 * connection 1: a call that may have been lost is made again, at the next address, under the same idempotency key: Restate
 *               runs it once and returns the same reply.
 * connection 2: everybody who reaches the endpoint could run handlers with made-up state, so every request must be signed by
 *               Restate with a key that the options name, unless the endpoint is reachable from this machine alone.
 */

import { randomBytes } from 'node:crypto'
import {
  type ClientRequest,
  Agent as HttpAgent,
  request as httpRequest,
  type IncomingMessage,
} from 'node:http'
import { createServer, type Http2Server, type ServerHttp2Session } from 'node:http2'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { ObjectContext } from '@restatedev/restate-sdk'
import { RondoError } from 'rondo'
import { defineOptions, isLoopback, misuse, type OptionsOf, text, unchecked } from 'rondo/internal'
import type { OwnerHandlers, ServiceNames, TaskHandlers, Wake } from './task-object.ts'

export interface IngressOptions {
  readonly addresses: readonly string[]
  readonly headers?: Readonly<Record<string, string>>
  /** The time to retry while Restate cannot be reached. */
  readonly retryMs: number
  /** The time for one attempt. */
  readonly attemptMs: number
  /** Registers the services if that has not succeeded yet, and resolves with whether it did. Called where Restate lacks one. */
  register?(): Promise<boolean>
}

/** Calls a handler of an object. */
export type CallObject = (
  service: string,
  key: string,
  handler: string,
  input: unknown,
  once?: boolean,
) => Promise<unknown>

/** Calls at a time to one address; the others wait. A Restate node runs 1000 at a time, for all processes. */
const MAX_CALLS = 64

/** The response to one HTTP request. */
interface Reply {
  readonly status: number
  readonly body: string
}

export interface Ingress {
  /** Calls a handler; `once` if it must not run twice. */
  call(path: readonly string[], input: unknown, once: boolean): Promise<unknown>
  /** One request to any of the addresses, with retries; resolves whatever the status below 500 is. */
  request(method: 'GET' | 'POST', path: string, body?: unknown): Promise<Reply>
  close(): void
}

export function createIngress({
  addresses,
  headers = {},
  retryMs,
  attemptMs,
  register = async () => false,
}: IngressOptions): Ingress {
  const bases = addresses.map(toBase)
  const pool = { keepAlive: true, maxSockets: MAX_CALLS }
  const agents = { 'http:': new HttpAgent(pool), 'https:': new HttpsAgent(pool) }
  const running = new Set<ClientRequest>()
  let preferred = 0
  let closed = false

  const attempt = (
    base: URL,
    method: string,
    path: string,
    body: string | undefined,
    extra: Readonly<Record<string, string>>,
  ): Promise<Reply> =>
    new Promise((resolve, reject) => {
      const isPlain = base.protocol === 'http:'
      const start = isPlain ? httpRequest : httpsRequest
      const url = new URL(`${base.pathname.replace(/\/$/, '')}${path}`, base)
      const type = body === undefined ? {} : { 'Content-Type': 'application/json' }
      const length = body === undefined ? {} : { 'Content-Length': String(Buffer.byteLength(body)) }
      const options = {
        method,
        agent: isPlain ? agents['http:'] : agents['https:'],
        headers: { Accept: 'application/json', ...headers, ...extra, ...type, ...length },
      }
      const request = start(url, options, (response) => readReply(response).then(resolve, reject))
      running.add(request)
      let timer: NodeJS.Timeout | undefined
      // The time begins when the request is sent, not while it waits for a connection.
      request.on('socket', () => {
        const expire = () => request.destroy(new Error('Restate did not answer in time'))
        timer = setTimeout(expire, attemptMs)
      })
      request.on('error', reject)
      request.on('close', () => {
        clearTimeout(timer)
        running.delete(request)
      })
      request.end(body)
    })

  const retried = async (
    method: string,
    path: string,
    body: string | undefined,
    extra: Readonly<Record<string, string>> = {},
  ): Promise<Reply> => {
    let until = performance.now() + retryMs
    for (let tries = 0; ; tries++) {
      if (closed) throw misuse('This store is closed')
      const used = preferred
      let failure: unknown
      try {
        const reply = await attempt(bases[used] as URL, method, path, body, extra)
        if (!isTransient(reply)) return reply
        // A service that was registered a moment ago is not known on every node yet.
        if (reply.status === 404 && (await register())) until = performance.now() + retryMs
        failure = new Error(`Restate answered with status ${reply.status}: ${reply.body.slice(0, 300)}`)
      } catch (error) {
        failure = error
      }
      if (preferred === used) preferred = (used + 1) % bases.length
      if (closed || performance.now() > until) throw unreachable(addresses, failure)
      await new Promise((resolve) => setTimeout(resolve, pause(tries)))
    }
  }

  return {
    async call(path, input, once) {
      const key: Record<string, string> = once
        ? { 'idempotency-key': randomBytes(16).toString('base64url') }
        : {}
      const target = `/${path.map(encodeURIComponent).join('/')}`
      const { status, body } = await retried('POST', target, JSON.stringify(input), key)
      if (status >= 300) throw new RondoError('STORE_UNAVAILABLE', explain(path, status, body))
      return body === '' ? undefined : JSON.parse(body)
    },
    request: (method, path, body) =>
      retried(method, path, body === undefined ? undefined : JSON.stringify(body)),
    close() {
      closed = true
      for (const request of running) request.destroy(new Error('This store was closed'))
      for (const agent of Object.values(agents)) agent.destroy()
    },
  }
}

function toBase(address: string): URL {
  const url = URL.canParse(address) ? new URL(address) : undefined
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:')
    throw misuse(`The address of Restate must be an http:// or https:// URL; got ${JSON.stringify(address)}`)
  return url
}

async function readReply(response: IncomingMessage): Promise<Reply> {
  const pieces: Buffer[] = []
  for await (const piece of response) pieces.push(piece as Buffer)
  return { status: response.statusCode ?? 0, body: Buffer.concat(pieces).toString() }
}

/** 404: the service is not registered yet, or not known on every node. */
function isTransient({ status }: Reply): boolean {
  return status >= 500 || status === 404 || status === 429 || status === 408
}

/** 10, 20, 40 … 500 ms, with jitter of a half. */
const pause = (tries: number): number => Math.min(10 * 2 ** tries, 500) * (0.5 + Math.random())

function unreachable(addresses: readonly string[], cause: unknown): RondoError {
  const reason = cause instanceof Error ? cause.message : String(cause)
  const message = `Restate at ${addresses.join(', ')} did not answer a call: ${reason}. Check the address, that the server runs, and that the endpoint of a worker is registered`
  return new RondoError('STORE_UNAVAILABLE', message, { cause })
}

function explain([service]: readonly string[], status: number, body: string): string {
  if (status === 401 || status === 403)
    return `Restate refused the call with status ${status}. Set the option headers to what its ingress expects`
  return `Restate answered a call of ${service} with status ${status}: ${body.slice(0, 300)}`
}

export interface EndpointOptions {
  /** The port to listen on. */
  port: number
  /** The address to listen on. Default: `127.0.0.1`. */
  host?: string
  /** Where Restate reaches this process, or the balancer of all of them. Default: `http://host:port`. */
  url?: string
  /**
   * Public keys of Restate (`publickeyv1_…`, printed when it starts with a `request-identity-private-key-pem-file`). A
   * request that none of them signed is refused. Required unless `host` is a loopback address. Default: none.
   */
  identityKeys?: readonly string[]
}

/** Runs the turn that Restate delivered; rejects if Restate must deliver it again. */
export type RunDelivered = (wake: Wake, gone: AbortSignal) => Promise<void>

/** Each handler decides what its input is. */
type Handlers<N extends string> = Readonly<Record<N, ObjectHandler['run']>>
interface ObjectHandler {
  run(ctx: ObjectContext, input: unknown): Promise<unknown>
}

/** The handlers of the virtual objects. */
export interface StoreObjects {
  readonly task: TaskHandlers
  readonly owner: OwnerHandlers
  readonly once: Handlers<'claim' | 'renew' | 'settle' | 'delete'>
  readonly epoch: Handlers<'start' | 'current'>
  readonly blob: Handlers<'put' | 'read' | 'delete'>
}

export interface Endpoint {
  /** Starts to listen. */
  open(): Promise<void>
  /** Makes the endpoint known to Restate. */
  register(admin: Ingress): Promise<void>
  close(): Promise<void>
}

const SECOND_MS = 1_000
const DAY_MS = 86_400_000

/** Restate tries again until a worker takes the call; the engine counts what a task does to its workers. */
const retryPolicy = {
  initialInterval: 100,
  maxInterval: 2 * SECOND_MS,
  exponentiationFactor: 2,
  maxAttempts: 1_000_000_000,
  onMaxAttempts: 'pause',
} as const

const ENDPOINT = defineOptions('createRestateStore: endpoint', {
  port: unchecked(),
  host: text('127.0.0.1'),
  url: text(),
  identityKeys: unchecked<readonly string[]>([]),
} satisfies OptionsOf<EndpointOptions>)

export function assertEndpoint(given: EndpointOptions): void {
  const { host, identityKeys, port } = ENDPOINT.read(given)
  if (!Number.isInteger(port) || port < 0 || port > 65_535)
    throw misuse('endpoint.port must be a port number')
  if (identityKeys.length === 0 && !isLoopback(host))
    throw misuse(
      `endpoint.identityKeys is missing: whoever reaches ${host}:${port} could forge requests. Start Restate with a request-identity-private-key-pem-file and list the public key that it prints`,
    )
  const major = Number(process.versions.node.split('.')[0])
  if (major < 22)
    throw misuse(
      `The Restate engine needs Node 22 or later to run tasks, because its SDK does; this is Node ${process.versions.node}. Upgrade Node, or omit the option endpoint in processes that only create and follow tasks`,
    )
}

export function createEndpoint(
  options: EndpointOptions,
  names: ServiceNames,
  objects: StoreObjects,
  run: RunDelivered,
): Endpoint {
  const { port, host, identityKeys } = ENDPOINT.read(options)
  const sessions = new Set<ServerHttp2Session>()
  let opening: Promise<Http2Server> | undefined
  let bound = port

  const listen = async (): Promise<Http2Server> => {
    const sdk = await loadSdk()
    const services = defineServices(sdk, names, objects, run)
    const handler = sdk.createEndpointHandler({ services, identityKeys: [...identityKeys], logger: () => {} })
    const created = createServer(handler)
    created.on('session', (session) => {
      sessions.add(session)
      session.on('close', () => sessions.delete(session))
      session.on('error', () => {})
    })
    await new Promise<void>((resolve, reject) => {
      created.once('error', (cause: NodeJS.ErrnoException) =>
        reject(
          cause.code === 'EADDRINUSE'
            ? misuse(`Port ${port} of ${host} is in use: choose another endpoint.port`, { cause })
            : cause,
        ),
      )
      created.listen(port, host, resolve)
    })
    created.on('error', () => {})
    bound = (created.address() as AddressInfo).port
    return created
  }
  const open = () => {
    opening ??= listen().catch((error) => {
      opening = undefined
      throw error
    })
    return opening
  }
  const url = () => options.url ?? `http://${host.includes(':') ? `[${host}]` : host}:${bound}`

  return {
    async open() {
      await open()
    },
    async register(admin) {
      await open()
      const reply = await admin.request('POST', '/deployments', { uri: url(), force: false })
      // Restate knows this address with other handlers, from another version of this package.
      const again = reply.status === 409
      const { status, body } = again
        ? await admin.request('POST', '/deployments', { uri: url(), force: true, breaking: true })
        : reply
      if (status >= 300)
        throw new RondoError(
          'STORE_UNAVAILABLE',
          `Restate could not register the endpoint ${url()} (status ${status}): ${body.slice(0, 500)}`,
        )
    },
    async close() {
      const open = await opening?.catch(() => undefined)
      if (open === undefined) return
      const closed = new Promise<void>((resolve) => open.close(() => resolve()))
      for (const session of sessions) session.close()
      const timer = setTimeout(() => {
        for (const session of sessions) session.destroy()
      }, SECOND_MS)
      await closed
      clearTimeout(timer)
    },
  }
}

type Sdk = typeof import('@restatedev/restate-sdk')

async function loadSdk(): Promise<Sdk> {
  return await import('@restatedev/restate-sdk').catch((cause) => {
    throw misuse(
      'The Restate engine needs the package "@restatedev/restate-sdk": run npm install @restatedev/restate-sdk',
      { cause },
    )
  })
}

type Definition = ReturnType<Sdk['object']> | ReturnType<Sdk['service']>

function defineServices(
  sdk: Sdk,
  names: ServiceNames,
  { task, owner, once, epoch, blob }: StoreObjects,
  run: RunDelivered,
): Definition[] {
  const { exclusive, shared } = sdk.handlers.object
  const inner = { ingressPrivate: true }
  // An error of a handler would be tried again for ever, and block the object meanwhile.
  const asTerminalError = (error: unknown) =>
    new sdk.TerminalError(error instanceof Error ? error.message : 'the handler failed', { errorCode: 400 })
  // Handlers of objects take milliseconds: one that says nothing was lost on the way, and its object waits for it.
  const options = {
    retryPolicy,
    journalRetention: 0,
    idempotencyRetention: 60 * SECOND_MS,
    inactivityTimeout: 10 * SECOND_MS,
    abortTimeout: 5 * SECOND_MS,
    asTerminalError,
  }

  return [
    sdk.object({
      name: names.task,
      handlers: {
        ...task,
        look: shared((ctx, input: never) => task.look(ctx as never, input)),
        slots: shared((ctx, input: never) => task.slots(ctx as never, input)),
        held: shared((ctx, input: never) => task.held(ctx as never, input)),
        check: exclusive(inner, task.check),
        expire: exclusive(inner, task.expire),
        evict: exclusive(inner, task.evict),
      },
      options,
    }),
    sdk.object({
      name: names.owner,
      handlers: {
        ...owner,
        open: shared((ctx, input: never) => owner.open(ctx as never, input)),
        page: shared((ctx, input: never) => owner.page(ctx as never, input)),
      },
      options: { ...options, enableLazyState: true },
    }),
    sdk.object({
      name: names.once,
      handlers: { ...once, delete: exclusive(inner, once.delete) },
      options,
    }),
    sdk.object({
      name: names.epoch,
      handlers: {
        start: epoch.start,
        current: shared((ctx, input: never) => epoch.current(ctx as never, input)),
      },
      options,
    }),
    sdk.object({
      name: names.blob,
      handlers: {
        put: blob.put,
        read: shared((ctx, input: never) => blob.read(ctx as never, input)),
        delete: exclusive(inner, blob.delete),
      },
      options,
    }),
    sdk.service({
      name: names.turn,
      handlers: {
        run: async (
          ctx: { request(): { attemptCompletedSignal: AbortSignal } },
          wake: Wake,
        ): Promise<null> => {
          await run(wake, ctx.request().attemptCompletedSignal)
          return null
        },
      },
      // A turn may take as long as its longest step, and says nothing to Restate meanwhile.
      options: {
        retryPolicy,
        journalRetention: 0,
        inactivityTimeout: DAY_MS,
        abortTimeout: DAY_MS,
        ingressPrivate: true,
      },
    }),
  ] as Definition[]
}
