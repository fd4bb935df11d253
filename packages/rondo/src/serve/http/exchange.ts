/**
 * One HTTP exchange, independent of the runtime: `node.ts` and `fetch.ts` bring the bytes and carry the response away. Every
 * request takes the same steps, in the order of `serve`; each of them may refuse it:
 *
 *   admit      host, origin, HTTP method, draining, media type            admission.ts
 *   identify   the author's `authenticate`                                authenticate.ts
 *   read       size, room, UTF-8, the JSON guard, the revision            lib/body.ts, message.ts
 *   allow      the scopes that the call needs                             scope.ts
 *   call       the service, inside the steps of extensions                service.ts, carry/around.ts
 *   send       JSON if nothing streams, events otherwise                  line.ts
 *
 * Clients of earlier eras leave the path after `read`, and are served in `session/`.
 */

import { isUtf8 } from 'node:buffer'
import { RondoError } from '../../errors.ts'
import { createEvery } from '../../lib/clock.ts'
import { createInFlight } from '../../lib/collection.ts'
import { quietly } from '../../lib/quietly.ts'
import type { Call, ListenCall, RequestId } from '../../protocol/call.ts'
import type { RequestMessage } from '../../protocol/codec.ts'
import { statusOf } from '../../protocol/common/headers.ts'
import { createIdReader, type IdReader, readRequestId } from '../../protocol/common/request-id.ts'
import { internalError } from '../failure.ts'
import { createWatch } from '../heartbeat.ts'
import { createLoads, createShares, FREE_WEIGHT, HTTP_LIMITS, NOBODY } from '../limits.ts'
import { type OlderMessage, readMessage, readParsed, type Weigh } from '../message.ts'
import type { HttpOptions } from '../options.ts'
import type { HttpRequest, HttpResponse, Load, Outlet, Service } from '../port.ts'
import { finishOnce, replyTo } from '../service.ts'
import { createAdmission, createAllowList, createCrossOrigin, retryLater } from './admission.ts'
import type { HttpArrival, Room } from './arrival.ts'
import { type Arriving, createIdentify, type Identified, refusalCode } from './authenticate.ts'
import { HttpLine, refusal } from './line.ts'
import { metadataResponse } from './metadata.ts'
import { type FoundRoute, findRoute, serveRoute } from './route.ts'
import { allowedCall, createAccess } from './scope.ts'
import { createSubscriptions, serveListen } from './subscription.ts'

export interface Exchange {
  /** Serves a request. Never rejects. */
  serve(arrival: HttpArrival): Promise<void>
  /** Receives errors that no client is told about. Never throws. */
  onError(error: unknown): void
  readonly state: Service['state']
  /** From now on new requests are refused. */
  drain(): void
  /** Resolves when no call is in flight. Subscriptions do not count. */
  idle(): Promise<void>
  /** Ends subscriptions and sessions. */
  endStreams(): Promise<void>
}

type Caller = Pick<HttpRequest, 'principal' | 'headers'>

const INTERNAL_ERROR: HttpResponse = { ...refusal(new RondoError('SERVER_INTERNAL')), status: 500 }
const ACCEPTED: HttpResponse = { status: 202, headers: {}, body: '' }
const ANONYMOUS: Identified = { kind: 'known', principal: undefined }

const UNKNOWN = { address: undefined }
const HOOK_FAILED = 'The option authenticate threw, did not settle in time or returned something invalid'

