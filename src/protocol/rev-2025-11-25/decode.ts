/**
 * A parsed message of a session becomes a call, a notification, or the answer to a question of ours.
 *
 * Unlike at 2026-07-28 a request does not say who sends it: version, capabilities and log level come from the session.
 * Rounds do not exist here: `inputResponses` and `requestState` mean nothing.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/is-record.ts'
import type { Envelope, FlowCall, FlowMethod, RequestId, TaskCall } from '../call.ts'
import { ANSWER_LIMITS } from '../rev-2026-07-28/answers.ts'
import { readComplete, readFlow, readList, readTarget } from '../rev-2026-07-28/params.ts'
import type { OlderCall, PeerAnswer, PeerFacts, SessionCall, TaskListCall } from '../session-call.ts'
import { readAnswer } from './answers.ts'
import { readEnvelope } from './envelope.ts'
import { readInitialize, readLevel, readWatch } from './params.ts'
import { readTask, withTaskWish } from './task-params.ts'

type Params = Readonly<Record<string, unknown>>

export type Decoded =
  | { readonly kind: 'call'; readonly call: OlderCall }
  | { readonly kind: 'session'; readonly call: SessionCall }
  | { readonly kind: 'notification'; readonly method: string; readonly params: Params }
  /** `state` is what the drafts have the client bring back. */
  | { readonly kind: 'answer'; readonly id: RequestId; readonly answer: PeerAnswer; readonly state?: unknown }
  | { readonly kind: 'refused'; readonly id: RequestId | null; readonly error: RondoError }

/** What differs between the dialects that share this form. */
export interface Reader {
  envelope(id: RequestId, params: Params, peer: PeerFacts): Envelope
  flow(envelope: Envelope, method: FlowMethod, params: Params): FlowCall
  /** What is done with tasks; undefined for a method that is none of theirs. */
  task(envelope: Envelope, method: string, params: Params): TaskCall | TaskListCall | undefined
}

const NO_PARAMS: Params = Object.freeze({})

const READER: Reader = {
  envelope: readEnvelope,
  flow(envelope, method, params) {
    const plain = { ...params, inputResponses: undefined, requestState: undefined }
    const call = readFlow(envelope, method, readTarget(method, params), plain, ANSWER_LIMITS)
    return withTaskWish(call, params)
  },
  task: (envelope, method, params) => readTask(envelope, method, params),
}

export function decode(message: unknown, peer: PeerFacts, reader: Reader = READER): Decoded {
  let id: RequestId | null = null
  try {
    if (!isRecord(message)) throw new RondoError('PEER_REQUEST')
    if (isId(message.id)) id = message.id
    const { jsonrpc, method, params, state } = message
    if (jsonrpc !== '2.0') throw new RondoError('PEER_REQUEST', 'jsonrpc must be "2.0"')
    if (method === undefined && id !== null) {
      return { kind: 'answer', id, answer: readAnswer(message), ...(state !== undefined && { state }) }
    }
    if (typeof method !== 'string') throw new RondoError('PEER_REQUEST', 'method must be a string')
    if (params !== undefined && !isRecord(params)) {
      throw new RondoError('PEER_REQUEST', 'params must be an object')
    }
    if (message.id === undefined) return { kind: 'notification', method, params: params ?? NO_PARAMS }
    if (id === null) throw new RondoError('PEER_REQUEST', 'id must be a string or an integer')
    return readCall(id, method, params ?? NO_PARAMS, peer, reader)
  } catch (error) {
    if (error instanceof RondoError) return { kind: 'refused', id, error }
    throw error
  }
}

function readCall(id: RequestId, method: string, params: Params, peer: PeerFacts, reader: Reader): Decoded {
  switch (method) {
    case 'initialize':
      return { kind: 'session', call: readInitialize(id, params) }
    case 'ping':
      return { kind: 'session', call: { kind: 'ping', id } }
    case 'logging/setLevel':
      return { kind: 'session', call: readLevel(id, params) }
    case 'resources/subscribe':
      return { kind: 'session', call: readWatch(id, 'watch', params) }
    case 'resources/unsubscribe':
      return { kind: 'session', call: readWatch(id, 'unwatch', params) }
    default:
      return { kind: 'call', call: readOther(reader.envelope(id, params, peer), method, params, reader) }
  }
}

function readOther(envelope: Envelope, method: string, params: Params, reader: Reader): OlderCall {
  switch (method) {
    case 'tools/call':
    case 'prompts/get':
    case 'resources/read':
      return reader.flow(envelope, method, params)
    case 'tools/list':
      return readList(envelope, 'tools', params)
    case 'prompts/list':
      return readList(envelope, 'prompts', params)
    case 'resources/list':
      return readList(envelope, 'resources', params)
    case 'resources/templates/list':
      return readList(envelope, 'templates', params)
    case 'completion/complete':
      return readComplete(envelope, params)
    default:
      return reader.task(envelope, method, params) ?? unknownMethod()
  }
}

/** The id of a request, whatever else is wrong with it. */
export function idOf(message: unknown): RequestId | null {
  return isRecord(message) && message.method !== undefined && isId(message.id) ? message.id : null
}

function unknownMethod(): never {
  throw new RondoError('PEER_METHOD')
}

function isId(value: unknown): value is RequestId {
  return typeof value === 'string' || Number.isSafeInteger(value)
}
