/**
 * What a call that fails comes to: the reply to its client, the outcome in the round's log line, and the fault that an
 * author or operator has to see. It decides and logs nothing itself.
 *
 * A model can act on some errors, so a tool call returns those as a result with `isError`. Everything else is a JSON-RPC
 * error.
 */

import { type ErrorCode, isStoreFault, RondoError, ToolError } from '../errors.ts'
import type { Reply } from '../protocol/reply.ts'
import { originOf } from '../replay/work.ts'
import type { Target } from '../tool/target.ts'
import type { LogPlace } from './host.ts'

/** Where errors were thrown, for the line that reports them. */
const places = new WeakMap<object, LogPlace>()

/** Notes the round in which an error was thrown. The innermost one counts. */
export function blame(error: unknown, place: LogPlace): void {
  if (typeof error === 'object' && error !== null && !places.has(error)) places.set(error, place)
}

export function placeOfError(error: unknown): LogPlace {
  return (typeof error === 'object' && error !== null && places.get(error)) || {}
}

export const STORE_FAILED = 'A request failed because the store failed'

export interface Failure {
  readonly reply: Reply
  readonly outcome: 'tool_error' | 'refused'
  /** The code of a refusal. */
  readonly code?: ErrorCode
  readonly fault?: { readonly error: unknown }
}

/** The handler threw. A `ToolError` was written for the client to read; a `RondoError` ends the call as an error. */
export function thrown(target: Target, error: unknown, dev: boolean): Failure {
  const outcome = 'tool_error'
  if (error instanceof ToolError) return { outcome, reply: toFailure(target, error.message) }
  if (error instanceof RondoError && error.rpc !== 0) return { outcome, reply: { kind: 'error', error } }
  const detail = dev ? `: ${error instanceof Error ? error.message : String(error)}` : ''
  return {
    outcome,
    reply: toFailure(target, `${target.name} failed${detail}`),
    fault: { error: originOf(error) },
  }
}

/** Errors that a model can act on. */
const READ_AS_RESULT: ReadonlySet<ErrorCode> = new Set([
  'INPUT_REJECTED',
  'INPUT_FAILED',
  'INPUT_TIMEOUT',
  'LIMIT_PARKED',
  'LIMIT_SLEEP',
])

/** The runtime refuses to continue. Answers that never arrive or never fit end a tool call as its own failure. */
export function refusal(target: Target, error: RondoError, dev: boolean): Failure {
  const { code } = error
  const isAuthors = code.startsWith('REPLAY_')
  const fault = isAuthors || isStoreFault(error) ? { error } : undefined
  const failure = { outcome: 'refused', code, fault } as const
  if (READ_AS_RESULT.has(code)) return { ...failure, reply: toFailure(target, error.sentence) }
  if (isAuthors && dev) return { ...failure, reply: toFailure(target, error.message) }
  return { ...failure, reply: { kind: 'error', error } }
}

/** The arguments do not match the input schema: a model reads that as a result and corrects them. */
export function invalidArguments(target: Target, problem: string): Failure {
  const outcome = 'tool_error'
  if (target.method === 'tools/call')
    return { outcome, reply: toFailure(target, `Invalid arguments for ${target.name}: ${problem}`) }
  return { outcome, reply: { kind: 'error', error: new RondoError('PEER_PARAMS', problem) } }
}

/** A client of an earlier era that cannot be asked gets the reason as a result: its revision has no error for it. */
export function unaskableReply(target: Target, error: RondoError, why?: string): Reply {
  return toFailure(target, why === undefined ? error.sentence : `${error.sentence} ${why}`)
}

function toFailure(target: Target, message: string): Reply {
  const failure = target.fail(message)
  return 'result' in failure
    ? { kind: 'complete', result: failure.result }
    : { kind: 'error', error: failure.error }
}
