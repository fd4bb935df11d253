/**
 * HTTP for clients of earlier eras: POST begins a session or sends messages of one, GET opens the session's own stream or
 * resumes a lost one, DELETE ends the session.
 *
 * post 1  A session is found by its id and its owner, on any instance; anything else is 404.
 * post 2  Without sessions every request stands alone: nobody can be asked, and nothing is watched.
 * post 3  The version of a request is the one in its header, or else the session's.
 */

import { scopesOfTask, withNeed } from '../carry/scope.ts'
import { isStoreFault, RondoError } from '../errors.ts'
import type { PeerFacts, Principal, RequestId } from '../protocol/call.ts'
import { negotiate, type SessionDialect, type SessionMessage } from '../protocol/codec.ts'
import { type RequestHeaders, versionHeader } from '../protocol/common/headers.ts'
import { claimedVersion, idOf, isInitialize } from '../protocol/common/request.ts'
import { UNSTATED_VERSION } from '../protocol/revisions.ts'
import { isTurnsSession } from '../seal/session-id.ts'
import { principalTag } from '../seal/state.ts'
import { internalError } from '../serve/failure.ts'
import { JSON_HEADERS, readsStreams, refusal } from '../serve/http/line.ts'
import type { HttpRequest, HttpResponse, OlderExchange, Outlet } from '../serve/port.ts'
import { type DispatchContext, dispatch, isRequest, messagesOf, type ReplyPath } from './dispatch.ts'
import { factsOf, readInitialize } from './handshake.ts'
import type { Posted, PostOptions } from './older.ts'
import { resumeElsewhere } from './resume.ts'
import type { Session } from './session.ts'

/** Serves what is posted, and requests without a body. A request that cannot be served at all gets its error as the response. */
export function createEntrance(options: PostOptions): Omit<OlderExchange, 'isOlder'> {
  const refuse = (outlet: Outlet, id: RequestId | null, thrown: unknown): void => {
    const error = failureOf(options, thrown)
    if (error.code === 'LIMIT_SESSIONS') options.service.onRefused?.(error.code, error.http)
    outlet.fail(refusal(error, id, error.code === 'SERVER_DRAINING' ? options.whenDraining : undefined))
  }
  return {
    post(message, request) {
      const { outlet, load } = request
      const release = load?.hold()
      servePost(options, { message, ...request })
        .catch((error: unknown) => refuse(outlet, idOf(message), error))
        .catch(options.onError)
        .finally(release)
    },
    bare(request) {
      const { outlet } = request
      serveBare(options, request)
        .catch((error: unknown) => refuse(outlet, null, error))
        .catch(options.onError)
    },
  }
}

/** Rejects if the request cannot be served. */
async function serveBare(
  options: PostOptions,
  { method, headers, principal, outlet }: HttpRequest,
): Promise<void> {
  const { draft, sessions, shared } = options.older
  const id = headers['mcp-session-id'] ?? ''
  const last = method === 'GET' ? headers['last-event-id'] : undefined
  const isDraft = draft !== undefined && isTurnsSession(id)
  if (isDraft && !options.sessions)
    return outlet.send(refusal(new RondoError('PEER_HTTP_METHOD'), null, { Allow: 'POST' }))
  const session = isDraft
    ? await draft.open(options, { headers, principal, outlet })
    : await shared.find(id, principalTag(principal), options.shareOf(principal, headers, outlet), last)
  if (session === undefined) throw new RondoError('PEER_SESSION')
  // A temporary session receives no notifications, so its stream would stay silent.
  if (session !== sessions.find(session.id, session.owner)) throw new RondoError('LIMIT_SESSIONS')
  await options.access.admit([], principal, last === undefined ? [] : session.streams.scopesOf(last))
  if (method === 'GET') return serveGet(options, session, headers, principal, outlet)
  await shared.end(session)
  outlet.send({ status: 200, headers: {}, body: '' })
}

async function serveGet(
  options: PostOptions,
  session: Session,
  headers: RequestHeaders,
  principal: Principal | undefined,
  outlet: Outlet,
): Promise<void> {
  const { stream, older } = options
  session.touch()
  const last = headers['last-event-id']
  if (last === undefined) {
    const version = versionHeader(headers) ?? session.facts.protocolVersion
    const primed = older.codecs.session(version).primesStreams
    session.streams.open(
      { primed, streams: true, responses: 0, batch: false, onLost: () => {} },
      outlet,
      stream,
    )
    return
  }
  if (session.streams.resume(last, outlet)) return
  // The event is a question of another instance; what follows its answer may be sent here.
  const awaited = older.draft?.awaits(session, last)
  if (awaited !== undefined) return session.streams.awaitAnswer(awaited, outlet, stream)
  const { parts } = older.shared
  if (parts && (await resumeElsewhere(parts, { options, session, eventId: last, principal, outlet }))) return
  throw new RondoError('PEER_EVENT', session.portable && !parts ? NEEDS_STORE : undefined)
}

