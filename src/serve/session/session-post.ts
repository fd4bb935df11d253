/**
 * A POST of a client of an earlier era: the beginning of a session, or messages of one.
 *
 * X1 A session is found by its id and its owner; anything else is 404. X2 Without sessions every request stands alone:
 * nobody can be asked, nothing is watched. X3 The version of a request is the one its header names, else the session's.
 */

import { RondoError } from '../../errors.ts'
import type { Principal } from '../../protocol/call.ts'
import { DRAFT_VERSION } from '../../protocol/draft-2026-v1/version.ts'
import { rememberedCapabilities } from '../../protocol/draft-turns/capability.ts'
import type { Decoded } from '../../protocol/rev-2025-11-25/decode.ts'
import { allowsBatches, negotiate, primesStreams } from '../../protocol/rev-2025-11-25/version.ts'
import { type HeaderReader, versionHeader } from '../../protocol/rev-2026-07-28/headers.ts'
import type { InitializeCall, PeerFacts } from '../../protocol/session-call.ts'
import { principalTag } from '../../seal/binding.ts'
import { type HttpAnswer, JSON_HEADERS } from '../http-answer.ts'
import { readsStreams, type StreamOptions } from '../http-line.ts'
import type { InFlight } from '../in-flight.ts'
import type { Outlet } from '../outlet.ts'
import type { ShareOf } from '../share.ts'
import { codecOf } from './codec.ts'
import { claimOf, isInitialize } from './era.ts'
import type { Older } from './older.ts'
import type { Session } from './session.ts'
import { isRequest, type TakeContext, takeMessage, type Way } from './take-message.ts'

export interface PostOptions {
  readonly older: Older
  /** Sessions are offered. */
  readonly sessions: boolean
  readonly stream: StreamOptions
  readonly inFlight: InFlight
  readonly service: { readonly draining: boolean }
  readonly shareOf: ShareOf
  onError(error: unknown): void
}

export interface Posted {
  readonly message: unknown
  readonly headers: HeaderReader
  readonly principal: Principal | undefined
  readonly outlet: Outlet
}

/** A client of 2025-03-26 or before does not say its version on every request. */
const UNSAID = '2025-03-26'
const MAX_BATCH = 64
export const ACCEPTED: HttpAnswer = { status: 202, headers: {}, body: '' }
const NO_SESSION = 'This endpoint keeps no session, so its clients cannot be asked.'
const NO_STREAM = 'The request does not accept text/event-stream, so its client cannot be asked.'
const SILENT = { channel: { send: () => {}, open: false }, respond: () => {} }

/** Throws what is wrong with the request as a whole. */
export function servePost(options: PostOptions, posted: Posted): void {
  if (isInitialize(posted.message)) return greet(options, posted)
  const { headers, message } = posted
  const session = sessionOf(options, posted)
  const version = versionOf(posted) ?? session.facts.protocolVersion
  const batch = Array.isArray(message)
  const messages = batch ? message : [message]
  if (batch && (!allowsBatches(version) || messages.length === 0 || messages.length > MAX_BATCH)) {
    throw new RondoError('PEER_REQUEST', 'Batches are not served: send one message')
  }
  const canAsk = version === DRAFT_VERSION || readsStreams(headers('accept'))
  const { facts, level } = session
  const capabilities = canAsk ? facts.capabilities : {}
  const peer = { ...facts, capabilities, protocolVersion: version, logLevel: level }
  const decoded = messages.map((one) => codecOf(version).decode(one, peer))
  const [first] = decoded
  if (!batch && first?.kind === 'refused' && first.id === null) throw first.error
  deliver(options, session, version, decoded, posted)
}

function greet(
  { older, sessions, service, shareOf }: PostOptions,
  { message, principal, headers: read, outlet }: Posted,
): void {
  if (service.draining) throw new RondoError('SERVER_DRAINING')
  const call = readInitialize(message)
  const protocolVersion = negotiate(call.requested, older.versions)
  const headers: Record<string, string> = { ...JSON_HEADERS }
  if (sessions) {
    const share = shareOf(principal, read, outlet)
    const facts = factsOf(call, protocolVersion)
    headers['Mcp-Session-Id'] = older.sessions.open(facts, principalTag(principal), share).id
  }
  const known = principal !== undefined
  const result = older.greet(protocolVersion, { session: sessions, known, tasks: true })
  const body = codecOf(protocolVersion).encodeReply(call.id, { kind: 'complete', result })
  outlet.send({ status: 200, headers, body })
}

