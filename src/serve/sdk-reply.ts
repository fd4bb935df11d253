/**
 * A `Reply` in the official server's words. An error is noted on the passage, which takes it to the wire.
 */

import { type InputRequiredResult, ProtocolError, ProtocolErrorCode } from '@modelcontextprotocol/server'
import type { RondoError } from '../errors.ts'
import type { Reply } from '../protocol/reply.ts'
import { toTaskHead, toTaskResult } from '../protocol/rev-2026-07-28/task-result.ts'
import { errorResult } from '../tool/tool-result.ts'
import type { Passage } from './sdk-mount.ts'

type SdkResult = Readonly<Record<string, unknown>>

export function toResult(reply: Reply): SdkResult {
  switch (reply.kind) {
    case 'complete':
      return reply.result
    case 'input_required':
      return toInputRequired(reply)
    case 'serialized':
      return JSON.parse(reply.json)
    case 'task_created':
      return { resultType: 'task', ...toTaskHead(reply.task) }
    case 'task':
      return toTaskResult(reply.task)
    case 'error':
      throw reply.error
  }
}

function toInputRequired({ inputRequests, requestState }: Extract<Reply, { kind: 'input_required' }>) {
  const result = { resultType: 'input_required', requestState, ...(inputRequests && { inputRequests }) }
  return result as InputRequiredResult & SdkResult
}

/** What their own check of states says when it refuses one; ours says the same. */
const INVALID_STATE = { reason: 'invalid_request_state' }

function toWire({ code, rpc, sentence, data }: RondoError): ProtocolError {
  return new ProtocolError(rpc, sentence, code === 'STATE_INVALID' ? INVALID_STATE : data)
}

/** Ends the request with an error of the protocol; the returned value is dropped on the way. */
export function refuse(passage: Passage, error: RondoError | ProtocolError): SdkResult {
  passage.refusal = error instanceof ProtocolError ? error : toWire(error)
  return errorResult(error.message)
}

/** An older client that cannot be asked, in the words of its revision: a result that says so, where there is one. */
export function refuseOlder(passage: Passage, { sentence }: RondoError): SdkResult {
  const advice = 'Connect with a client that can be asked, over a connection that stays open.'
  const message = `This client cannot be asked: ${sentence}. ${advice}`
  if (passage.method === 'tools/call') return errorResult(message)
  return refuse(passage, new ProtocolError(ProtocolErrorCode.InternalError, message))
}
