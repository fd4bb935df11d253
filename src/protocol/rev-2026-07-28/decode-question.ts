/**
 * The questions of an `input_required` result. A1: a map from keys to elicitation, sampling and roots requests,
 * nothing else; a form may leave its mode out. Gives undefined for anything that is no such map.
 */

import { isRecord } from '../../lib/is-record.ts'
import type { InputRequest, InputRequests } from '../wire.ts'

export function decodeQuestions(value: unknown): InputRequests | undefined {
  if (value === undefined) return {}
  if (!isRecord(value)) return undefined
  const questions: [string, InputRequest][] = []
  for (const [key, entry] of Object.entries(value)) {
    const question = key === '__proto__' ? undefined : decodeQuestion(entry)
    if (question === undefined) return undefined
    questions.push([key, question])
  }
  return Object.fromEntries(questions)
}

/** One request of the server: `method` and `params`, wherever they stood. */
export function decodeQuestion(value: unknown): InputRequest | undefined {
  if (!isRecord(value)) return undefined
  const { method, params } = value
  switch (method) {
    case 'elicitation/create':
      return isRecord(params) ? decodeElicitation(params) : undefined
    case 'sampling/createMessage':
      if (!isRecord(params) || !Array.isArray(params.messages) || typeof params.maxTokens !== 'number') {
        return undefined
      }
      return { method, params: { ...params, messages: params.messages, maxTokens: params.maxTokens } }
    case 'roots/list':
      if (params === undefined) return { method }
      return isRecord(params) ? { method, params } : undefined
    default:
      return undefined
  }
}

function decodeElicitation(params: Readonly<Record<string, unknown>>): InputRequest | undefined {
  const { mode, message, requestedSchema, url } = params
  if (typeof message !== 'string') return undefined
  const method = 'elicitation/create'
  if (mode === undefined || mode === 'form') {
    if (!isRecord(requestedSchema)) return undefined
    return { method, params: { ...params, mode: 'form', message, requestedSchema } }
  }
  if (mode !== 'url' || typeof url !== 'string') return undefined
  return { method, params: { ...params, mode, message, url } }
}
