/**
 * The endpoint of a process: where Restate calls the objects and delivers turns. The package `@restatedev/restate-sdk` is
 * loaded only here.
 *
 * Everybody who reaches the endpoint could run handlers with made-up state, so every request must be signed by Restate
 * with a key that the options name, unless the endpoint is reachable from this machine alone.
 */

import { createServer, type Http2Server, type ServerHttp2Session } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { misuse, RondoError } from '../../errors.ts'
import type { Ingress } from './ingress.ts'
import { createBlobObject, createEpochObject, createOnceObject } from './once-object.ts'
import { createOwnerObject, type ServiceNames, type TaskHandlers, type Wake } from './task-object.ts'

export interface EndpointOptions {
  /** The port on which this process listens for Restate. */
  port: number
  /** The address to listen on. Default: 127.0.0.1. */
  host?: string
  /** Where Restate reaches this process, or the balancer in front of all processes. Default: http://host:port. */
  url?: string
  /**
   * The public keys of Restate (`publickeyv1_…`, printed when it starts with a `request-identity-private-key-pem-file`). A
   * request that none of them signed is refused. Required unless the host is a loopback address.
   */
  identityKeys?: readonly string[]
}

/** Runs the turn that Restate delivered; rejects if Restate must deliver it again. */
export type RunDelivered = (wake: Wake, gone: AbortSignal) => Promise<void>

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

export function assertEndpoint({ host = '127.0.0.1', identityKeys = [], port }: EndpointOptions): void {
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

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d+){3}$/.test(host)
}

export function createEndpoint(
  options: EndpointOptions,
  names: ServiceNames,
  task: TaskHandlers,
  run: RunDelivered,
): Endpoint {
  const { port, host = '127.0.0.1', identityKeys = [] } = options
  const sessions = new Set<ServerHttp2Session>()
  let opening: Promise<Http2Server> | undefined
  let bound = port

  const listen = async (): Promise<Http2Server> => {
    const sdk = await loadSdk()
    const services = defineServices(sdk, names, task, run)
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

function defineServices(sdk: Sdk, names: ServiceNames, task: TaskHandlers, run: RunDelivered): Definition[] {
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

  const owner = createOwnerObject()
  const once = createOnceObject(names)
  const epoch = createEpochObject()
  const blob = createBlobObject(names)
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
      handlers: { start: epoch.start, current: shared(epoch.current) },
      options,
    }),
    sdk.object({
      name: names.blob,
      handlers: { put: blob.put, read: shared(blob.read), delete: exclusive(inner, blob.delete) },
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
