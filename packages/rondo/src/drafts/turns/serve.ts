/**
 * POSTs of clients of the two drafts. Their session is sealed into its id, so every instance knows it. Each instance has its
 * own part of it: the calls and streams that it serves. With a store, its log level and its subscriptions are shared.
 *
 * draft 1: A session belongs to its principal; to anybody else it is unknown.
 * draft 2: Responses to a turn are answered with the result or the next questions, never with 202.
 * draft 3: A response to a question of this instance reaches the call that waits, and is accepted. One to a question of
 * another instance brings its state, and the call resumes here.
 */

import type { FlowHost } from '../../carry/host.ts'
import { unaskableReply } from '../../carry/report.ts'
import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import { drawId } from '../../lib/random.ts'
import type { FlowCall, Line, PeerFacts, Principal } from '../../protocol/call.ts'
import { negotiate, type SessionMessage } from '../../protocol/codec.ts'
import { isInitialize, rememberedCapabilities } from '../../protocol/common/request.ts'
import { REV_2025_11_25 } from '../../protocol/rev-2025-11-25/codec.ts'
import { decode } from '../../protocol/rev-2025-11-25/decode.ts'
import { encodeError, encodeReply } from '../../protocol/rev-2025-11-25/encode.ts'
import { isTurnsSession, openSession, type SealedSession, sealSession } from '../../seal/session-id.ts'
import { principalTag } from '../../seal/state.ts'
import { unknownTarget } from '../../serve/failure.ts'
import { JSON_HEADERS, readsStreams, refusal } from '../../serve/http/line.ts'
import { costOf } from '../../serve/limits.ts'
import type { WatchedCall } from '../../serve/port.ts'
import type { CallEnding } from '../../session/dispatch.ts'
import { ACCEPTED, deliver, unaskable } from '../../session/entrance.ts'
import { readInitialize } from '../../session/handshake.ts'
import type { SessionLine } from '../../session/line.ts'
import type { AttachDraft, Posted, PostOptions } from '../../session/older.ts'
import type { Session } from '../../session/session.ts'
import type { SessionStream } from '../../session/stream.ts'
import type { Registry } from '../../tool/registry.ts'
import type { Target } from '../../tool/target.ts'
import { createTurns, type TurnOutcome, type TurnPeer, type Turns } from './carrier.ts'
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

/** The turns carrier, and sessions that are sealed into their ids. Rejects only if the keys do not load. */
interface TurnsService {
  sealSession(facts: PeerFacts, principal: Principal | undefined, lifetimeMs: number): Promise<string>
  /** Undefined if the session is not this principal's. */
  openSession(id: string, principal: Principal | undefined): Promise<SealedSession | undefined>
  begin(
    call: FlowCall,
    principal: Principal | undefined,
    line: Line,
    session: string,
    unaskable?: string,
  ): Promise<TurnOutcome>
  resume(answers: TurnAnswers, peer: TurnPeer, unaskable?: string): Promise<TurnOutcome>
  readonly hand: Turns['hand']
  readonly handTask: Turns['handTask']
}

/** `mismatch` returns why a call cannot be made the way its client wants it, with a task or without. */
function createTurnsService(
  host: FlowHost,
  registry: Registry,
  mismatch: (target: Target, call: FlowCall) => string | undefined,
  options?: TurnsOptions,
): TurnsService {
  const turns = createTurns(host, registry.find, options)
  const { audience, keys } = host
  return {
    async sealSession(facts, principal, lifetimeMs) {
      await keys.ready()
      const place = { ring: keys.ring, audience, principal: principalTag(principal) }
      const until = host.platform.now() + lifetimeMs
      return sealSession('turns', place, { facts, until, secret: drawId() }).id
    },
    async openSession(id, principal) {
      await keys.ready()
      const place = { ring: keys.ring, audience, principal: principalTag(principal) }
      return openSession(place, id, host.platform.now())
    },
    async begin(call, principal, line, session, unaskable) {
      const { id } = call
      const target = registry.find(call.method, call.target)
      if (!target) return { kind: 'reply', id, reply: unknownTarget(call) }
      const why = mismatch(target, call)
      if (why !== undefined)
        return { kind: 'reply', id, reply: { kind: 'error', error: new RondoError('PEER_METHOD', why) } }
      return readable(await turns.begin(target, call, principal, line, session), unaskable)
    },
    resume: async (answers, peer, unaskable) => readable(await turns.resume(answers, peer), unaskable),
    hand: turns.hand,
    handTask: turns.handTask,
  }
}