const NEEDS_STORE =
  'There is nothing to resume after this Last-Event-ID. If another instance began the stream, the instances need a store that they share, or sticky routing by Mcp-Session-Id'

export const ACCEPTED: HttpResponse = { status: 202, headers: {}, body: '' }
const NO_SESSION = 'This endpoint keeps no sessions, so it cannot ask its clients anything.'
const NO_STREAM = 'The request does not accept text/event-stream, so its client cannot be asked anything.'
const SILENT: ReplyPath = { channel: { send: () => {}, open: false }, respond: () => {} }

/** Rejects if the request as a whole is wrong. */
async function servePost(options: PostOptions, posted: Posted): Promise<void> {
  const { draft } = options.older
  if (draft?.takes(options, posted)) return draft.post(options, posted)
  if (isInitialize(posted.message)) return beginSession(options, posted)
  const session = await sessionOf(options, posted)
  if (session === undefined) throw new RondoError('PEER_SESSION')
  session.touch()
  const { headers, message } = posted
  const version = versionOf(posted) ?? session.facts.protocolVersion
  const dialect = options.older.codecs.session(version)
  const messages = messagesOf(message, dialect)
  if (messages.length === 0) throw new RondoError('PEER_REQUEST', 'A batch must not be empty')
  const canAsk = dialect.rounds || readsStreams(headers.accept)
  const { facts, level } = session
  const peer: PeerFacts = {
    protocolVersion: version,
    capabilities: canAsk ? facts.capabilities : {},
    clientInfo: facts.clientInfo,
    logLevel: level,
  }
  const decoded = messages.map((one) => dialect.decode(one, peer))
  const [first] = decoded
  if (!Array.isArray(message) && first?.kind === 'refused' && first.id === null) throw first.error
  await deliver(options, session, version, decoded, posted)
}

async function beginSession(
  { older, sessions, service, shareOf, access }: PostOptions,
  { message, principal, headers, outlet }: Posted,
): Promise<void> {
  if (service.state.draining) throw new RondoError('SERVER_DRAINING')
  await access.admit([], principal)
  const call = readInitialize(older, message)
  const protocolVersion = negotiate(call.requested, older.versions)
  const session = sessions
    ? await older.shared.begin(
        factsOf(older, call, protocolVersion),
        principalTag(principal),
        shareOf(principal, headers, outlet),
      )
    : undefined
  const known = principal !== undefined
  const result = older.greet(protocolVersion, { session: sessions, known, tasks: true })
  const body = older.codecs.session(protocolVersion).encodeReply(call.id, { kind: 'complete', result })
  const named = session ? { ...JSON_HEADERS, 'Mcp-Session-Id': session.id } : JSON_HEADERS
  outlet.send({ status: 200, headers: named, body })
}

function versionOf({ headers, message }: Posted): string | undefined {
  return versionHeader(headers) ?? (claimedVersion(message) as string | undefined)
}

/** The session of a request, or a temporary one for this request alone; undefined if its session is unknown. */
async function sessionOf(
  { older, sessions, shareOf }: PostOptions,
  posted: Posted,
): Promise<Session | undefined> {
  const { principal, headers, outlet } = posted
  const owner = principalTag(principal)
  const id = headers['mcp-session-id']
  const version = versionOf(posted)
  if (id === undefined) {
    if (sessions && !older.codecs.draftVersions.includes(version ?? ''))
      throw new RondoError('PEER_NO_SESSION')
    return older.sessions.transient({ protocolVersion: version ?? UNSTATED_VERSION, capabilities: {} }, owner)
  }
  if (!sessions) return older.sessions.find(id, owner)
  return older.shared.find(id, owner, shareOf(principal, headers, outlet))
}

export function unaskable({ rounds }: SessionDialect, headers: RequestHeaders): string | undefined {
  if (rounds) return undefined
  if (headers['mcp-session-id'] === undefined) return NO_SESSION
  return readsStreams(headers.accept) ? undefined : NO_STREAM
}

/**
 * Delivers messages that the caller's token allows. An answer needs what the call needs that asked. `begin` serves the calls
 * of a client that takes its questions in turns.
 */
