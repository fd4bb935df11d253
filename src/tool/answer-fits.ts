/**
 * Whether an answer is of any use for a question, as far as the question itself says. What an author's own schema wants
 * beyond that is found out when the handler runs.
 */

import { judgeContent } from '../form/judge.ts'
import { readForm } from '../form/read-form.ts'
import { isRecord } from '../lib/is-record.ts'
import type { InputRequest } from '../protocol/wire.ts'

export function answerFits(request: InputRequest, answer: unknown): boolean {
  if (!isRecord(answer)) return false
  if (request.method === 'roots/list') return Array.isArray(answer.roots)
  if (request.method === 'sampling/createMessage') return typeof answer.role === 'string'
  const { action, content } = answer
  if (action === 'decline' || action === 'cancel') return true
  if (action !== 'accept') return false
  const { params } = request
  return params.mode === 'url' || judgeContent(readForm(params.requestedSchema).fields, content).ok
}
