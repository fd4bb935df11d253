/** Converts the replies and errors of our callbacks: to results and errors of the official package. */

import { ProtocolError, ProtocolErrorCode } from '@modelcontextprotocol/server'
import type { RondoError } from '../errors.ts'
import { type Reply, toTaskHead, toTaskResult } from '../protocol/reply.ts'
import { errorResult } from '../tool/target.ts'
import type { Intercepted } from './intercept.ts'

type SdkResult = Readonly<Record<string, unknown>>

/** The value that a callback returns if the intercepted request has its own ending. */
const DROPPED: SdkResult = errorResult('')

/** Converts a reply to an official result. Throws the error of an error reply. */
export function toResult(reply: Reply, intercepted?: Intercepted): SdkResult {
  switch (reply.kind) {
    case 'complete':
    case 'cacheable':
      return reply.result
    case 'input_required':
      return toInputRequired(reply)
    case 'task':
      return toTaskResult(reply.task)
    case 'task_created':
      return endAs(intercepted, () => ({ resultType: 'task', ...toTaskHead(reply.task) }))
    case 'error':
      throw reply.error
  }
}

function toInputRequired({
  inputRequests,
  requestState,
}: Extract<Reply, { kind: 'input_required' }>): SdkResult {
  return { resultType: 'input_required', requestState, ...(inputRequests && { inputRequests }) }
}

function endAs(intercepted: Intercepted | undefined, ending: () => unknown): SdkResult {
  if (intercepted) intercepted.ending = ending
  return DROPPED
}

/** The data with which the official check of states refuses one; ours sends the same. */
const INVALID_STATE = { reason: 'invalid_request_state' }

export function toWire({ code, rpc, sentence, data }: RondoError): ProtocolError {
  return new ProtocolError(rpc, sentence, code === 'STATE_INVALID' ? INVALID_STATE : data)
}

/** Ends the request with a JSON-RPC error. */
export function refuse(intercepted: Intercepted, error: RondoError | ProtocolError): SdkResult {
  return endAs(intercepted, () => {
    throw error instanceof ProtocolError ? error : toWire(error)
  })
}

/** For an older client that cannot be asked: a tool result that says so, because its revision has no error for it. */
export function refuseOlder(intercepted: Intercepted, { sentence }: RondoError): SdkResult {
  const advice = 'To be asked, a client needs a connection that stays open.'
  const message = `${sentence} ${advice}`
  if (intercepted.method === 'tools/call') return errorResult(message)
  return refuse(intercepted, new ProtocolError(ProtocolErrorCode.InternalError, message))
}
