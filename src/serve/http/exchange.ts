/**
 * One HTTP exchange, free of any runtime: `node.ts` and `fetch.ts` bring the bytes. What is of 2026-07-28 is served
 * here, what is of an earlier era in `session/`.
 *
 * The entrance calls `admit` before it reads a body, asks `identify` where there is one, collects the body and calls
 * `serve`, which answers through the outlet: JSON where nothing streams, events where something does.
 */

import { misuse, RondoError } from '../../errors.ts'
import { createEvery, type Every } from '../../lib/clock.ts'
import type { Call, ListenCall, Principal } from '../../protocol/call.ts'
import type { RequestMessage } from '../../protocol/codec.ts'
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import { statusOf } from '../../protocol/common/headers.ts'
import { assertInterval, HEARTBEAT_MS } from '../heartbeat.ts'
import { createShares, type ShareOf } from '../limits.ts'
import { createOlderTest, type IsOlder, type OlderMessage, readMessage, readParsed } from '../message.ts'
import { createInFlight, type InFlight, quietly, type Service, settle } from '../service.ts'
import { createSessionExchange, type SessionExchange } from '../session/exchange.ts'
import type { Older } from '../session/older.ts'
import {
  type Admission,
  type AdmissionOptions,
  type Authenticate,
  type AuthRequest,
  type CrossOrigin,
  createAdmission,
  createAllowList,
  createCrossOrigin,
  type Identified,
  identify,
} from './admission.ts'
import { type HttpAnswer, HttpLine, type Outlet, refusal, type StreamOptions } from './line.ts'
import { createSubscriptions, serveListen } from './subscription.ts'

export interface HttpOptions extends AdmissionOptions {
  /** Says who calls. Without it everybody is anonymous. */
  authenticate?: Authenticate
  /** Subscriptions that may be open at once. */
  maxSubscriptions?: number
  /** Subscriptions of one caller: an authenticated one, or an address. */
  maxSubscriptionsPerCaller?: number
  /** Bytes of what one subscription names: URIs and ids of tasks. */
  maxSubscriptionBytes?: number
  /** The header in which your proxy tells the caller's address, such as `x-forwarded-for`. Only behind a proxy that sets it. */
  addressHeader?: string
  /** How often an open stream shows a sign of life. */
  keepAliveMs?: number
  /** How long a call may work in silence before it shows that it is alive; 0 for never. */
  heartbeatMs?: number
  /** Bytes a client may leave unread before progress is left out and a subscription is cut. */
  maxBacklogBytes?: number
  /** Hears of faults that no client is told about. */
  onError?: (error: unknown) => void
  /** The timer of the signs of life. */
  every?: Every
  /** Clients of earlier eras get no session. */
  stateless?: boolean
}

/** One request, as an entrance passes it on. */
export interface HttpRequest {
  readonly method: string
  readonly headers: RequestHeaders
  readonly principal: Principal | undefined
  readonly outlet: Outlet
}