/** A client that cannot be asked gets the reason as an `isError` result, like all clients of this era. */
function readable(outcome: TurnOutcome, unaskable: string | undefined): TurnOutcome {
  if (outcome.kind !== 'reply' || outcome.reply.kind !== 'error' || !outcome.target) return outcome
  const { error } = outcome.reply
  if (error.code !== 'PEER_CAPABILITY') return outcome
  return { ...outcome, reply: unaskableReply(outcome.target, error, unaskable) }
}

/** This instance's part of a sealed session; undefined if the session is not this principal's. */
async function openSealed(
  { older, sessions, shareOf }: PostOptions,
  turns: TurnsService,
  { headers, principal, outlet }: Pick<Posted, 'headers' | 'principal' | 'outlet'>,
): Promise<Session | undefined> {
  const id = headers['mcp-session-id'] ?? ''
  const opened = await turns.openSession(id, principal)
  if (opened === undefined) return undefined
  const { facts, until, secret } = opened
  const owner = principalTag(principal)
  if (!sessions) return older.sessions.transient(facts, owner, { id })
  const share = shareOf(principal, headers, outlet)
  const session = older.sessions.adopt({ id, until, secret }, facts, owner, share)
  const last = headers['last-event-id']
  if (last !== undefined && !session.streams.mayHaveSent(last)) throw new RondoError('PEER_EVENT')
  return (await older.shared.refresh(session)) ? session : undefined
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
  if (decoded.kind !== 'notification') assertServing(options)
  const { protocolVersion } = session.facts
  const why = unaskable(options.older.codecs.session(protocolVersion), headers)
  const begin = takesTurns(session.facts.capabilities)
    ? async (...[call, line]: Parameters<BeginTurn>) =>
        toEnding(await turns.begin(call, principal, line, session.id, why), protocolVersion)
    : undefined
  await deliver(options, session, protocolVersion, [decoded], posted, begin)
}

function toEnding(outcome: TurnOutcome, protocolVersion: string): CallEnding {
  if (outcome.kind === 'turn') return { kind: 'events', events: encodeTurn(outcome.turn, protocolVersion) }
  return outcome.kind === 'reply' ? outcome.reply : outcome
}

/** Without a session no level can be remembered, and none was offered. */
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

/** The questions of a task are pushed; their responses find the task by a session or by their state. */
function mayAsk(sessions: boolean, { capabilities }: PeerFacts, message: unknown): boolean {
  const isTask = isRecord(message) && message.method === 'tasks/result'
  return !isTask || sessions || echoesState(capabilities)
}

async function takeAnswer(
  served: Served,
  decoded: Extract<SessionMessage, { kind: 'answer' }>,
): Promise<void> {
  const { session, posted } = served
  const { message, headers, outlet } = posted
  const { id, answer } = decoded
  const { state } = message as { readonly state?: unknown }
  if (session.asked(id)) {
    await served.options.access.admit([], posted.principal, session.scopesOf(id))
    if (!session.answer(id, answer, state)) throw new RondoError('STATE_INVALID')
    return outlet.send(ACCEPTED)
  }
  const last = headers['last-event-id']
  const isOfTurn = takesTurns(session.facts.capabilities) && state === undefined
  if (last !== undefined || isOfTurn) return resume(served, decodeAnswers(message, last))
  // The question is unknown or no longer open. As in any session, that is not an error.
  if (readEventId(id) === undefined) return outlet.send(ACCEPTED)
  return resume(served, decodeAnswers(message, id as string))
}

