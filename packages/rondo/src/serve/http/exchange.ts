/**
 * One HTTP exchange, independent of the runtime: `node.ts` and `fetch.ts` bring the bytes. An entrance calls `admit`
 * before it reads a body, then `identify` if there is one, then `serve` with the body. The response goes to the outlet:
 * JSON if nothing streams, events otherwise. Clients of earlier eras are recognized here and served in `session/`.
 */

import { RondoError } from '../../errors.ts'
import { createEvery } from '../../lib/clock.ts'
import { createInFlight } from '../../lib/collection.ts'
import { parseGuarded } from '../../lib/json.ts'
import { quietly } from '../../lib/quietly.ts'
import type { Call, ListenCall } from '../../protocol/call.ts'
import type { RequestMessage } from '../../protocol/codec.ts'
import { type RequestHeaders, statusOf, versionHeader } from '../../protocol/common/headers.ts'
import { claimedVersion, idOf } from '../../protocol/common/request.ts'
import { readRequestId } from '../../protocol/common/request-id.ts'
import { internalError } from '../failure.ts'
import { createWatch, HEARTBEAT_MS } from '../heartbeat.ts'
import { createLoads, createShares, FREE_WEIGHT, NOBODY } from '../limits.ts'
import { assertHttpOptions, type HttpOptions } from '../options.ts'
import type {
  CallContext,
  HttpRequest,
  HttpResponse,
  IsOlder,
  Load,
  Outlet,
  Route,
  Service,
} from '../port.ts'
import { settle } from '../service.ts'
import {
  type Admission,
  type CrossOrigin,
  createAdmission,
  createAllowList,
  createCrossOrigin,
  retryLater,
} from './admission.ts'
import {
  type Arriving,
  admitCall,
  createAccess,
  createIdentify,
  type Identified,
  metadataResponse,
} from './authenticate.ts'
import { HttpLine, refusal } from './line.ts'
import { type RouteRequest, serveRoute } from './route.ts'
import { createSubscriptions, serveListen } from './subscription.ts'

type Caller = Pick<HttpRequest, 'principal' | 'headers'>

export interface Exchange {
  readonly admit: Admission
  /** Headers of every response to a page of this origin. */
  readonly shared: CrossOrigin['headers']
  /** Absent if there is no `authenticate`. */
  readonly identify: ((request: Arriving) => Identified | Promise<Identified>) | undefined
  /** The response to a request for the metadata of a protected server. Absent if there is none. */
  readonly metadata:
    | ((method: string, url: string | undefined, headers: RequestHeaders) => HttpResponse | undefined)
    | undefined
  /** Returns the route of an extension that serves a path. Absent if there are no routes. */
  readonly routes: ((path: string) => Route | undefined) | undefined
  /** Serves a route. The request is in flight until `send` has resolved. Rejects only if `send` does. */
  serveRoute(
    route: Route,
    request: RouteRequest,
    send: (response: Response) => Promise<void>,
  ): Promise<Response>
  /** Receives errors that no client is told about. Never throws. */
  onError(error: unknown): void
  /** Counts what arrives with a request. */
  load(caller: Caller, connection?: Pick<Outlet, 'address'>): Load
  /** The response to a request for which there is no room. */
  busy(): HttpResponse
  serve(text: string, request: HttpRequest): void
  /** Serves a body that a middleware has parsed. */
  serveParsed(body: unknown, request: HttpRequest): void
  /** Serves a request of an older client without a body: GET, DELETE. */
  serveBare(request: HttpRequest): void
  readonly state: Service['state']
  /** Responds to a request that threw unexpectedly: with 500 if that is still possible. The error goes to `onError`. */
  fail(error: unknown, outlet: Outlet): void
  /** From now on new requests are refused. */
  drain(): void
  /** Resolves when no call is in flight. Subscriptions do not count. */
  idle(): Promise<void>
  /** Ends subscriptions and sessions. */
  endStreams(): Promise<void>
}

const INTERNAL_ERROR: HttpResponse = { ...refusal(new RondoError('SERVER_INTERNAL')), status: 500 }
const ACCEPTED: HttpResponse = { status: 202, headers: {}, body: '' }

const UNKNOWN = { address: undefined }
const HOOK_FAILED = 'The option authenticate threw, did not settle in time or returned something invalid'

