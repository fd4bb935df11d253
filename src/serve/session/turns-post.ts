/**
 * POSTs of clients of the two drafts. Their session is sealed into its id, so every instance knows it, and each has its own
 * part of it: the calls and streams that it serves, what the client wants to hear from it.
 *
 * X1 A session is that of its principal; to anybody else it is unknown. X2 Responses to a turn are answered with the
 * result or with the next questions, never with 202. X3 A response to a question that this instance asked reaches the call
 * that waits, and is accepted; one to a question that another asked brings its state, and the call goes on here.
 */

import type { TurnPeer } from '../../carry/turns.ts'
import { RondoError } from '../../errors.ts'
import { echoesState, takesTurns } from '../../protocol/draft-turns/capability.ts'
import { decodeAnswers } from '../../protocol/draft-turns/decode.ts'
import { encodeTurn } from '../../protocol/draft-turns/encode.ts'
import { readEventId, type TurnAnswers } from '../../protocol/draft-turns/turn.ts'
import { type Decoded, decode } from '../../protocol/rev-2025-11-25/decode.ts'
import { encodeError, encodeReply } from '../../protocol/rev-2025-11-25/encode.ts'
import { primesStreams } from '../../protocol/rev-2025-11-25/version.ts'
import type { PeerFacts } from '../../protocol/session-call.ts'
import { principalTag } from '../../seal/binding.ts'
import { startBeating } from '../heartbeat.ts'
import { readsStreams } from '../http-line.ts'
import { isInitialize } from './era.ts'
import type { TurnsService } from './older.ts'
import { costOf, type Session } from './session.ts'
import type { SessionLine } from './session-line.ts'
import { ACCEPTED, deliver, type Posted, type PostOptions, unaskable } from './session-post.ts'
import type { SessionStream } from './session-stream.ts'
import { greetDrafts } from './turns-greeting.ts'

/** This instance's part of a sealed session; nothing for one that is not this principal's. */
export async function openSealed(
  { older, sessions, shareOf }: PostOptions,
  turns: TurnsService,
  { headers, principal, outlet }: Pick<Posted, 'headers' | 'principal' | 'outlet'>,
): Promise<Session | undefined> {
  const id = headers('mcp-session-id') ?? ''
  const facts = await turns.openSession(id, principal)
  if (facts === undefined) return undefined
  const owner = principalTag(principal)
  return sessions
    ? older.sessions.adopt(id, facts, owner, shareOf(principal, headers, outlet))
    : older.sessions.transient(facts, owner, id)
}

/** Rejects with what is wrong with the request as a whole. */
export async function serveDrafts(options: PostOptions, turns: TurnsService, posted: Posted): Promise<void> {
  const { message, headers, principal } = posted
  if (isInitialize(message)) return greetDrafts(options, turns, posted)
  const session = await openSealed(options, turns, posted)
  if (session === undefined) throw new RondoError('PEER_SESSION')
  session.touch()
  const served: Served = { options, turns, session, posted, peer: peerOf(options, session, posted) }
  if (Array.isArray(message)) return resume(served, decodeAnswers(message, headers('last-event-id')))
  const given = decode(message, served.peer)
  const decoded = options.sessions ? given : withoutLevel(given)
  if (decoded.kind === 'answer') return takeAnswer(served, decoded)
  if (decoded.kind === 'refused' && decoded.id === null) throw decoded.error
  const { protocolVersion } = session.facts
  const why = unaskable(protocolVersion, headers)
  const begin = takesTurns(session.facts.capabilities)
    ? (...[call, line]: Parameters<BeginTurn>) => turns.begin(call, principal, line, session.id, why)
    : undefined
  deliver(options, session, protocolVersion, [decoded], posted, begin)
}

/** Without a session there is nobody to remember a level, and none was offered. */
function withoutLevel(decoded: Decoded): Decoded {
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
    mayAsk(sessions, facts, message) && readsStreams(headers('accept')) ? facts.capabilities : {}
  return { ...facts, capabilities, ...(sessions && { logLevel: level }) }
}

/** The questions of a task are pushed, and their answers find it by a session or by their state. */
function mayAsk(sessions: boolean, { capabilities }: PeerFacts, message: unknown): boolean {
  const { method } = message as { readonly method?: unknown }
  return method !== 'tasks/result' || sessions || echoesState(capabilities)
}

async function takeAnswer(served: Served, decoded: Extract<Decoded, { kind: 'answer' }>): Promise<void> {
  const { session, posted } = served
  const { message, headers, outlet } = posted
  const { id, answer, state } = decoded
  if (session.asked(id)) {
    if (!session.answer(id, answer, state)) throw new RondoError('STATE_INVALID')
    return outlet.send(ACCEPTED)
  }
  const last = headers('last-event-id')
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
  const { inFlight, stream } = options
  const { principal, headers, outlet } = posted
  const { protocolVersion, capabilities } = session.facts
  let line: SessionLine | undefined
  let finish = (): void => {}
  const wish = {
    primed: primesStreams(protocolVersion),
    streams: readsStreams(headers('accept')),
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
      const begun = session.resume(id, chosen, protocolVersion, size)
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
    const outcome = await turns.resume(answers, caller, unaskable(protocolVersion, headers))
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
