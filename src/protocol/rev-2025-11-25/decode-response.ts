/**
 * A response to our client in 2025-11-25 and older: a result is always the last word, since questions come as requests of
 * their own. A `resultType` has no meaning here and is not looked at. The one error that asks is `URLElicitationRequired`
 * of 2025-11-25: a round without a state, after which the request is sent as it was.
 */

import { isRecord } from '../../lib/is-record.ts'
import type { Call } from '../call.ts'
import type { WireError } from '../received.ts'
import { decodeQuestion } from '../rev-2026-07-28/decode-question.ts'
import { type Decoded, decodeComplete, decodeError } from '../rev-2026-07-28/decode-response.ts'
import type { InputRequest, InputRequests } from '../wire.ts'
import { decodeWithTasks } from './decode-task.ts'

export function decodeResponse(call: Call, message: unknown): Decoded {
  return decodeWithTasks(call, message, decodePlain)
}

function decodePlain(call: Call, message: unknown): Decoded {
  const outcome = decodeOutcome(message)
  if (outcome.kind === 'complete') return decodeComplete(call, outcome.result)
  const visits = outcome.kind === 'error' ? visitsIn(call, outcome.error) : undefined
  return visits ? { kind: 'input_required', questions: visits } : outcome
}

const URL_ELICITATION_REQUIRED = -32042

/** The URLs that have to be visited before the request is sent again; undefined for any other error. */
function visitsIn(call: Call, { code, data }: WireError): InputRequests | undefined {
  const asks = call.kind === 'flow' && isRecord(call.capabilities.elicitation?.url)
  const list = isRecord(data) ? data.elicitations : undefined
  if (code !== URL_ELICITATION_REQUIRED || !asks || !Array.isArray(list) || list.length === 0)
    return undefined
  const visits = list.map((params) => decodeQuestion({ method: 'elicitation/create', params }))
  if (visits.some((one) => one?.method !== 'elicitation/create' || one.params.mode !== 'url'))
    return undefined
  return Object.fromEntries(visits.map((one, index) => [`url-${index + 1}`, one as InputRequest]))
}

/** The same for a request whose result has no fields of its own to check. */
export function decodeOutcome(message: unknown): Decoded {
  if (!isRecord(message) || message.jsonrpc !== '2.0') return invalid('it is not a JSON-RPC message')
  if (message.error !== undefined) return decodeError(message.error)
  return isRecord(message.result)
    ? { kind: 'complete', result: message.result }
    : invalid('it has neither a result nor an error')
}

function invalid(problem: string): Decoded {
  return { kind: 'invalid', problem }
}
