/**
 * Dispatches one decoded message of a session, over HTTP and stdio alike: a request gets its response, a response
 * reaches the question that it answers, and a cancellation reaches its call. And the one session of a client over stdio: it
 * begins with `initialize`; after that, every message that does not claim a newer version belongs to it.
 */

import { isStoreFault, RondoError } from '../errors.ts'
import type { InFlight } from '../lib/collection.ts'
import type { FlowCall, Line, OlderCall, Principal, RequestId, SessionCall } from '../protocol/call.ts'
import type { SessionDialect, SessionMessage } from '../protocol/codec.ts'
import type { OlderReply } from '../protocol/reply.ts'
import { isTurnsSession } from '../seal/session-id.ts'
import { internalError } from '../serve/failure.ts'
import type { Load, WatchedCall } from '../serve/port.ts'
import type { CallHold } from './kept.ts'
import type { Channel } from './line.ts'
import type { Older } from './older.ts'
import { createParcel, type Parcel } from './parcel.ts'
import type { Session } from './session.ts'
import type { SessionStream, WholeEvent } from './stream.ts'

/** The receiver of the response to a message. */
export interface ReplyPath {
  readonly channel: Channel
  /** The stream of the request, over HTTP. */
  readonly stream?: SessionStream
  /** Sends the response; undefined if there is none to send. */
  respond(json: string | undefined): void
  /** Ends the stream with questions instead of a response. */
  endWith?(events: readonly WholeEvent[]): void
}

export interface DispatchContext {
  readonly older: Older
  readonly inFlight: InFlight<WatchedCall>
  /** True if the caller can be told apart from all others. */
  readonly known: boolean
  /** True while new calls are refused. */
  readonly draining: boolean
  /** The scopes that each call needs; answers to its questions need the same. */
  readonly scopes?: ReadonlyMap<RequestId, readonly string[]>
  /** The weight of the message, unless it is light. */
  readonly load?: Load
  /** The reason why nobody can be asked here, if so. */
  readonly unaskable?: string
  /** Serves the calls of a client that takes its questions in turns. */
  begin?(call: FlowCall, line: Line): Promise<CallEnding>
  onError(error: unknown): void
}

/** The end of a call: a response, events that end its stream, or nothing. */
export type CallEnding =
  | OlderReply
  | { readonly kind: 'events'; readonly events: readonly WholeEvent[] }
  | { readonly kind: 'taken' }

const MAX_BATCH = 64
const EMPTY: OlderReply = { kind: 'complete', result: {} }

/** True for a request: then `path.respond` is called exactly once, sooner or later. */
export function isRequest({ kind }: SessionMessage): boolean {
  return kind === 'call' || kind === 'session' || kind === 'refused'
}

/** The messages of a body, which may be a batch where the version has batches. */
export function messagesOf(body: unknown, { batches }: SessionDialect): readonly unknown[] {
  if (!Array.isArray(body)) return [body]
  if (!batches) throw new RondoError('PEER_REQUEST', 'This protocol version has no batches: send one message')
  if (body.length > MAX_BATCH) {
    throw new RondoError('PEER_REQUEST', `A batch may contain at most ${MAX_BATCH} messages`)
  }
  return body
}

export function dispatch(
  context: DispatchContext,
  session: Session,
  protocolVersion: string,
  decoded: SessionMessage,
  principal: Principal | undefined,
  path: ReplyPath,
): void {
  const dialect = context.older.codecs.session(protocolVersion)
  switch (decoded.kind) {
    case 'call':
      return dispatchCall(context, session, decoded.call, principal, path)
    case 'session':
      void applySessionCall(context, session, decoded.call, principal)
        .then(
          () => EMPTY,
          (error) => toFailure(error, context),
        )
        .then((reply) => path.respond(dialect.encodeReply(decoded.call.id, reply)))
        .catch(context.onError)
      return
    case 'refused':
      return path.respond(dialect.encodeError(decoded.id, decoded.error))
    case 'answer':
      session.answer(decoded.id, decoded.answer)
      return
    case 'notification':
      if (decoded.method === 'notifications/cancelled')
        context.older.shared.cancel(session, decoded.params.requestId as RequestId)
  }
}

