/**
 * What a client can be asked, and which answers fit which question. The check is about shape: that an accepted form has
 * content of plain values, that a model's reply has a role. Whether content satisfies the requested schema is for the
 * form in front of the person, and for the server, which asks again.
 */

import { isRecord } from '../lib/is-record.ts'
import type { ClientCapabilities, InputRequest, InputResponse } from '../protocol/wire.ts'

export type QuestionKind = 'form' | 'url' | 'sampling' | 'roots'

export const QUESTION_KINDS: readonly QuestionKind[] = ['form', 'url', 'sampling', 'roots']

export function kindOf(question: InputRequest): QuestionKind {
  switch (question.method) {
    case 'elicitation/create':
      return question.params.mode
    case 'sampling/createMessage':
      return 'sampling'
    case 'roots/list':
      return 'roots'
  }
}

/** The capabilities that let a server ask exactly these kinds. */
export function capabilitiesFor(kinds: ReadonlySet<QuestionKind>): ClientCapabilities {
  const form = kinds.has('form') && { form: {} }
  const url = kinds.has('url') && { url: {} }
  return {
    ...((form || url) && { elicitation: { ...form, ...url } }),
    ...(kinds.has('sampling') && { sampling: {} }),
    ...(kinds.has('roots') && { roots: {} }),
  }
}

/** What is wrong with an answer, or undefined. */
export function answerProblem(question: InputRequest, answer: unknown): string | undefined {
  if (!isRecord(answer)) return 'it is not a result object'
  switch (kindOf(question)) {
    case 'form':
      return elicitProblem(answer, true)
    case 'url':
      return elicitProblem(answer, false)
    case 'sampling':
      return samplingProblem(answer)
    case 'roots':
      return rootsProblem(answer)
  }
}

/** An answer that was checked. */
export function isAnswerTo(question: InputRequest, answer: unknown): answer is InputResponse {
  return answerProblem(question, answer) === undefined
}

const ACTIONS = new Set<unknown>(['accept', 'decline', 'cancel'])

function elicitProblem(answer: Record<string, unknown>, form: boolean): string | undefined {
  const { action, content } = answer
  if (!ACTIONS.has(action)) return 'its action is not accept, decline or cancel'
  if (!form || action !== 'accept')
    return content === undefined ? undefined : 'only an accepted form has content'
  if (!isRecord(content)) return 'an accepted form needs content'
  const bad = Object.entries(content).find(([, value]) => !isPlain(value))
  return bad && `"${bad[0]}" is not a string, number, boolean or list of strings`
}

function isPlain(value: unknown): boolean {
  if (Array.isArray(value)) return value.every((item) => typeof item === 'string')
  return typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value)
}

function samplingProblem(answer: Record<string, unknown>): string | undefined {
  const { role, content, model } = answer
  if (role !== 'user' && role !== 'assistant') return 'its role is not user or assistant'
  if (typeof content !== 'object' || content === null) return 'it has no content'
  return typeof model === 'string' ? undefined : 'it does not name its model'
}

function rootsProblem(answer: Record<string, unknown>): string | undefined {
  const { roots } = answer
  const good = Array.isArray(roots) && roots.every((root) => isRecord(root) && typeof root.uri === 'string')
  return good ? undefined : 'it is not a list of roots'
}