/** `listenHost` is the name that the server listens on, which is then an allowed host. */
export function createExchange(service: Service, options: HttpOptions = {}, listenHost?: string): Exchange {
  const settings = HTTP_LIMITS.pick(options)
  const { authenticate } = options
  const { resource } = authenticate ?? {}
  const onError = quietly(options.onError)
  const every = options.every ?? createEvery(onError)
  const subscriptions = createSubscriptions(service, settings)
  const shareOf = createShares(options.addressHeader)
  const watch = createWatch({
    heartbeatMs: settings.heartbeatMs,
    slow: service.slow,
    isStuck: service.isStuck,
    every,
    onError,
  })
  const inFlight = createInFlight(watch, options.isolated)
  const stream = {
    keepAliveMs: settings.keepAliveMs,
    every,
    maxBacklog: settings.maxBacklogBytes,
  }
  const access = createAccess(service, authenticate)
  const loads = service.loads ?? createLoads()
  const context = { service, inFlight, stream, shareOf, access, whenDraining: retryLater(options), onError }
  const older = service.older?.overHttp(context, options.stateless === true)
  const sessions = older !== undefined && !options.stateless
  const allowed = createAllowList(options, listenHost)
  const crossOrigin = createCrossOrigin(allowed.namedOrigin)
  const { admit, admitPage } = createAdmission(
    service.state,
    options,
    allowed,
    crossOrigin,
    sessions,
    service.onRefused,
  )
  const callerOf = ({ headers, connection = UNKNOWN }: Arriving): string | undefined => {
    const caller = shareOf(undefined, headers, connection)
    return caller === NOBODY ? undefined : caller
  }
  const onHookError = (error: unknown, arriving: Arriving): void => {
    try {
      if (options.onRefused) options.onRefused(401, HOOK_FAILED, callerOf(arriving), error)
      else onError(error)
    } catch {
      // A function of the operator threw, such as the clock.
      onError(error)
    }
  }
  const onRefused = (status: number, reason: string | undefined, arriving: Arriving): void => {
    if (reason !== undefined) options.onRefused?.(status, reason, callerOf(arriving))
    else service.onRefused?.(refusalCode(status), status)
  }
  const routes = service.extensions?.routes
  const identify = authenticate && createIdentify(authenticate, onHookError, onRefused)

  const loadOf = ({ principal, headers }: Caller, connection: Pick<Outlet, 'address'> = UNKNOWN): Load =>
    loads.open(shareOf(principal, headers, connection))

  const busy = (): RondoError => {
    const error = loads.refusal()
    service.onRefused?.(error.code, error.http)
    return error
  }

  /** Serves a request of the protocol, step by step. */
  async function serve(arrival: HttpArrival): Promise<void> {
    const { method, url, headers, outlet } = arrival
    if (headers.origin !== undefined) arrival.share(crossOrigin.headers(headers.origin))
    const early = admit(method, headers, arrival.raw)
    if (early !== undefined) return refuse(arrival, early)
    const identified = identify ? await identify({ headers, method, url, connection: outlet }) : ANONYMOUS
    if (identified.kind === 'refused') return refuse(arrival, identified.response)
    const request = { method, headers, principal: identified.principal, outlet }
    if (method !== 'POST') return older?.bare(request)
    const message = await read(arrival, request)
    try {
      await dispatch(message.decoded, message.load ? { ...request, load: message.load } : request)
    } finally {
      message.release?.()
    }
  }

  /** Refuses a request whose body is unread. */
  function refuse(arrival: HttpArrival, response: HttpResponse): void {
    arrival.abandon()
    arrival.outlet.send(response)
  }

  /** Reads and decodes a message. A heavy one is counted until `release`. */
  async function read(arrival: HttpArrival, request: HttpRequest): Promise<Read> {
    const { given, headers } = arrival
    let load: Load | undefined
    const weigh: Weigh = (weight) => {
      if (weight <= FREE_WEIGHT) return undefined
      load = loadOf(request, request.outlet)
      return load.weigh(weight) ? undefined : busy()
    }
    const rest = [headers, service, older?.isOlder, weigh] as const
    if (given !== undefined && typeof given !== 'string' && !Buffer.isBuffer(given)) {
      const decoded = readParsed(given, ...rest)
      return { decoded, load, release: load?.hold() }
    }
    const text = given === undefined ? await readText(arrival, request) : toText(given)
    const decoded = typeof text === 'string' ? readMessage(text, ...rest) : text
    return { decoded, load, release: load?.hold() }
  }

  /** Reads a body as text, or says why it is refused. */
  async function readText(arrival: HttpArrival, request: HttpRequest): Promise<string | Refused> {
    const room = createRoom(() => loadOf(request, request.outlet))
    let discarded: IdReader | undefined
    const body = await arrival.read({
      limit: arrival.maxBodyBytes,
      patience: arrival.patience,
      declared: arrival.headers['content-length'],
      hasRoom: room.hasRoom,
      onDiscarded(bytes) {
        // Nothing of the body is held any more.
        room.release()
        discarded ??= createIdReader()
        discarded.push(bytes)
      },
    })
    room.release()
    if (body.kind === 'whole') return toText(body.bytes)
    arrival.abandon()
    if (body.kind === 'no-room') return refused(busy())
    if (body.kind === 'too-large') return refused(new RondoError('LIMIT_BODY'), discarded?.id())
    return refused(new RondoError('PEER_PARSE', 'The body is incomplete'))
  }

  async function dispatch(decoded: RequestMessage | OlderMessage, request: HttpRequest): Promise<void> {
    const { headers, principal, outlet } = request
    if (decoded.kind === 'older') return older?.post(decoded.message, request)
    if (decoded.kind === 'refused') return outlet.send(refusal(decoded.error, decoded.id))
    if (decoded.kind === 'notification') return outlet.send(ACCEPTED)
    const call = access.active ? await allow(decoded.call, request) : decoded.call
    if (call === undefined) return
    if (call.kind !== 'listen') return serveCall(call, request)
    const share = shareOf(principal, headers, outlet)
    serveListen(call, { principal, share }, outlet, subscriptions, stream)
  }

  /** Returns the call if the caller's token allows it, and responds otherwise. */
  async function allow(call: Call, { principal, outlet }: HttpRequest): Promise<Call | undefined> {
    try {
      return await allowedCall(access, call, principal)
    } catch (error) {
      const known = error instanceof RondoError ? error : internalError(error, onError).error
      outlet.fail(refusal(known, call.id))
      return undefined
    }
  }

  async function serveCall(call: Exclude<Call, ListenCall>, request: HttpRequest): Promise<void> {
    const { headers, principal, outlet } = request
    const { requests, newest } = service.codecs
    const codec = requests.get(call.protocolVersion) ?? newest
    const active = { call, principal, line: new HttpLine(outlet, headers, stream) }
    inFlight.enter(active)
    try {
      const reply = await replyTo(service, active, onError)
      finishOnce(
        reply,
        (given) => {
          const sent = given.kind === 'error' ? given.error.headers : undefined
          active.line.finish(statusOf(given), codec.encodeReply(call.id, given, service), sent)
        },
        onError,
      )
    } finally {
      inFlight.leave(active)
    }
  }

  async function servePage(arrival: HttpArrival, route: FoundRoute): Promise<void> {
    const { method, headers, raw, outlet } = arrival
    const active = {}
    inFlight.enter(active)
    try {
      const room = createRoom(() => loadOf({ principal: undefined, headers }, outlet))
      const response = await serveRoute(arrival, route, {
        admit: () => admitPage(method, headers, raw),
        busy: () => refusal(busy()),
        room,
        onError,
      })
      if (!outlet.gone) await arrival.respond(response)
    } finally {
      inFlight.leave(active)
    }
  }

  function fail(error: unknown, outlet: Outlet): void {
    onError(error)
    try {
      outlet.fail(INTERNAL_ERROR)
    } catch (failed) {
      onError(failed)
      outlet.drop()
    }
  }

  /** Finds what serves the path of a request: the metadata, a route of an extension, or the endpoint. */
  async function routed(arrival: HttpArrival): Promise<void> {
    const { method, url, headers, outlet, endpoint } = arrival
    const metadata =
      resource && method !== 'POST' ? metadataResponse(resource, method, url, headers) : undefined
    if (metadata !== undefined) return outlet.send(metadata)
    const route = routes && routes.size > 0 ? findRoute(arrival, routes) : undefined
    if (route !== undefined) return servePage(arrival, route)
    if (endpoint !== undefined && url !== endpoint && !url.startsWith(`${endpoint}?`))
      return outlet.send(notFound(endpoint))
    return serve(arrival)
  }

  return {
    async serve(arrival) {
      try {
        await routed(arrival)
      } catch (error) {
        fail(error, arrival.outlet)
      }
    },
    onError,
    state: service.state,
    drain: () => service.drain(),
    idle: () => inFlight.idle(),
    async endStreams() {
      subscriptions.endAll()
      await service.older?.close()
    },
  }
}