function dispatchCall(
  context: DispatchContext,
  session: Session,
  given: OlderCall,
  principal: Principal | undefined,
  path: ReplyPath,
): void {
  const dialect = context.older.codecs.session(given.protocolVersion)
  const { encodeReply } = dialect
  const parcel = given.kind === 'flow' ? createParcel(given, context.load) : undefined
  const release = parcel ? parcel.end : context.load?.hold()
  // Objects that live as long as the call must not refer to the arguments that it came with.
  const call = parcel?.call ?? given
  const refuse = (error: RondoError): void => {
    release?.()
    path.respond(encodeReply(call.id, { kind: 'error', error }))
  }
  if (context.draining) return refuse(new RondoError('SERVER_DRAINING'))
  // All anonymous callers have the same owner: a list would show each of them the tasks of all others.
  if (call.kind === 'tasks' && !context.known) return refuse(new RondoError('PEER_METHOD'))
  let line: ReturnType<Session['begin']>
  let hold: CallHold | undefined
  try {
    hold = holdOf(context, session, call, path, parcel)
    line = session.begin(call.id, path.channel, dialect, parcel?.pack, hold)
    line.ready = parcel?.unpack
    line.scopes = context.scopes?.get(call.id) ?? line.scopes
    hold?.attach(line)
  } catch (error) {
    if (error instanceof RondoError) return refuse(error)
    release?.()
    throw error
  }
  const { onError } = context
  const active = { call, line }
  context.inFlight.enter(active)
  // A client that cancels is not kept waiting, even if the handler ignores its signal.
  const stopListening = line.onClose(() => path.respond(undefined))
  const encode = (reply: OlderReply): string => {
    try {
      return encodeReply(call.id, reply)
    } catch (error) {
      return encodeReply(call.id, internalError(error, onError))
    }
  }
  const send = async (ending: CallEnding): Promise<void> => {
    if (line.closed) return
    if (ending.kind === 'taken') return path.respond(undefined)
    if (ending.kind === 'events') return path.endWith?.(ending.events)
    const json = encode(ending)
    // If another instance has the call by now, it sends the response.
    path.respond(!hold?.isKept() || (await hold.settle(json)) ? json : undefined)
  }
  const answer = async (): Promise<CallEnding> =>
    call.kind === 'flow' && context.begin
      ? context.begin(call, line)
      : context.older.answer(call, principal, line, context.unaskable)
  const run = async (): Promise<void> => {
    const ending = await answer().catch((error: unknown) => internalError(error, onError))
    const sending = send(ending)
    session.finish(call.id, line)
    stopListening()
    // A server that stops waits for the response, even while it is being stored.
    await sending
    // After the response: before it the client does not know the id.
    if (ending.kind === 'task_created' || ending.kind === 'task')
      context.older.notifyOfTask(session, ending.task, call, principal)
  }
  void run()
    .catch(onError)
    .finally(() => {
      context.inFlight.leave(active)
      release?.()
    })
}

/** A call can be kept if its stream carries nothing else. */
function holdOf(
  { older }: DispatchContext,
  session: Session,
  call: OlderCall,
  { stream }: ReplyPath,
  parcel: Parcel | undefined,
): CallHold | undefined {
  if (!session.portable || isTurnsSession(session.id) || stream?.single !== true) return undefined
  if (call.kind !== 'flow' && call.kind !== 'task') return undefined
  const { id, progressToken, protocolVersion } = call
  const target = call.kind === 'flow' ? call.target : call.taskId
  return older.shared.hold?.(session, stream, {
    id,
    target,
    args: parcel?.args,
    progressToken,
    protocolVersion,
    scopes: () => stream.scopes,
  })
}

async function applySessionCall(
  { older }: DispatchContext,
  session: Session,
  call: SessionCall,
  principal: Principal | undefined,
): Promise<void> {
  if (call.kind === 'initialize')
    throw new RondoError('PEER_REQUEST', 'initialize must be the first message, and not part of a batch')
  if (call.kind === 'ping') return
  await older.shared.change(session, call, (changed) =>
    call.kind === 'watch' ? older.watchResource(call.uri, principal, changed) : undefined,
  )
}

function toFailure(error: unknown, { older, onError }: DispatchContext): OlderReply {
  if (isStoreFault(error)) older.storeFailed(error)
  return error instanceof RondoError ? { kind: 'error', error } : internalError(error, onError)
}
