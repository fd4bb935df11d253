/**
 * A JSON-RPC response to our client as `Received`, or the reason why it is none.
 *
 * A4: a result without `resultType` is complete. A6: `input_required` is valid for calls, prompts and resources only;
 * elsewhere, and with any type this client does not know, the response is invalid. A3: at least one of questions and
 * state, and the state is a string. A task is valid for tool calls that said they can follow one, and nowhere else.
 */

import { isRecord } from '../../lib/is-record.ts'
import type { Call } from '../call.ts'
import type { Received } from '../received.ts'
import { followsTasks } from '../task.ts'
import { decodeQuestions } from './decode-question.ts'
import { decodeFlowResult } from './decode-result.ts'
import { decodeTask } from './decode-task.ts'

export type Decoded = Received | { readonly kind: 'invalid'; readonly problem: string }

export function decodeResponse(call: Call, message: unknown): Decoded {
  if (!isRecord(message) || message.jsonrpc !== '2.0') return invalid('it is not a JSON-RPC message')
  if (message.error !== undefined) return decodeError(message.error)
  if (!isRecord(message.result)) return invalid('it has neither a result nor an error')
  const { result } = message
  switch (result.resultType) {
    case undefined:
    case 'complete':
      return decodeComplete(call, result)
    case 'input_required':
      return call.kind === 'flow' ? decodeInputRequired(result) : invalid('only calls may ask for input')
    case 'task':
      return decodeCreated(call, result)
    default:
      return invalid(`its resultType ${JSON.stringify(result.resultType)} is not known`)
  }
}

function decodeCreated(call: Call, result: Readonly<Record<string, unknown>>): Decoded {
  if (call.kind !== 'flow' || call.method !== 'tools/call') return invalid('only tool calls may become tasks')
  if (!followsTasks(call.capabilities)) return invalid('it is a task, which this request did not allow')
  const task = decodeTask(result, 'head')
  return task === undefined ? invalid('it lacks what a task has') : { kind: 'task', task }
}

/** A result that is the last word. */
export function decodeComplete(call: Call, result: Readonly<Record<string, unknown>>): Decoded {
  if (call.kind === 'task' && call.action === 'get') {
    const task = decodeTask(result, 'whole')
    return task?.taskId === call.taskId
      ? { kind: 'task', task }
      : invalid('it is not the task that was asked for')
  }
  if (call.kind !== 'flow') return { kind: 'complete', result }
  const checked = decodeFlowResult(call.method, result)
  return checked === undefined
    ? invalid(`it lacks what ${call.method} gives`)
    : { kind: 'complete', result: checked }
}

function decodeInputRequired(result: Readonly<Record<string, unknown>>): Decoded {
  const questions = decodeQuestions(result.inputRequests)
  const state = result.requestState
  if (questions === undefined) return invalid('inputRequests is not a map of requests a client knows')
  if (state !== undefined && typeof state !== 'string') return invalid('requestState is not a string')
  if (state === undefined && Object.keys(questions).length === 0) {
    return invalid('it has neither inputRequests nor requestState')
  }
  return { kind: 'input_required', questions, ...(state !== undefined && { state }) }
}

export function decodeError(error: unknown): Decoded {
  if (!isRecord(error) || !Number.isInteger(error.code) || typeof error.message !== 'string') {
    return invalid('its error has no integer code or no message')
  }
  const { code, message, data } = error
  return { kind: 'error', error: { code: Number(code), message, ...(data !== undefined && { data }) } }
}

function invalid(problem: string): Decoded {
  return { kind: 'invalid', problem }
}