type Refused = Extract<RequestMessage, { readonly kind: 'refused' }>

interface Read {
  readonly decoded: RequestMessage | OlderMessage
  /** The weight of the message, unless it is light. */
  readonly load: Load | undefined
  readonly release: (() => void) | undefined
}

function refused(error: RondoError, id: RequestId | null = null): Refused {
  return { kind: 'refused', id, error }
}

function toText(body: Uint8Array | string): string | Refused {
  if (typeof body === 'string') return body
  // Decoding would replace invalid bytes, and the body would be a different one.
  if (!isUtf8(body))
    return refused(new RondoError('PEER_PARSE', 'The body is not UTF-8'), readRequestId(body))
  return Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString('utf8')
}

function createRoom(openLoad: () => Load): Room {
  let load: Load | undefined
  let release = (): void => {}
  return {
    hasRoom(size) {
      if (size <= FREE_WEIGHT) return true
      if (load === undefined) {
        load = openLoad()
        release = load.hold()
      }
      // The block that collects the bytes may be twice as large.
      return load.weigh(2 * size)
    },
    release: () => release(),
  }
}

function notFound(endpoint: string): HttpResponse {
  const headers = { 'Content-Type': 'text/plain' }
  return { status: 404, headers, body: `Not found. MCP is served at ${endpoint}\n` }
}