/** `listenHost` is the name that the server listens on, which is then an allowed host. */
export function createExchange(service: Service, options: HttpOptions = {}, listenHost?: string): Exchange {
  assertHttpOptions(options)
  const { authenticate, heartbeatMs = HEARTBEAT_MS } = options
  const { resource } = authenticate ?? {}
  const onError = quietly(options.onError)
  const every = options.every ?? createEvery(onError)
  const subscriptions = createSubscriptions(service, options)
  const shareOf = createShares(options.addressHeader)
  const watch = createWatch({
    heartbeatMs,
    slow: service.slow,
    isStuck: service.isStuck,
    every,
    onError,
  })
  const inFlight = createInFlight(watch, options.isolated)
  const stream = {
    keepAliveMs: options.keepAliveMs ?? 15_000,
    every,
    maxBacklog: options.maxBacklogBytes ?? 1_048_576,
  }
  const access = createAccess(service, authenticate)
  const loads = service.loads ?? createLoads()
  const asksEverybody = (resource?.scopes.length ?? 0) > 0
  const context = { service, inFlight, stream, shareOf, access, whenDraining: retryLater(options), onError }
  const older = service.older?.overHttp(context, options.stateless === true)

  const loadOf = ({ principal, headers }: Caller, connection: Pick<Outlet, 'address'> = UNKNOWN): Load =>
    loads.open(shareOf(principal, headers, connection))

  function serve(request: HttpRequest, read: (weigh: Weigh) => RequestMessage | OlderMessage): void {
    let load: Load | undefined
    const decoded = read((weight) => {
      if (weight <= FREE_WEIGHT) return undefined
      load = loadOf(request, request.outlet)
      return load.weigh(weight) ? undefined : busy()
    })
    const release = load?.hold()
    try {
      dispatch(decoded, load === undefined ? request : { ...request, load })
    } finally {
      release?.()
    }
  }

  function busy(): RondoError {
    const error = loads.refusal()
    service.onRefused?.(error.code, error.http)
    return error
  }

  function dispatch(decoded: RequestMessage | OlderMessage, request: HttpRequest): void {
    if (decoded.kind !== 'call' || !(asksEverybody || service.scoped)) return proceed(decoded, request)
    const { call } = decoded
    const release = request.load?.hold()
    admitCall(access, call, request.principal, (error, allowed) => {
      release?.()
      if (allowed) return proceed({ kind: 'call', call: allowed }, request)
      const known = error instanceof RondoError ? error : internalError(error, onError).error
      request.outlet.fail(refusal(known, call.id))
    })
  }

  function proceed(decoded: RequestMessage | OlderMessage, request: HttpRequest): void {
    const { headers, principal, outlet } = request
    if (decoded.kind === 'older') older?.post(decoded.message, request)
    else if (decoded.kind === 'refused') outlet.send(refusal(decoded.error, decoded.id))
    else if (decoded.kind === 'notification') outlet.send(ACCEPTED)
    else if (decoded.call.kind === 'listen') {
      const share = shareOf(principal, headers, outlet)
      serveListen(decoded.call, { principal, share }, outlet, subscriptions, stream)
    } else serveCall(decoded.call, request, context)
  }

  const callerOf = ({ headers, connection = UNKNOWN }: Arriving): string | undefined => {
    const caller = shareOf(undefined, headers, connection)
    return caller === NOBODY ? undefined : caller
  }
  const onHookError = (error: unknown, arriving: Arriving): void => {
    try {
      if (options.onRefused) options.onRefused(401, HOOK_FAILED, callerOf(arriving), error)
      else onError(error)
    } catch {
      // Such as the operator's clock.
      onError(error)
    }
  }
  const onRefused = (status: number, reason: string | undefined, arriving: Arriving): void => {
    if (reason !== undefined) options.onRefused?.(status, reason, callerOf(arriving))
    else service.onRefused?.(status === 401 ? 'PEER_UNAUTHENTICATED' : 'PEER_FORBIDDEN', status)
  }
  const allowed = createAllowList(options, listenHost)
  const crossOrigin = createCrossOrigin(allowed.namedOrigin)
  const sessions = older !== undefined && !options.stateless
  const { admit, admitPage } = createAdmission(
    service.state,
    options,
    allowed,
    crossOrigin,
    sessions,
    service.onRefused,
  )
  const { extensions } = service

  return {
    admit,
    // Extensions are used after the server was created.
    get routes() {
      return extensions?.hasRoutes ? extensions.route : undefined
    },
    async serveRoute(route, request, send) {
      const active = {}
      inFlight.enter(active)
      try {
        const response = await serveRoute(route, request, {
          admit: (headers, raw) => admitPage(request.method, headers, raw),
          busy: () => refusal(busy()),
          onError,
        })
        await send(response)
        return response
      } finally {
        inFlight.leave(active)
      }
    },
    shared: crossOrigin.headers,
    onError,
    identify: authenticate && createIdentify(authenticate, onHookError, onRefused),
    metadata: resource && ((method, url, headers) => metadataResponse(resource, method, url, headers)),
    load: loadOf,
    busy: () => refusal(busy()),
    serve(text, request) {
      serve(request, (weigh) => readMessage(text, request.headers, service, older?.isOlder, weigh))
    },
    serveParsed(body, request) {
      serve(request, (weigh) => readParsed(body, request.headers, service, older?.isOlder, weigh))
    },
    serveBare(request) {
      older?.bare(request)
    },
    state: service.state,
    fail(error, outlet) {
      onError(error)
      try {
        outlet.fail(INTERNAL_ERROR)
      } catch (failed) {
        onError(failed)
        outlet.drop()
      }
    },
    drain: () => service.drain(),
    idle: () => inFlight.idle(),
    async endStreams() {
      subscriptions.endAll()
      await service.older?.close()
    },
  }
}

