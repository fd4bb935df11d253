/**
 * Answers by key: content to accept with, a refusal, or a function that looks at the question first.
 */

import type { InputRequest } from '../protocol/wire.ts'

type Refusal = { readonly action: 'decline' | 'cancel' }

/** The user says no. */
export const decline: Refusal = { action: 'decline' }
/** The user dismisses the question. */
export const cancel: Refusal = { action: 'cancel' }

export type ScriptedAnswer =
  | Readonly<Record<string, unknown>>
  | ((question: InputRequest) => Readonly<Record<string, unknown>>)
export type Script = Readonly<Record<string, ScriptedAnswer>>

/** The bare result object for a question. Content of a form becomes an accept; anything else goes as it is. */
export function toResponse(
  request: InputRequest,
  scripted: ScriptedAnswer,
): Readonly<Record<string, unknown>> {
  const answer = typeof scripted === 'function' ? scripted(request) : scripted
  if (answer === decline || answer === cancel) return answer
  if (request.method !== 'elicitation/create') return answer
  return request.params.mode === 'url' ? { action: 'accept' } : { action: 'accept', content: answer }
}
