/**
 * Turns what somebody wrote down as an answer into the response the protocol wants, checked against its question. An
 * answer is `"accept"`, `"decline"`, `"cancel"`, the content of a form, or a whole result object.
 */

import { answerProblem } from '../client/question.ts'
import { checkForm } from '../form/check.ts'
import { readForm } from '../form/read-form.ts'
import { isRecord } from '../lib/is-record.ts'
import type { ElicitContent, ElicitFormParams, InputRequest, InputResponse } from '../protocol/wire.ts'
import { CommandError } from './command-error.ts'

export function responseFor(key: string, question: InputRequest, value: unknown): InputResponse {
  if (question.method !== 'elicitation/create') return whole(key, question, value)
  if (value === 'decline' || value === 'cancel') return { action: value }
  const { params } = question
  if (params.mode === 'url') return value === 'accept' ? { action: 'accept' } : whole(key, question, value)
  if (isResult(value) && value.action !== 'accept') return whole(key, question, value)
  const content = isResult(value) ? value.content : value === 'accept' ? {} : value
  if (!isRecord(content)) throw misfit(key, 'it is neither accept, decline, cancel nor an object')
  return { action: 'accept', content: checkContent(key, params, content) }
}

const RESULT_MEMBERS = new Set(['action', 'content'])

/** A form may have a field named "action" itself; an accepted result always has content. */
function isResult(value: unknown): value is { action: string; content?: unknown } {
  if (!isRecord(value) || !Object.keys(value).every((name) => RESULT_MEMBERS.has(name))) return false
  if (value.action === 'accept') return isRecord(value.content)
  return (value.action === 'decline' || value.action === 'cancel') && value.content === undefined
}

function whole(key: string, question: InputRequest, value: unknown): InputResponse {
  const problem = answerProblem(question, value)
  if (problem !== undefined) throw misfit(key, problem)
  return value as InputResponse
}

function checkContent(
  key: string,
  params: ElicitFormParams,
  content: Record<string, unknown>,
): ElicitContent {
  const { fields } = readForm(params.requestedSchema)
  const names = fields.map(({ name }) => name)
  const strange = Object.keys(content).filter((name) => !names.includes(name))
  if (strange.length > 0) {
    const list = names.length === 0 ? 'it has no fields' : `its fields are ${names.join(', ')}`
    throw misfit(key, `it has no field ${strange.join(', ')}; ${list}`)
  }
  const checked = checkForm(fields, content)
  if (checked.ok) return checked.content as ElicitContent
  throw misfit(key, checked.problems.map(({ message }) => message).join('; '))
}

function misfit(key: string, problem: string): CommandError {
  return new CommandError('answers', `The answer to "${key}" does not fit: ${problem}`)
}