export interface Exchange {
  readonly admit: Admission
  /** Headers of every response to a page of this origin. */
  readonly shared: CrossOrigin['headers']
  /** Absent if there is no `authenticate`. */
  readonly identify: ((request: Arriving) => Identified | Promise<Identified>) | undefined
  /** Receives errors that no client is told about. Never throws. */
  onError(error: unknown): void
  serve(text: string, request: HttpRequest): void
  /** The same for a body that somebody else has parsed. */
  serveParsed(body: unknown, request: HttpRequest): void
  /** A request of an older client without a body: GET, DELETE. */
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

/** What `authenticate` is told of a request. */
type Arriving = Omit<AuthRequest, 'headers'> & { readonly headers: RequestHeaders }

const INTERNAL_ERROR: HttpAnswer = { ...refusal(new RondoError('SERVER_INTERNAL')), status: 500 }
const ACCEPTED: HttpAnswer = { status: 202, headers: {}, body: '' }

/** `listenHost` is the name the server listens on, which is then an allowed host. */
export function createExchange(service: Service, options: HttpOptions = {}, listenHost?: string): Exchange {
  assertHttpOptions(options)
  const { authenticate } = options
  const onError = quietly(options.onError)
  const subscriptions = createSubscriptions(service, options)
  const shareOf = createShares(options.addressHeader)
  const inFlight = createInFlight()
  const stream = {
    keepAliveMs: options.keepAliveMs ?? 15_000,
    heartbeatMs: options.heartbeatMs ?? HEARTBEAT_MS,
    every: options.every ?? createEvery(onError),
    maxBacklog: options.maxBacklogBytes ?? 1_048_576,
  }
  const context = { service, inFlight, stream, shareOf, onError }
  const older = service.older && openOlder(service.older, options.stateless === true, context)

  function dispatch(decoded: RequestMessage | OlderMessage, request: HttpRequest): void {
    const { headers, principal, outlet } = request
    if (decoded.kind === 'older') older?.exchange.post(decoded.message, headers, principal, outlet)
    else if (decoded.kind === 'refused') outlet.send(refusal(decoded.error, decoded.id))
    else if (decoded.kind === 'notification') outlet.send(ACCEPTED)
    else if (decoded.call.kind === 'listen') {
      const share = shareOf(principal, headers, outlet)
      serveListen(decoded.call, { principal, share }, outlet, subscriptions, stream)
    } else serveCall(decoded.call, request, context)
  }

  const allowed = createAllowList(options, listenHost)
  const crossOrigin = createCrossOrigin(allowed.namedOrigin)
  const sessions = older !== undefined && !options.stateless

  return {
    admit: createAdmission(service.state, options, allowed, crossOrigin, sessions),
    shared: crossOrigin.headers,
    onError,
    identify:
      authenticate &&
      (({ headers, method, url }) =>
        identify(authenticate, { headers: (name) => headers[name.toLowerCase()], method, url }, onError)),
    serve(text, request) {
      dispatch(readMessage(text, request.headers, service, older?.isOlder), request)
    },
    serveParsed(body, request) {
      dispatch(readParsed(body, request.headers, service, older?.isOlder), request)
    },
    serveBare({ method, headers, principal, outlet }) {
      older?.exchange.bare(method, headers, principal, outlet)
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
      await service.older?.sessions.endAll()
    },
  }
}

function openOlder(
  older: Older,
  stateless: boolean,
  context: CallContext,
): { readonly isOlder: IsOlder; readonly exchange: SessionExchange } {
  const isOlder = createOlderTest({
    modern: context.service.supportedVersions,
    older: older.versions,
    drafts: older.codecs.draftVersions,
    unnamed: stateless,
  })
  return { isOlder, exchange: createSessionExchange({ ...context, older, sessions: !stateless }) }
}

const COUNTS = [
  'maxSubscriptions',
  'maxSubscriptionsPerCaller',
  'maxSubscriptionBytes',
  'maxBacklogBytes',
] as const

function assertHttpOptions(options: HttpOptions): void {
  for (const name of COUNTS) {
    const value: unknown = options[name]
    if (value !== undefined && !(typeof value === 'number' && value >= 0)) {
      throw misuse(`${name} must be a number of 0 or more.`)
    }
  }
  assertInterval('keepAliveMs', options.keepAliveMs, 1)
  assertInterval('heartbeatMs', options.heartbeatMs, 0)
  const { addressHeader } = options
  if (addressHeader !== undefined && !/^[\w-]+$/.test(addressHeader)) {
    throw misuse('addressHeader must be the name of a header, such as x-forwarded-for.')
  }
}

export interface CallContext {
  readonly service: Service
  readonly inFlight: InFlight
  readonly stream: StreamOptions
  readonly shareOf: ShareOf
  readonly onError: (error: unknown) => void
}

function serveCall(
  call: Exclude<Call, ListenCall>,
  { headers, principal, outlet }: HttpRequest,
  { service, inFlight, stream, onError }: CallContext,
): void {
  const line = new HttpLine(outlet, headers, stream, call.progressToken)
  const { requests, newest } = service.codecs
  const codec = requests.get(call.protocolVersion) ?? newest
  inFlight.enter()
  settle(service, call, principal, line, onError, (reply) => {
    line.finish(statusOf(reply), codec.encodeReply(call.id, reply, service))
    inFlight.leave()
  })
}
