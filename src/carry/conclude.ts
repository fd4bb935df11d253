/**
 * How a call ends, whatever carries its journal: a result, the tool's own failure, or an error of the runtime.
 */

import { type ErrorCode, isStoreFault, RondoError, ToolError } from '../errors.ts'
import type { Reply } from '../protocol/reply.ts'
import { originOf } from '../replay/failure.ts'
import type { RunReport } from '../replay/outcome.ts'
import type { Finished, Target } from '../tool/target.ts'
import { logFault, logRound, type Round } from './round.ts'

/** The handler returned `value`. */
export function concludeReturned(round: Round, report: RunReport, value: unknown): Reply | Promise<Reply> {
  const completed = (result: Finished): Reply => {
    logRound(round, report, { outcome: result.isError === true ? 'tool_error' : 'complete' })
    return { kind: 'complete', result }
  }
  const failed = (error: unknown): Reply => concludeThrew(round, report, error)
  try {
    const finishing = round.target.finish(value)
    return finishing instanceof Promise ? finishing.then(completed).catch(failed) : completed(finishing)
  } catch (error) {
    return failed(error)
  }
}

/** The handler threw. A `ToolError` was written for the client to read; a `RondoError` ends the call as an error. */
export function concludeThrew(round: Round, report: RunReport, error: unknown): Reply {
  const { host, target } = round
  logRound(round, report, { outcome: 'tool_error' })
  if (error instanceof ToolError) return toFailure(target, error.message)
  if (error instanceof RondoError && error.rpc !== 0) return { kind: 'error', error }
  logFault(round, originOf(error))
  const detail = host.dev ? `: ${error instanceof Error ? error.message : String(error)}` : ''
  return toFailure(target, `${target.name} failed${detail}`)
}

/** What a model can act on: it reads these as a result of the tool. */
const READ_AS_RESULT: ReadonlySet<ErrorCode> = new Set([
  'INPUT_REJECTED',
  'INPUT_FAILED',
  'INPUT_TIMEOUT',
  'LIMIT_PARKED',
])

/** The runtime refuses to go on. Answers that never come or never fit end a tool call as its own failure. */
export function concludeRefused(round: Round, report: RunReport | undefined, error: RondoError): Reply {
  const { host, target } = round
  const authors = error.code.startsWith('REPLAY_')
  logRound(round, report, { outcome: 'refused', code: error.code })
  if (authors || isStoreFault(error)) logFault(round, error)
  if (READ_AS_RESULT.has(error.code)) return toFailure(target, error.sentence)
  return authors && host.dev ? toFailure(target, error.message) : { kind: 'error', error }
}

/** The arguments do not fit the input schema: a model reads that as a result and does better. */
export function concludeArguments(round: Round, problem: string): Reply {
  const { target } = round
  logRound(round, undefined, { outcome: 'tool_error' })
  if (target.method !== 'tools/call') return { kind: 'error', error: new RondoError('PEER_PARAMS', problem) }
  return toFailure(target, `Invalid arguments for ${target.name}: ${problem}`)
}

/**
 * A client of an earlier era cannot be asked. The error for that came later, so it is told as a result, in the same words.
 */
export function concludeUnaskable(target: Target, error: RondoError, why?: string): Reply {
  return toFailure(target, why === undefined ? error.sentence : `${error.sentence} ${why}`)
}

function toFailure(target: Target, message: string): Reply {
  const failure = target.fail(message)
  return 'result' in failure
    ? { kind: 'complete', result: failure.result }
    : { kind: 'error', error: failure.error }
}