function serveCall(
  call: Exclude<Call, ListenCall>,
  { headers, principal, outlet, load }: HttpRequest,
  { service, inFlight, stream, onError }: CallContext,
): void {
  const release = load?.hold()
  const active = { call, principal, line: new HttpLine(outlet, headers, stream) }
  const { requests, newest } = service.codecs
  const codec = requests.get(call.protocolVersion) ?? newest
  inFlight.enter(active)
  settle(service, active, onError, (reply) => {
    active.line.finish(statusOf(reply), codec.encodeReply(call.id, reply, service))
    inFlight.leave(active)
    release?.()
  })
}

/** A message of an earlier era, parsed and not yet decoded. */
interface OlderMessage {
  readonly kind: 'older'
  readonly message: unknown
}

/** Takes the weight of a message into account. Returns why it cannot be served now, if so. */
export type Weigh = (weight: number) => RondoError | undefined

/** Parses the text of a body or of a line, behind the guard, and has its revision decode it. Never throws. */
export function readMessage(
  text: string,
  headers: RequestHeaders | undefined,
  service: Service,
  isOlder?: IsOlder,
  weigh?: Weigh,
): RequestMessage | OlderMessage {
  const parsed = parseGuarded(text, service.loads?.json)
  if (parsed.kind === 'ok') {
    const { value } = parsed
    const error = weigh?.(parsed.weight)
    if (error !== undefined) return { kind: 'refused', id: idOf(value), error }
    // A header that names a version of the new era settles it, as it does for most requests.
    const version = headers && versionHeader(headers)
    const isNew = version !== undefined && service.supportedVersions.includes(version)
    if (!isNew && isOlder?.(value, headers)) return { kind: 'older', message: value }
    const { requests, newest } = service.codecs
    return (requests.get(claimedVersion(value)) ?? newest).decode(value, headers, service)
  }
  return {
    kind: 'refused',
    id: readRequestId(text),
    error: new RondoError(CODES[parsed.reason], parsed.detail),
  }
}

/** Reads a body that is parsed already. It passes the guard like any other, except that duplicate keys are lost by then. */
export function readParsed(body: unknown, ...rest: Rest<typeof readMessage>): RequestMessage | OlderMessage {
  let text: string | undefined
  try {
    text = JSON.stringify(body)
  } catch (cause) {
    return { kind: 'refused', id: idOf(body), error: new RondoError('LIMIT_JSON', undefined, { cause }) }
  }
  return readMessage(text ?? '', ...rest)
}

type Rest<F> = F extends (first: never, ...rest: infer R) => unknown ? R : never

const CODES = {
  syntax: 'PEER_PARSE',
  duplicate: 'PEER_REQUEST',
  'forbidden-key': 'PEER_REQUEST',
  number: 'PEER_PARAMS',
  depth: 'LIMIT_JSON',
  weight: 'LIMIT_JSON',
} as const