export async function deliver(
  options: PostOptions,
  session: Session,
  version: string,
  decoded: readonly SessionMessage[],
  posted: Posted,
  begin?: DispatchContext['begin'],
): Promise<void> {
  const { access } = options
  if (!access.active) return deliverAdmitted(options, session, version, decoded, posted, begin)
  const { principal } = posted
  const calls = decoded.flatMap((one) => (one.kind === 'call' || one.kind === 'session' ? [one.call] : []))
  const asked = decoded.flatMap((one) => (one.kind === 'answer' ? session.scopesOf(one.id) : []))
  const needs = [...(await access.admit(calls, principal, asked))]
  const scopes = new Map<RequestId, readonly string[]>()
  const allows = (taskId: string) => access.allows(scopesOfTask(taskId), principal)
  const admitted = decoded.map((one) => {
    const need = one.kind === 'call' || one.kind === 'session' ? needs.shift() : undefined
    if (one.kind !== 'call' || need === undefined) return one
    scopes.set(one.call.id, need.scopes)
    if (one.call.kind === 'tasks') return { ...one, call: { ...one.call, allows } }
    return { ...one, call: withNeed(one.call, need) }
  })
  return deliverAdmitted(options, session, version, admitted, posted, begin, scopes)
}

/** The error that a request fails with. What the operator has to know of it is logged. */
function failureOf({ older, onError }: PostOptions, error: unknown): RondoError {
  if (isStoreFault(error)) older.storeFailed(error)
  return error instanceof RondoError ? error : internalError(error, onError).error
}

/** The operator has to act, so it is logged too. */
function otherInstanceError({ onRefused }: PostOptions['service']): RondoError {
  const error = new RondoError('PEER_OTHER_INSTANCE')
  onRefused?.(error.code, error.http)
  return error
}

/** `scopes`: what each call needs. */
async function deliverAdmitted(
  options: PostOptions,
  session: Session,
  version: string,
  decoded: readonly SessionMessage[],
  { message, headers, principal, outlet, load }: Posted,
  begin?: DispatchContext['begin'],
  scopes?: DispatchContext['scopes'],
): Promise<void> {
  const { older, inFlight, service, onError, stream, access } = options
  const dialect = older.codecs.session(version)
  const context: DispatchContext = {
    older,
    inFlight,
    known: principal !== undefined,
    draining: service.state.draining,
    unaskable: unaskable(dialect, headers),
    load,
    begin,
    scopes,
    onError,
  }
  const admit = async (needs: readonly string[]): Promise<void> =>
    void (await access.admit([], principal, needs))
  const answer = session.portable && !isTurnsSession(session.id) ? older.shared.answer : undefined
  const take = async (one: SessionMessage): Promise<void> => {
    const isKept = one.kind === 'answer' && (await answer?.(session, principal, one.id, one.answer, admit))
    if (!isKept) dispatch(context, session, version, one, principal, SILENT)
  }
  const requests = decoded.filter(isRequest)
  const taking = Promise.all(decoded.filter((one) => !isRequest(one)).map(take))
  if (requests.length === 0) {
    // An answer is acknowledged when it is in the store.
    await taking
    if (
      !older.shared.answer &&
      decoded.some((one) => one.kind === 'answer' && session.askedElsewhere(one.id))
    )
      throw otherInstanceError(service)
    return outlet.send(ACCEPTED)
  }
  taking.catch(onError)
  // The stream outlives the requests, so it must not hold references to them.
  const ids = requests.flatMap((one) => (one.kind === 'call' ? [one.call.id] : []))
  // An id that is repeated names a call of another stream, which is refused here and continues there.
  const cancel = (): void => {
    for (const id of ids) session.cancel(id, channel)
  }
  let isLost = false
  let hasBegun = false
  const wish = {
    primed: dialect.primesStreams,
    streams: readsStreams(headers.accept),
    batch: Array.isArray(message),
    responses: requests.length,
    scopes: [...new Set([...(scopes?.values() ?? [])].flat())],
    onLost() {
      isLost = true
      if (hasBegun) cancel()
    },
  }
  const channel = session.streams.open(wish, outlet, stream)
  const path: ReplyPath = {
    channel,
    stream: channel,
    respond: (json) => channel.respond(json),
    endWith: (events) => channel.endWith(events),
  }
  for (const one of requests) dispatch(context, session, version, one, principal, path)
  hasBegun = true
  // The client left before its calls began.
  if (isLost) cancel()
}
