/**
 * Looks at what a server asks before anybody else does (T22): is it too much, can we answer it, is a URL safe to open?
 * Gives the questions with their visible texts cleaned; keys, enum values and the state are echoed later and stay as
 * they are.
 */

import { RondoError } from '../errors.ts'
import { displayText } from '../form/clean-text.ts'
import { isRecord } from '../lib/is-record.ts'
import type { InputRequest, InputRequests, JsonSchema } from '../protocol/wire.ts'
import type { Limits } from './limits.ts'
import { measureJson } from './measure-json.ts'
import { kindOf, type QuestionKind } from './question.ts'
import { inspectLink } from './safe-link.ts'

export interface AskedRound {
  readonly questions: InputRequests
  readonly state?: string
}

/** Where a handler of the kind belongs. */
const HANDLERS: Readonly<Record<QuestionKind, string>> = {
  form: 'answers.elicitation.form',
  url: 'answers.elicitation.url',
  sampling: 'answers.sampling',
  roots: 'answers.roots',
}

export function vetRound(
  asked: AskedRound,
  limits: Limits,
  answerable: ReadonlySet<QuestionKind>,
): InputRequests {
  checkSize(asked, limits)
  const entries = Object.entries(asked.questions)
  for (const [key, question] of entries) {
    const kind = kindOf(question)
    if (!answerable.has(kind)) {
      const missing = `The server asks "${key}" (${kind}), and there is no ${HANDLERS[kind]} to answer it`
      throw new RondoError('INPUT_NO_HANDLER', missing)
    }
  }
  return Object.fromEntries(entries.map(([key, question]) => [key, cleanQuestion(key, question)]))
}

function checkSize({ questions, state = '' }: AskedRound, limits: Limits): void {
  const bytes = state.length * 3 <= limits.maxStateBytes ? 0 : new TextEncoder().encode(state).byteLength
  if (bytes > limits.maxStateBytes) {
    throw new RondoError(
      'LIMIT_CLIENT_STATE',
      `requestState has ${bytes} bytes, more than ${limits.maxStateBytes}`,
    )
  }
  const count = Object.keys(questions).length
  if (count > limits.maxQuestions) {
    throw new RondoError('LIMIT_CLIENT_QUESTIONS', `The server asks ${count} questions at once`)
  }
  if (measureJson(questions, limits.maxQuestionSize) > limits.maxQuestionSize) {
    throw new RondoError('LIMIT_CLIENT_QUESTIONS', 'The questions of this round are too big')
  }
}

function cleanQuestion(key: string, question: InputRequest): InputRequest {
  if (question.method !== 'elicitation/create') return question
  const { method, params } = question
  const message = displayText(params.message)
  if (params.mode === 'form') {
    return { method, params: { ...params, message, requestedSchema: cleanSchema(params.requestedSchema) } }
  }
  const link = inspectLink(params.url)
  if (link === undefined) {
    throw new RondoError(
      'PEER_LINK',
      `The server asks "${key}" to open a URL that is neither https nor on this machine`,
    )
  }
  return { method, params: { ...params, message, url: link.url } }
}

const VISIBLE = new Set(['title', 'description', 'enumNames'])

/** Cleans titles and descriptions. Below `properties` the names are the server's and not keywords. */
function cleanSchema(schema: JsonSchema): JsonSchema {
  return Object.fromEntries(
    Object.entries(schema).map(([keyword, value]) => [keyword, cleanKeyword(keyword, value)]),
  )
}

function cleanKeyword(keyword: string, value: unknown): unknown {
  if (VISIBLE.has(keyword)) return cleanText(value)
  if (keyword === 'properties' && isRecord(value)) {
    return Object.fromEntries(
      Object.entries(value).map(([name, child]) => [name, isRecord(child) ? cleanSchema(child) : child]),
    )
  }
  if (keyword === 'items' && isRecord(value)) return cleanSchema(value)
  if ((keyword === 'oneOf' || keyword === 'anyOf') && Array.isArray(value)) {
    return value.map((child) => (isRecord(child) ? cleanSchema(child) : child))
  }
  return value
}

function cleanText(value: unknown): unknown {
  if (typeof value === 'string') return displayText(value)
  return Array.isArray(value) ? value.map(cleanText) : value
}
