/**
 * A response to our client in 2025-11-25 and older: a result is always the last word, since questions come as requests of
 * their own. A `resultType` has no meaning here and is not looked at.
 */

import { isRecord } from '../../lib/is-record.ts'
import type { Call } from '../call.ts'
import { type Decoded, decodeComplete, decodeError } from '../rev-2026-07-28/decode-response.ts'
import { decodeWithTasks } from './decode-task.ts'

export function decodeResponse(call: Call, message: unknown): Decoded {
  return decodeWithTasks(call, message, decodePlain)
}

function decodePlain(call: Call, message: unknown): Decoded {
  const outcome = decodeOutcome(message)
  return outcome.kind === 'complete' ? decodeComplete(call, outcome.result) : outcome
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
