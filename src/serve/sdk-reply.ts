/**
 * A `Reply` in the official server's words. What they would not let through is noted on the passage, which takes it to
 * the wire.
 */

import { ProtocolError, ProtocolErrorCode } from '@modelcontextprotocol/server'
import type { RondoError } from '../errors.ts'
import type { Reply } from '../protocol/reply.ts'
import { toTaskHead, toTaskResult } from '../protocol/rev-2026-07-28/task-result.ts'
import { errorResult } from '../tool/tool-result.ts'
import type { Passage } from './sdk-mount.ts'

type SdkResult = Readonly<Record<string, unknown>>

/** What a callback returns where the passage knows better. */
const DROPPED: SdkResult = errorResult('')

/** Throws the error of a reply that is one. */
export function toResult(reply: Reply, passage?: Passage): SdkResult {
  switch (reply.kind) {
    case 'complete':
      return reply.result
    case 'input_required':
      return toInputRequired(reply)
    case 'serialized':
      return JSON.parse(reply.json)
    case 'task':
      return toTaskResult(reply.task)
    case 'task_created':
      return endAs(passage, () => ({ resultType: 'task', ...toTaskHead(reply.task) }))
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

function endAs(passage: Passage | undefined, ending: () => unknown): SdkResult {
  if (passage) passage.ending = ending
  return DROPPED
}

/** What their own check of states says when it refuses one; ours says the same. */
const INVALID_STATE = { reason: 'invalid_request_state' }

export function toWire({ code, rpc, sentence, data }: RondoError): ProtocolError {
  return new ProtocolError(rpc, sentence, code === 'STATE_INVALID' ? INVALID_STATE : data)
}

/** Ends the request with an error of the protocol. */
export function refuse(passage: Passage, error: RondoError | ProtocolError): SdkResult {
  return endAs(passage, () => {
    throw error instanceof ProtocolError ? error : toWire(error)
  })
}

/** An older client that cannot be asked, in the words of its revision: a result that says so, where there is one. */
export function refuseOlder(passage: Passage, { sentence }: RondoError): SdkResult {
  const advice = 'A client that can be asked needs a connection that stays open.'
  const message = `${sentence} ${advice}`
  if (passage.method === 'tools/call') return errorResult(message)
  return refuse(passage, new ProtocolError(ProtocolErrorCode.InternalError, message))
}
