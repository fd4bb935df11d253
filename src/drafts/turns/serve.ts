/**
 * POSTs of clients of the two drafts. Their session is sealed into its id, so every instance knows it, and each has its own
 * part of it: the calls and streams that it serves, what the client wants to hear from it.
 *
 * X1 A session is that of its principal; to anybody else it is unknown. X2 Responses to a turn are answered with the
 * result or with the next questions, never with 202. X3 A response to a question that this instance asked reaches the call
 * that waits, and is accepted; one to a question that another asked brings its state, and the call goes on here.
 */

import { RondoError } from '../../errors.ts'
import type { PeerFacts } from '../../protocol/call.ts'
import { negotiate, type SessionMessage } from '../../protocol/codec.ts'
import { rememberedCapabilities } from '../../protocol/common/request.ts'
import { VERSIONS } from '../../protocol/rev-2025-11-25/codec.ts'
import { decode } from '../../protocol/rev-2025-11-25/decode.ts'
import { encodeError, encodeReply } from '../../protocol/rev-2025-11-25/encode.ts'
import { isSealedSession } from '../../seal/session-id.ts'
import { principalTag } from '../../seal/state.ts'
import { startBeating } from '../../serve/heartbeat.ts'
import { JSON_HEADERS, readsStreams } from '../../serve/http/line.ts'
import { isInitialize } from '../../serve/message.ts'
import type { CallEnding } from '../../serve/session/dispatch.ts'
import { readInitialize } from '../../serve/session/initialize.ts'
import type { SessionLine } from '../../serve/session/line.ts'
import type { AttachDraft } from '../../serve/session/older.ts'
import { ACCEPTED, deliver, type Posted, type PostOptions, unaskable } from '../../serve/session/post.ts'
import { costOf, type Session } from '../../serve/session/session.ts'
import type { SessionStream } from '../../serve/session/stream.ts'
import { createTurnsService, type TurnEnd, type TurnPeer, type TurnsService } from './carrier.ts'
import type { TurnsOptions } from './turn-state.ts'
import {
  decodeAnswers,
  EXPERIMENTAL,
  echoesState,
  encodeTurn,
  readEventId,
  type TurnAnswers,
  takesTurns,
} from './wire.ts'

/** The hook by which a server serves both drafts. */
export function attachTurns(turnsOptions?: TurnsOptions): AttachDraft {
  return (host, registry, mismatch) => {
    const turns = createTurnsService(host, registry, mismatch, turnsOptions)
    return {
      experimental: EXPERIMENTAL,
      takes: isOfDrafts,
      post: (options, posted) => serveDrafts(options, turns, posted),
      open: (options, request) => openSealed(options, turns, request),
      awaits: ({ portable, facts }, eventId) =>
        portable && !takesTurns(facts.capabilities) ? readEventId(eventId)?.turn : undefined,
      hand: ({ capabilities }) => (echoesState(capabilities) ? turns.hand : undefined),
      handTask: ({ capabilities }) => (echoesState(capabilities) ? turns.handTask : undefined),
    }
  }
}

/** This instance's part of a sealed session; nothing for one that is not this principal's. */
async function openSealed(
  { older, sessions, shareOf }: PostOptions,
  turns: TurnsService,
  { headers, principal, outlet }: Pick<Posted, 'headers' | 'principal' | 'outlet'>,
): Promise<Session | undefined> {
  const id = headers['mcp-session-id'] ?? ''
  const facts = await turns.openSession(id, principal)
  if (facts === undefined) return undefined
  const owner = principalTag(principal)
  return sessions
    ? older.sessions.adopt(id, facts, owner, shareOf(principal, headers, outlet))
    : older.sessions.transient(facts, owner, id)
}

