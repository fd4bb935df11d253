/**
 * Reads answers from a command line: `key.field=value`, `key=accept|decline|cancel`, `key:=json`. Where one question is
 * open, `field=value` is enough; where a form has one field, `key=value`.
 */

import { openQuestions, type PendingCall } from '../client/pending.ts'
import { readForm } from '../form/read-form.ts'
import type { InputRequest, InputResponse } from '../protocol/wire.ts'
import { CommandError, usageError } from './command-error.ts'
import { responseFor } from './response-for.ts'
import { splitWord } from './typed-args.ts'

export function readAnswerWords(words: readonly string[], pending: PendingCall): Map<string, InputResponse> {
  const given = new Map<string, unknown>()
  for (const word of words) {
    const { name, text, json } = splitWord(word)
    const { key, field } = place(name, json ? undefined : text, pending)
    if (field === undefined) given.set(key, json ? parseJson(name, text) : text)
    else addField(given, key, field, json ? parseJson(name, text) : text)
  }
  return new Map([...given].map(([key, value]) => [key, responseFor(key, questionOf(pending, key), value)]))
}

/** The keys that a no or a dismissal is for: those named, or all that are open. */
export function readKeys(words: readonly string[], pending: PendingCall): string[] {
  for (const key of words) questionOf(pending, key)
  return words.length > 0 ? [...words] : openQuestions(pending).map(([key]) => key)
}

const ACTIONS = new Set<string | undefined>(['accept', 'decline', 'cancel', undefined])

/** What a word is for. `text` is its value, unless that is JSON. */
function place(
  name: string,
  text: string | undefined,
  pending: PendingCall,
): { key: string; field?: string } {
  const keys = Object.keys(pending.questions).sort((a, b) => b.length - a.length)
  const key = keys.find((one) => name === one || name.startsWith(`${one}.`))
  if (key !== undefined && name !== key) return { key, field: name.slice(key.length + 1) }
  if (key !== undefined)
    return ACTIONS.has(text) ? { key } : { key, field: onlyField(questionOf(pending, key)) }
  const [only, ...others] = openQuestions(pending)
  if (only !== undefined && others.length === 0) return { key: only[0], field: name }
  throw new CommandError(
    'answers',
    `"${name}" is no question of this call; it asks ${keys.join(', ') || 'nothing'}`,
  )
}

function onlyField(question: InputRequest): string | undefined {
  if (question.method !== 'elicitation/create' || question.params.mode !== 'form') return undefined
  const { fields } = readForm(question.params.requestedSchema)
  return fields.length === 1 ? fields[0]?.name : undefined
}

function questionOf(pending: PendingCall, key: string): InputRequest {
  const question = Object.hasOwn(pending.questions, key) ? pending.questions[key] : undefined
  if (question === undefined) throw new CommandError('answers', `The server did not ask "${key}"`)
  return question
}

/** A field given twice is a list, as a choice of several is. */
function addField(given: Map<string, unknown>, key: string, field: string, value: unknown): void {
  const old = given.get(key)
  const content = new Map<string, unknown>(typeof old === 'object' && old !== null ? Object.entries(old) : [])
  const before = content.get(field)
  content.set(field, before === undefined ? value : [before, value].flat())
  given.set(key, Object.fromEntries(content))
}

function parseJson(name: string, text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw usageError(`The value of ${name} is not JSON: ${text}`)
  }
}