/** Continues from the responses to the questions of any instance. */
async function resume(
  { options, turns, session, posted, peer }: Served,
  answers: TurnAnswers,
): Promise<void> {
  assertServing(options)
  const { older, inFlight, stream, access } = options
  const { principal, headers, outlet } = posted
  const { protocolVersion, capabilities } = session.facts
  const dialect = older.codecs.session(protocolVersion)
  let line: SessionLine | undefined
  let finish = (): void => {}
  const active: { -readonly [K in keyof WatchedCall]: WatchedCall[K] } = {}
  const wish = {
    primed: dialect.primesStreams,
    streams: readsStreams(headers.accept),
    batch: false,
    responses: 1,
    onLost: () => line?.cancel(),
  }
  let channel: SessionStream | undefined
  const ownChannel = (): SessionStream => session.streams.open(wish, outlet, stream)
  const caller: TurnPeer = {
    facts: peer,
    takesTurns: takesTurns(capabilities),
    principal,
    session: session.id,
    async admit(call) {
      const [need] = await access.admit([call], principal)
      return need ?? { scopes: [] }
    },
    line(id, progressToken, scopes) {
      // The state holds the request.
      const size = (): number => costOf(JSON.stringify(posted.message))
      const waiting = session.streams.awaited(answers.turn)
      if (waiting) outlet.send(ACCEPTED)
      const chosen = waiting ?? ownChannel()
      channel = chosen
      const begun = session.resume(id, chosen, dialect, size)
      begun.scopes = scopes
      active.call = { progressToken }
      active.line = begun
      finish = () => session.finish(id, begun)
      begun.onClose(() => chosen.respond(undefined))
      line = begun
      return begun
    },
  }
  inFlight.enter(active)
  try {
    const outcome = await turns.resume(answers, caller, unaskable(dialect, headers))
    finish()
    if (line?.closed) return
    const refused =
      outcome.kind === 'reply' && outcome.reply.kind === 'error' ? outcome.reply.error : undefined
    // A refusal for lack of scope is a response of its own: nothing has been sent.
    if (channel === undefined && refused?.headers !== undefined) return outlet.send(refusal(refused))
    channel ??= ownChannel()
    if (outcome.kind === 'turn') channel.endWith(encodeTurn(outcome.turn, protocolVersion))
    else
      channel.respond(
        outcome.kind === 'taken' ? undefined : responseOf(outcome.id, outcome.reply, protocolVersion),
      )
  } finally {
    finish()
    inFlight.leave(active)
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

/** Throws while this instance drains: the client brings its state, and is served elsewhere. */
function assertServing({ service }: PostOptions): void {
  if (service.state.draining) throw new RondoError('SERVER_DRAINING')
}

/** True if the message begins a session that is sealed into its id, or belongs to one. */
function isOfDrafts({ older, sessions }: PostOptions, { message, headers }: Posted): boolean {
  if (!isInitialize(message)) return isTurnsSession(headers['mcp-session-id'])
  const { requested, capabilities } = readInitialize(older, message)
  // A client that takes no turns waits for its result, which needs a session.
  const takesPart = takesTurns(capabilities) || (sessions && echoesState(capabilities))
  return takesPart && REV_2025_11_25.versions.includes(negotiate(requested, older.versions))
}

async function greetDrafts(
  { older, sessions, access }: PostOptions,
  turns: TurnsService,
  { message, principal, outlet }: Posted,
): Promise<void> {
  await access.admit([], principal)
  const { id, requested, capabilities: declared, clientInfo } = readInitialize(older, message)
  const protocolVersion = negotiate(requested, older.versions)
  const capabilities = rememberedCapabilities(declared, EXPERIMENTAL)
  const facts = { protocolVersion, capabilities, clientInfo }
  const session = await turns.sealSession(facts, principal, older.sessions.lifetimeMs)
  const known = principal !== undefined
  const greeting = older.greet(protocolVersion, { session: sessions, known, tasks: true })
  // Without a session the server cannot remember a log level.
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
