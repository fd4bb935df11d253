/**
 * A call of the client as a message of 2025-11-25 or older. The client said who it is and what it can be asked once, at
 * `initialize`; a request carries its own parameters, and in `_meta` at most a progress token and a trace.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type { Call, Envelope, RequestId } from '../call.ts'
import { type EncodedRequest, methodOf, paramsOf } from '../common/encode-call.ts'
import { encodeMessage } from '../common/json-rpc.ts'
import type { ClientCapabilities } from '../wire.ts'
import { hasTasks } from './decode.ts'

type Fields = Readonly<Record<string, unknown>>

export interface Introduction {
  readonly version: string
  readonly capabilities: ClientCapabilities
  readonly clientInfo: Envelope['clientInfo']
}

export function encodeRequest(call: Call): EncodedRequest {
  if (call.kind === 'discover' || call.kind === 'listen' || isLaterTask(call)) {
    throw new RondoError('PEER_ERA', `${methodOf(call)} does not exist in ${call.protocolVersion}`)
  }
  if (call.kind === 'flow' && call.requestState !== undefined) {
    throw new RondoError(
      'INPUT_PENDING',
      'The pending call waits between two rounds, but this server has no rounds',
    )
  }
  assertVisited(call)
  const { inputResponses: _, requestState: __, ...plain } = paramsOf(call)
  const params = { ...plain, ...taskWishOf(call) }
  return {
    body: encodeMessage(call.id, methodOf(call), withMeta(params, metaOf(call))),
    headers: headersOf(call.protocolVersion),
  }
}

/** A request that needs visits to URLs is retried only after all of them were accepted. */
function assertVisited(call: Call): void {
  const responses = call.kind === 'flow' ? Object.values(call.inputResponses ?? {}) : []
  if (responses.every((one) => isRecord(one) && one.action === 'accept')) return
  const why = 'The server requires a visit to a URL before this request, and the visit was declined'
  throw new RondoError('INPUT_ABORTED', why)
}

/** There is no method for the input of a task: it asks while its result is awaited. */
function isLaterTask(call: Call): boolean {
  if (call.kind !== 'task') return false
  return !hasTasks(call.protocolVersion) || call.action === 'update'
}

/** The field with which a client asks for a task. */
export function taskWishOf(call: Call): Fields {
  return call.kind === 'flow' && call.task ? { task: { ttl: call.task.ttlMs } } : {}
}

export function encodeInitialize(id: RequestId, { version, capabilities, clientInfo }: Introduction): string {
  return encodeMessage(id, 'initialize', {
    protocolVersion: version,
    capabilities: capabilitiesIn(version, capabilities),
    clientInfo,
  })
}

/** Forms came with 2025-06-18; modes, and with them URLs, with 2025-11-25. */
function capabilitiesIn(version: string, { elicitation, ...others }: ClientCapabilities): ClientCapabilities {
  if (elicitation === undefined || version < '2025-06-18') return others
  if (version >= '2025-11-25') return { ...others, elicitation }
  return elicitation.form ? { ...others, elicitation: {} } : others
}

/** The client's response to a request of the server. */
export type Answered = { readonly result: object } | { readonly error: { code: number; message: string } }

/** Encodes it. `state` is echoed exactly, if the request had one. */
export function encodeAnswer({ id, state }: Fields, answered: Answered): string {
  return JSON.stringify({ jsonrpc: '2.0', id, ...(state !== undefined && { state }), ...answered })
}

/** Since 2025-06-18 a header repeats the version. */
export function headersOf(version: string): Readonly<Record<string, string>> {
  return {
    'Content-Type': 'application/json',
    Accept: 'application/json, text/event-stream',
    ...(version >= '2025-06-18' && { 'MCP-Protocol-Version': version }),
  }
}

export function metaOf(call: Envelope): Fields {
  return { ...(call.progressToken !== undefined && { progressToken: call.progressToken }), ...call.trace }
}

export function withMeta(params: Fields, meta: Fields): Fields {
  return Object.keys(meta).length === 0 ? params : { ...params, _meta: meta }
}
