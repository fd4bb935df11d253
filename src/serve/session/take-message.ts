/**
 * One decoded message of a session, over HTTP and stdio alike: a request is answered, an answer finds its question, a
 * notification is heard.
 */

import type { TurnOutcome } from '../../carry/turns.ts'
import { RondoError } from '../../errors.ts'
import type { FlowCall, Line, Principal, RequestId } from '../../protocol/call.ts'
import { encodeTurn, type TurnEvent } from '../../protocol/draft-turns/encode.ts'
import type { OlderReply } from '../../protocol/older-reply.ts'
import type { Decoded } from '../../protocol/rev-2025-11-25/decode.ts'
import { encodeError } from '../../protocol/rev-2025-11-25/encode.ts'
import type { OlderCall, SessionCall } from '../../protocol/session-call.ts'
import { type BeatOptions, startBeating } from '../heartbeat.ts'
import type { InFlight } from '../in-flight.ts'
import { finishOnce, internalError } from '../settle.ts'
import type { Channel } from './channel.ts'
import { codecOf } from './codec.ts'
import type { Older } from './older.ts'
import { costOf, type Session } from './session.ts'

/** How one message is answered. */
export interface Way {
  readonly channel: Channel
  /** The response, or undefined where none is sent. */
  respond(json: string | undefined): void
  /** Questions that end the stream. */
  endWith?(events: readonly TurnEvent[]): void
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
  begin?(call: FlowCall, line: Line): Promise<TurnOutcome>
  onError(error: unknown): void
}

/** How a call ends: with a response, with questions, or with neither. */
type Ending = OlderReply | Exclude<TurnOutcome, { kind: 'reply' }>

const EMPTY: OlderReply = { kind: 'complete', result: {} }

/** True if the message is a request: then `way.respond` is called exactly once, sooner or later. */
export function isRequest({ kind }: Decoded): boolean {
  return kind === 'call' || kind === 'session' || kind === 'refused'
}

export function takeMessage(
  context: TakeContext,
  session: Session,
  protocolVersion: string,
  decoded: Decoded,
  principal: Principal | undefined,
  way: Way,
): void {
  const codec = codecOf(protocolVersion)
  const reply = (id: RequestId, what: OlderReply): void => way.respond(codec.encodeReply(id, what))
  switch (decoded.kind) {
    case 'call':
      return takeCall(context, session, decoded.call, principal, way)
    case 'session':
      return reply(decoded.call.id, takeSessionCall(session, decoded.call))
    case 'refused':
      return way.respond(encodeError(decoded.id, decoded.error))
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
  const { encodeReply } = codecOf(call.protocolVersion)
  const refuse = (error: RondoError): void => way.respond(encodeReply(call.id, { kind: 'error', error }))
  if (context.draining) return refuse(new RondoError('SERVER_DRAINING'))
  // All callers without a name share one owner: a list would give each the ids of all others.
  if (call.kind === 'tasks' && !context.known) return refuse(new RondoError('PEER_METHOD'))
  let line: ReturnType<Session['begin']>
  try {
    line = session.begin(call.id, way.channel, call.protocolVersion, () => sizeOf(call))
  } catch (error) {
    if (error instanceof RondoError) return refuse(error)
    throw error
  }
  context.inFlight.enter()
  // Whoever cancels waits for nothing more, also where the handler does.
  const stopListening = line.onClose(() => way.respond(undefined))
  const stopBeating = startBeating(context.beats, () => line.beat(call.progressToken))
  const finish = (ending: Ending): void => {
    const send = line.closed ? undefined : toSending(ending)
    session.finish(call.id, line)
    stopListening()
    stopBeating()
    send?.()
    context.inFlight.leave()
  }
  const toSending = (ending: Ending): (() => void) => {
    if (ending.kind === 'taken') return () => way.respond(undefined)
    if (ending.kind === 'turn') {
      const events = encodeTurn(ending.turn, call.protocolVersion)
      return () => way.endWith?.(events)
    }
    const json = encodeReply(call.id, ending)
    return () => way.respond(json)
  }
  const answer = async (): Promise<Ending> => {
    if (call.kind !== 'flow' || !context.begin)
      return context.older.answer(call, principal, line, context.unaskable)
    const outcome = await context.begin(call, line)
    return outcome.kind === 'reply' ? outcome.reply : outcome
  }
  const { onError } = context
  const done = (ending: Ending): void => finishOnce<Ending>(ending, finish, onError)
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
