/**
 * A POST of a client of an earlier era: the beginning of a session, or messages of one.
 *
 * X1 A session is found by its id and its owner; anything else is 404. X2 Without sessions every request stands alone:
 * nobody can be asked, nothing is watched. X3 The version of a request is the one its header names, else the session's.
 */

import { RondoError } from '../../errors.ts'
import type {
  FlowCall,
  InitializeCall,
  Line,
  OlderCall,
  PeerFacts,
  Principal,
  RequestId,
  SessionCall,
} from '../../protocol/call.ts'
import { negotiate, type SessionDialect, type SessionMessage } from '../../protocol/codec.ts'
import { type RequestHeaders, versionHeader } from '../../protocol/common/headers.ts'
import { rememberedCapabilities } from '../../protocol/common/request.ts'
import type { OlderReply } from '../../protocol/reply.ts'
import { principalTag } from '../../seal/state.ts'
import { type BeatOptions, startBeating } from '../heartbeat.ts'
import { type HttpAnswer, JSON_HEADERS, type Outlet, readsStreams, type StreamOptions } from '../http/line.ts'
import type { ShareOf } from '../limits.ts'
import { claimOf, isInitialize } from '../message.ts'
import { finishOnce, type InFlight, internalError, type Service } from '../service.ts'
import type { Channel } from './line.ts'
import type { Older } from './older.ts'
import { costOf, type Session } from './session.ts'
import type { WholeEvent } from './stream.ts'

export interface PostOptions {
  readonly older: Older
  /** Sessions are offered. */
  readonly sessions: boolean
  readonly stream: StreamOptions
  readonly inFlight: InFlight
  readonly service: Pick<Service, 'state'>
  readonly shareOf: ShareOf
  onError(error: unknown): void
}

export interface Posted {
  readonly message: unknown
  readonly headers: RequestHeaders
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
  const dialect = options.older.codecs.session(version)
  const batch = Array.isArray(message)
  const messages = batch ? message : [message]
  if (batch && (!dialect.batches || messages.length === 0 || messages.length > MAX_BATCH)) {
    throw new RondoError('PEER_REQUEST', 'Batches are not served: send one message')
  }
  const canAsk = dialect.rounds || readsStreams(headers.accept)
  const { facts, level } = session
  const capabilities = canAsk ? facts.capabilities : {}
  const peer = { ...facts, capabilities, protocolVersion: version, logLevel: level }
  const decoded = messages.map((one) => dialect.decode(one, peer))
  const [first] = decoded
  if (!batch && first?.kind === 'refused' && first.id === null) throw first.error
  deliver(options, session, version, decoded, posted)
}

function greet(
  { older, sessions, service, shareOf }: PostOptions,
  { message, principal, headers: read, outlet }: Posted,
): void {
  if (service.state.draining) throw new RondoError('SERVER_DRAINING')
  const call = readInitialize(older, message)
  const protocolVersion = negotiate(call.requested, older.versions)
  const headers: Record<string, string> = { ...JSON_HEADERS }
  if (sessions) {
    const share = shareOf(principal, read, outlet)
    const facts = factsOf(older, call, protocolVersion)
    headers['Mcp-Session-Id'] = older.sessions.open(facts, principalTag(principal), share).id
  }
  const known = principal !== undefined
  const result = older.greet(protocolVersion, { session: sessions, known, tasks: true })
  const body = older.codecs.session(protocolVersion).encodeReply(call.id, { kind: 'complete', result })
  outlet.send({ status: 200, headers, body })
}

/** The form of `initialize` is the same whatever is agreed on. */
export function readInitialize({ codecs }: Older, message: unknown): InitializeCall {
  const decoded = codecs.session('').decode(message, { protocolVersion: '', capabilities: {} })
  if (decoded.kind === 'refused') throw decoded.error
  if (decoded.kind === 'session' && decoded.call.kind === 'initialize') return decoded.call
  throw new RondoError('PEER_REQUEST', 'initialize is a request')
}

/** Characters of what a client declares that are kept as they are; of more, what may be asked, and how. */
const MAX_DECLARED = 2_048
const MAX_NAME = 128

/** What a session keeps of `initialize`: no more than is needed, however much was sent. */
export function factsOf(
  { draft }: Older,
  { capabilities, clientInfo }: InitializeCall,
  protocolVersion: string,
): PeerFacts {
  const small = JSON.stringify(capabilities).length <= MAX_DECLARED
  const kept = small ? capabilities : rememberedCapabilities(capabilities, draft?.experimental)
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
  const id = posted.headers['mcp-session-id']
  const version = versionOf(posted)
  if (id === undefined) {
    if (sessions && !older.codecs.draftVersions.includes(version ?? ''))
      throw new RondoError('PEER_NO_SESSION')
    return older.sessions.transient({ protocolVersion: version ?? UNSAID, capabilities: {} }, owner)
  }
  const session = older.sessions.find(id, owner)
  if (session === undefined) throw new RondoError('PEER_SESSION')
  session.touch()
  return session
}

export function unaskable({ rounds }: SessionDialect, headers: RequestHeaders): string | undefined {
  if (rounds) return undefined
  if (headers['mcp-session-id'] === undefined) return NO_SESSION
  return readsStreams(headers.accept) ? undefined : NO_STREAM
}