/** Rejects with what is wrong with the request as a whole. */
async function serveDrafts(options: PostOptions, turns: TurnsService, posted: Posted): Promise<void> {
  const { message, headers, principal } = posted
  if (isInitialize(message)) return greetDrafts(options, turns, posted)
  const session = await openSealed(options, turns, posted)
  if (session === undefined) throw new RondoError('PEER_SESSION')
  session.touch()
  const served: Served = { options, turns, session, posted, peer: peerOf(options, session, posted) }
  if (Array.isArray(message)) return resume(served, decodeAnswers(message, headers['last-event-id']))
  const given = decode(message, served.peer)
  const decoded = options.sessions ? given : withoutLevel(given)
  if (decoded.kind === 'answer') return takeAnswer(served, decoded)
  if (decoded.kind === 'refused' && decoded.id === null) throw decoded.error
  const { protocolVersion } = session.facts
  const why = unaskable(options.older.codecs.session(protocolVersion), headers)
  const begin = takesTurns(session.facts.capabilities)
    ? async (...[call, line]: Parameters<BeginTurn>) =>
        toEnding(await turns.begin(call, principal, line, session.id, why), protocolVersion)
    : undefined
  deliver(options, session, protocolVersion, [decoded], posted, begin)
}

function toEnding(outcome: TurnEnd, protocolVersion: string): CallEnding {
  if (outcome.kind === 'turn') return { kind: 'events', events: encodeTurn(outcome.turn, protocolVersion) }
  return outcome.kind === 'reply' ? outcome.reply : outcome
}

/** Without a session there is nobody to remember a level, and none was offered. */
function withoutLevel(decoded: SessionMessage): SessionMessage {
  if (decoded.kind !== 'session' || decoded.call.kind !== 'level') return decoded
  return { kind: 'refused', id: decoded.call.id, error: new RondoError('PEER_METHOD') }
}

type BeginTurn = NonNullable<Parameters<typeof deliver>[5]>

/** A request of a sealed session. */
interface Served {
  readonly options: PostOptions
  readonly turns: TurnsService
  readonly session: Session
  readonly posted: Posted
  /** The client, as far as it can be asked on this request. */
  readonly peer: PeerFacts
}

function peerOf(
  { sessions }: PostOptions,
  { facts, level }: Session,
  { headers, message }: Posted,
): PeerFacts {
  const capabilities =
    mayAsk(sessions, facts, message) && readsStreams(headers.accept) ? facts.capabilities : {}
  return { ...facts, capabilities, ...(sessions && { logLevel: level }) }
}

/** The questions of a task are pushed, and their answers find it by a session or by their state. */
function mayAsk(sessions: boolean, { capabilities }: PeerFacts, message: unknown): boolean {
  const { method } = message as { readonly method?: unknown }
  return method !== 'tasks/result' || sessions || echoesState(capabilities)
}

async function takeAnswer(
  served: Served,
  decoded: Extract<SessionMessage, { kind: 'answer' }>,
): Promise<void> {
  const { session, posted } = served
  const { message, headers, outlet } = posted
  const { id, answer, state } = decoded
  if (session.asked(id)) {
    if (!session.answer(id, answer, state)) throw new RondoError('STATE_INVALID')
    return outlet.send(ACCEPTED)
  }
  const last = headers['last-event-id']
  const isOfTurn = takesTurns(session.facts.capabilities) && state === undefined
  if (last !== undefined || isOfTurn) return resume(served, decodeAnswers(message, last))
  // Nobody asked this, or nobody waits any more: as in any session, that is no mistake of the client.
  if (readEventId(id) === undefined) return outlet.send(ACCEPTED)
  return resume(served, decodeAnswers(message, id as string))
}