/** The form of `initialize` is the same whatever is agreed on. */
export function readInitialize(message: unknown): InitializeCall {
  const decoded = codecOf('').decode(message, { protocolVersion: '', capabilities: {} })
  if (decoded.kind === 'refused') throw decoded.error
  if (decoded.kind === 'session' && decoded.call.kind === 'initialize') return decoded.call
  throw new RondoError('PEER_REQUEST', 'initialize is a request')
}

/** Characters of what a client declares that are kept as they are; of more, what may be asked, and how. */
const MAX_DECLARED = 2_048
const MAX_NAME = 128

/** What a session keeps of `initialize`: no more than is needed, however much was sent. */
export function factsOf({ capabilities, clientInfo }: InitializeCall, protocolVersion: string): PeerFacts {
  const small = JSON.stringify(capabilities).length <= MAX_DECLARED
  const kept = small ? capabilities : rememberedCapabilities(capabilities)
  const info = Object.entries(clientInfo ?? {}).map(([name, text]) => [name, text.slice(0, MAX_NAME)])
  // Copied, because a part of a text would keep all of it.
  const copy = JSON.parse(JSON.stringify({ kept, info: Object.fromEntries(info) }))
  return { protocolVersion, capabilities: copy.kept, clientInfo: clientInfo && copy.info }
}

function versionOf({ headers, message }: Posted): string | undefined {
  return versionHeader(headers) ?? (claimOf(message) as string | undefined)
}

/** The session of a request, or one that lives as long as the request. */
function sessionOf({ older, sessions }: PostOptions, posted: Posted): Session {
  const owner = principalTag(posted.principal)
  const id = posted.headers('mcp-session-id')
  const version = versionOf(posted)
  if (id === undefined) {
    if (sessions && version !== DRAFT_VERSION) throw new RondoError('PEER_NO_SESSION')
    return older.sessions.transient({ protocolVersion: version ?? UNSAID, capabilities: {} }, owner)
  }
  const session = older.sessions.find(id, owner)
  if (session === undefined) throw new RondoError('PEER_SESSION')
  session.touch()
  return session
}

export function unaskable(version: string, headers: HeaderReader): string | undefined {
  if (version === DRAFT_VERSION) return undefined
  if (headers('mcp-session-id') === undefined) return NO_SESSION
  return readsStreams(headers('accept')) ? undefined : NO_STREAM
}

/** `begin` serves the calls of a client that takes its questions in turns. */
export function deliver(
  options: PostOptions,
  session: Session,
  version: string,
  decoded: readonly Decoded[],
  { message, headers, principal, outlet }: Posted,
  begin?: TakeContext['begin'],
): void {
  const { older, inFlight, service, onError, stream } = options
  const context: TakeContext = {
    older,
    inFlight,
    known: principal !== undefined,
    draining: service.draining,
    unaskable: unaskable(version, headers),
    beats: stream,
    begin,
    onError,
  }
  const requests = decoded.filter(isRequest)
  for (const one of decoded) {
    if (!isRequest(one)) takeMessage(context, session, version, one, principal, SILENT)
  }
  if (requests.length === 0) return outlet.send(ACCEPTED)
  // The stream outlives the requests, and must not hold on to them.
  const ids = requests.flatMap((one) => (one.kind === 'call' ? [one.call.id] : []))
  const wish = {
    primed: primesStreams(version),
    streams: readsStreams(headers('accept')),
    batch: Array.isArray(message),
    responses: requests.length,
    onLost() {
      for (const id of ids) session.cancel(id)
    },
  }
  const channel = session.openStream(wish, outlet, stream)
  const way: Way = {
    channel,
    respond: (json) => channel.respond(json),
    endWith: (events) => channel.endWith(events),
  }
  for (const one of requests) takeMessage(context, session, version, one, principal, way)
}