/** `begin` serves the calls of a client that takes its questions in turns. */
export function deliver(
  options: PostOptions,
  session: Session,
  version: string,
  decoded: readonly SessionMessage[],
  { message, headers, principal, outlet }: Posted,
  begin?: TakeContext['begin'],
): void {
  const { older, inFlight, service, onError, stream } = options
  const dialect = older.codecs.session(version)
  const context: TakeContext = {
    older,
    inFlight,
    known: principal !== undefined,
    draining: service.state.draining,
    unaskable: unaskable(dialect, headers),
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
    primed: dialect.primesStreams,
    streams: readsStreams(headers.accept),
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

/*
 * One decoded message of a session, over HTTP and stdio alike: a request is answered, an answer finds its question, a
 * notification is heard.
 */

/** How one message is answered. */
export interface Way {
  readonly channel: Channel
  /** The response, or undefined where none is sent. */
  respond(json: string | undefined): void
  /** Questions that end the stream. */
  endWith?(events: readonly WholeEvent[]): void
}

export interface TakeContext {
  readonly older: Older
  readonly inFlight: InFlight
  /** The caller can be told from all others. */
  readonly known: boolean
  /** New calls are refused. */
  readonly draining: boolean
  /** Why nobody can be asked here, if so. */
  readonly unaskable?: string
  readonly beats: BeatOptions
  /** Serves the calls of a client that takes its questions in turns. */
  begin?(call: FlowCall, line: Line): Promise<CallEnding>
  onError(error: unknown): void
}

/** How a call ends: with a response, with events that end its stream, or with neither. */
export type CallEnding =
  | OlderReply
  | { readonly kind: 'events'; readonly events: readonly WholeEvent[] }
  | { readonly kind: 'taken' }

const EMPTY: OlderReply = { kind: 'complete', result: {} }

/** True if the message is a request: then `way.respond` is called exactly once, sooner or later. */
export function isRequest({ kind }: SessionMessage): boolean {
  return kind === 'call' || kind === 'session' || kind === 'refused'
}

export function takeMessage(
  context: TakeContext,
  session: Session,
  protocolVersion: string,
  decoded: SessionMessage,
  principal: Principal | undefined,
  way: Way,
): void {
  const dialect = context.older.codecs.session(protocolVersion)
  const reply = (id: RequestId, what: OlderReply): void => way.respond(dialect.encodeReply(id, what))
  switch (decoded.kind) {
    case 'call':
      return takeCall(context, session, decoded.call, principal, way)
    case 'session':
      return reply(decoded.call.id, takeSessionCall(session, decoded.call))
    case 'refused':
      return way.respond(dialect.encodeError(decoded.id, decoded.error))
    case 'answer':
      session.answer(decoded.id, decoded.answer, decoded.state)
      return
    case 'notification':
      if (decoded.method === 'notifications/cancelled') session.cancel(decoded.params.requestId as RequestId)
  }
}

function takeCall(
  context: TakeContext,
  session: Session,
  call: OlderCall,
  principal: Principal | undefined,
  way: Way,
): void {
  const dialect = context.older.codecs.session(call.protocolVersion)
  const { encodeReply } = dialect
  const refuse = (error: RondoError): void => way.respond(encodeReply(call.id, { kind: 'error', error }))
  if (context.draining) return refuse(new RondoError('SERVER_DRAINING'))
  // All callers without a name share one owner: a list would give each the ids of all others.
  if (call.kind === 'tasks' && !context.known) return refuse(new RondoError('PEER_METHOD'))
  let line: ReturnType<Session['begin']>
  try {
    line = session.begin(call.id, way.channel, dialect, () => sizeOf(call))
  } catch (error) {
    if (error instanceof RondoError) return refuse(error)
    throw error
  }
  context.inFlight.enter()
  // Whoever cancels waits for nothing more, also where the handler does.
  const stopListening = line.onClose(() => way.respond(undefined))
  const stopBeating = startBeating(context.beats, () => line.beat(call.progressToken))
  const finish = (ending: CallEnding): void => {
    const send = line.closed ? undefined : toSending(ending)
    session.finish(call.id, line)
    stopListening()
    stopBeating()
    send?.()
    context.inFlight.leave()
  }
  const toSending = (ending: CallEnding): (() => void) => {
    if (ending.kind === 'taken') return () => way.respond(undefined)
    if (ending.kind === 'events') return () => way.endWith?.(ending.events)
    const json = encodeReply(call.id, ending)
    return () => way.respond(json)
  }
  const answer = async (): Promise<CallEnding> => {
    if (call.kind !== 'flow' || !context.begin)
      return context.older.answer(call, principal, line, context.unaskable)
    return context.begin(call, line)
  }
  const { onError } = context
  const done = (ending: CallEnding): void => finishOnce<CallEnding>(ending, finish, onError)
  answer().then(done, (error) => done(internalError(error, onError)))
}

/** What a call keeps while it waits, roughly; measured only then. */
function sizeOf(call: OlderCall): number {
  return call.kind === 'flow' ? costOf(JSON.stringify(call.args)) : 0
}

function takeSessionCall(session: Session, call: SessionCall): OlderReply {
  try {
    if (call.kind === 'level') session.level = call.level
    else if (call.kind === 'watch') session.watch(call.uri)
    else if (call.kind === 'unwatch') session.unwatch(call.uri)
    else if (call.kind === 'initialize')
      throw new RondoError('PEER_REQUEST', 'initialize comes first and alone')
    return EMPTY
  } catch (error) {
    if (error instanceof RondoError) return { kind: 'error', error }
    throw error
  }
}