/** Goes on from the answers to what some instance asked. */
async function resume(
  { options, turns, session, posted, peer }: Served,
  answers: TurnAnswers,
): Promise<void> {
  const { older, inFlight, stream } = options
  const { principal, headers, outlet } = posted
  const { protocolVersion, capabilities } = session.facts
  const dialect = older.codecs.session(protocolVersion)
  let line: SessionLine | undefined
  let finish = (): void => {}
  const wish = {
    primed: dialect.primesStreams,
    streams: readsStreams(headers.accept),
    batch: false,
    responses: 1,
    onLost: () => line?.cancel(),
  }
  let channel: SessionStream | undefined
  const ownChannel = (): SessionStream => session.openStream(wish, outlet, stream)
  const caller: TurnPeer = {
    facts: peer,
    takesTurns: takesTurns(capabilities),
    principal,
    session: session.id,
    line(id, progressToken) {
      // The state holds the request.
      const size = (): number => costOf(JSON.stringify(posted.message))
      const waiting = session.awaited(answers.turn)
      if (waiting) outlet.send(ACCEPTED)
      const chosen = waiting ?? ownChannel()
      channel = chosen
      const begun = session.resume(id, chosen, dialect, size)
      const stopBeating = startBeating(stream, () => begun.beat(progressToken))
      finish = () => {
        stopBeating()
        session.finish(id, begun)
      }
      begun.onClose(() => chosen.respond(undefined))
      line = begun
      return begun
    },
  }
  inFlight.enter()
  try {
    const outcome = await turns.resume(answers, caller, unaskable(dialect, headers))
    finish()
    if (line?.closed) return
    channel ??= ownChannel()
    if (outcome.kind === 'turn') channel.endWith(encodeTurn(outcome.turn, protocolVersion))
    else
      channel.respond(
        outcome.kind === 'taken' ? undefined : responseOf(outcome.id, outcome.reply, protocolVersion),
      )
  } finally {
    finish()
    inFlight.leave()
  }
}

function responseOf(
  id: string | number | null,
  reply: Parameters<typeof encodeReply>[1],
  version: string,
): string {
  if (id !== null) return encodeReply(id, reply, version)
  return encodeError(null, reply.kind === 'error' ? reply.error : new RondoError('SERVER_INTERNAL'))
}

/* How a session begins that is sealed into its id: who gets one, and what it is told. */

/** Bytes of what a client calls itself: with it, an id stays below the 1024 that some clients take. */
const INFO_BYTES = 200

/** True if the message begins such a session, or belongs to one. */
function isOfDrafts({ older, sessions }: PostOptions, { message, headers }: Posted): boolean {
  if (!isInitialize(message)) return isSealedSession(headers['mcp-session-id'])
  const { requested, capabilities } = readInitialize(older, message)
  // Who takes no turns waits for its answers, which needs a session.
  const takesPart = takesTurns(capabilities) || (sessions && echoesState(capabilities))
  return takesPart && VERSIONS.includes(negotiate(requested, older.versions))
}

async function greetDrafts(
  { older, sessions }: PostOptions,
  turns: TurnsService,
  { message, principal, outlet }: Posted,
): Promise<void> {
  const { id, requested, capabilities: declared, clientInfo } = readInitialize(older, message)
  const protocolVersion = negotiate(requested, older.versions)
  const capabilities = rememberedCapabilities(declared, EXPERIMENTAL)
  const facts = { protocolVersion, capabilities, clientInfo: fitting(clientInfo) }
  const session = await turns.sealSession(facts, principal)
  const known = principal !== undefined
  const greeting = older.greet(protocolVersion, { session: sessions, known, tasks: true })
  // A level that a client sets would have to be remembered.
  const { logging, ...offered } = greeting.capabilities as Readonly<Record<string, unknown>>
  const { experimental } = capabilities
  const result = {
    ...greeting,
    capabilities: { ...offered, ...(sessions && { logging }), experimental },
  }
  outlet.send({
    status: 200,
    headers: { ...JSON_HEADERS, 'Mcp-Session-Id': session },
    body: encodeReply(id, { kind: 'complete', result }, protocolVersion),
  })
}

/** It is for logs and handlers only, so a long one is left out. */
function fitting(info: PeerFacts['clientInfo']): PeerFacts['clientInfo'] {
  const size = Buffer.byteLength(JSON.stringify(info ?? {}))
  if (size <= INFO_BYTES) return info
  const { name, version } = info ?? { name: '', version: '' }
  const short = { name: name.slice(0, 64), version: version.slice(0, 32) }
  return Buffer.byteLength(JSON.stringify(short)) <= INFO_BYTES ? short : undefined
}
