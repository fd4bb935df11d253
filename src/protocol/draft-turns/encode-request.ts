/**
 * A leg of a call in turns: the first is a request of 2025-11-25; each later one is a JSON array of responses, each with
 * exactly the state that its request had, and the id of the last event.
 */

import type { Call, FlowCall, RequestId } from '../call.ts'
import { headersOf, encodeRequest as olderRequest } from '../rev-2025-11-25/encode-request.ts'
import type { EncodedRequest } from '../rev-2026-07-28/encode-request.ts'
import { readNote } from './asked-turn.ts'

export function encodeRequest(call: Call): EncodedRequest {
  if (call.kind !== 'flow' || call.requestState === undefined) return olderRequest(call)
  const { last, requests } = readNote(call.requestState)
  const { inputResponses = {} } = call
  const responses = requests.map(({ id, state, ping }) => ({
    jsonrpc: '2.0',
    id,
    ...(state !== undefined && { state }),
    result: ping ? {} : inputResponses[String(id)],
  }))
  const headers = { ...headersOf(call.protocolVersion), 'Last-Event-ID': last }
  return { body: JSON.stringify(responses), headers }
}

/** The id under which the response will come, where that is not the leg's own. */
export function legId(
  call: Pick<Call, 'kind'> & Partial<Pick<FlowCall, 'requestState'>>,
): RequestId | undefined {
  return call.kind === 'flow' && call.requestState !== undefined ? readNote(call.requestState).id : undefined
}
