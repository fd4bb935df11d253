/**
 * POSTs of clients that take their questions in turns. Their session is sealed into its id, so any instance serves any
 * of them: nothing is looked up, nothing is told that no request asked for, and no stream is resumed, since each ends
 * where it would have to wait.
 *
 * X1 A session is that of its principal; to anybody else it is unknown. X2 An array is answers, and is answered with the
 * result or with the next questions, never with 202.
 */

import type { TurnOutcome } from '../../carry/turns.ts'
import { RondoError } from '../../errors.ts'
import { decodeAnswers } from '../../protocol/draft-turns/decode.ts'
import { encodeTurn } from '../../protocol/draft-turns/encode.ts'
import type { Reply } from '../../protocol/reply.ts'
import { decode } from '../../protocol/rev-2025-11-25/decode.ts'
import { encodeError, encodeReply } from '../../protocol/rev-2025-11-25/encode.ts'
import type { OlderCall, PeerFacts, SessionCall } from '../../protocol/session-call.ts'
import type { HttpAnswer } from '../http-answer.ts'
import { HttpLine, readsStreams } from '../http-line.ts'
import { isInitialize } from './era.ts'
import type { TurnsService } from './older.ts'
import { NO_STREAM, type Posted, type PostOptions } from './session-post.ts'
import { greetTurns } from './turns-greeting.ts'

const ACCEPTED: HttpAnswer = { status: 202, headers: {}, body: '' }

/** Rejects with what is wrong with the request as a whole. */
export async function serveTurns(options: PostOptions, turns: TurnsService, posted: Posted): Promise<void> {
  const { message, headers, principal, outlet } = posted
  if (isInitialize(message)) return greetTurns(options, turns, posted)
  const known = await turns.openSession(headers('mcp-session-id') ?? '', principal)
  if (known === undefined) throw new RondoError('PEER_SESSION')
  const peer = readsStreams(headers('accept')) ? known : { ...known, capabilities: {} }
  if (Array.isArray(message)) return resume(options, turns, peer, posted)
  const decoded = decode(message, peer)
  switch (decoded.kind) {
    case 'notification':
      return outlet.send(ACCEPTED)
    case 'answer':
      return resume(options, turns, peer, posted)
    case 'refused':
      if (decoded.id === null) throw decoded.error
      return onLine(options, posted, peer, async () => toError(decoded.id, decoded.error))
    default:
      return onLine(options, posted, peer, (line) => answer(options, turns, decoded.call, posted, line))
  }
}

async function answer(
  { older }: PostOptions,
  turns: TurnsService,
  call: OlderCall | SessionCall,
  { principal, headers }: Posted,
  line: HttpLine,
): Promise<TurnOutcome> {
  switch (call.kind) {
    case 'flow':
      line.progressToken = call.progressToken
      // A task's questions are pushed while its client waits, and here nobody does: a wish for one is not heard.
      return turns.begin({ ...call, task: undefined }, principal, line, unaskable(headers('accept')))
    case 'list':
    case 'complete':
      return toReply(call.id, (await older.answer(call, principal, silent(line))) as Reply)
    case 'ping':
      return toReply(call.id, { kind: 'complete', result: {} })
    default:
      return toError(call.id, new RondoError('PEER_METHOD'))
  }
}

function resume(options: PostOptions, turns: TurnsService, peer: PeerFacts, posted: Posted): Promise<void> {
  const { message, headers, principal } = posted
  const answers = decodeAnswers(message, headers('last-event-id'))
  const why = unaskable(headers('accept'))
  return onLine(options, posted, peer, (line) => turns.resume(answers, peer, principal, line, why))
}

function unaskable(accept: string | undefined): string | undefined {
  return readsStreams(accept) ? undefined : NO_STREAM
}

/** Lists and completions ask nobody. */
function silent(line: HttpLine): Parameters<PostOptions['older']['answer']>[2] {
  return {
    closed: line.closed,
    onClose: (listener) => line.onClose(listener),
    notify: (method, params) => line.notify(method, params),
    ask: async () => ({ kind: 'gone' }),
    rest: () => () => {},
  }
}

async function onLine(
  { inFlight, stream }: PostOptions,
  { outlet, headers }: Posted,
  { protocolVersion }: PeerFacts,
  work: (line: HttpLine) => Promise<TurnOutcome>,
): Promise<void> {
  const line = new HttpLine(outlet, headers, stream)
  inFlight.enter()
  try {
    const outcome = await work(line)
    if (outcome.kind === 'turn') line.finishWith(encodeTurn(outcome.turn, protocolVersion))
    else line.finish(200, responseOf(outcome, protocolVersion))
  } finally {
    inFlight.leave()
  }
}

function responseOf({ id, reply }: Extract<TurnOutcome, { kind: 'reply' }>, protocolVersion: string): string {
  if (id !== null) return encodeReply(id, reply, protocolVersion)
  return encodeError(null, reply.kind === 'error' ? reply.error : new RondoError('SERVER_INTERNAL'))
}

function toReply(id: string | number, reply: Reply): TurnOutcome {
  return { kind: 'reply', id, reply }
}

function toError(id: string | number | null, error: RondoError): TurnOutcome {
  return { kind: 'reply', id, reply: { kind: 'error', error } }
}
