/**
 * Takes what a person typed or picked and gives the value that is sent, or a sentence that says what to change.
 *
 * Controls give text for nearly everything, so text is read as the field wants it: numbers, yes and no, the value or the
 * title of a choice, a list with commas. An empty input leaves an optional field out; in a required text field it is
 * the empty text, which the schema may allow. Defaults are for prefilling (`startValues`): what a person cleared stays
 * cleared.
 */

import type { Field, FieldOption, FieldValue } from './field.ts'
import { type FieldProblem, findOption, judgeValue, sayRequired } from './judge.ts'

export type CheckedField =
  /** No value: the field is left out of the answer. */
  | { readonly ok: true; readonly value: FieldValue | undefined }
  | { readonly ok: false; readonly message: string }

export type CheckedForm =
  | { readonly ok: true; readonly content: Record<string, FieldValue> }
  | { readonly ok: false; readonly problems: readonly FieldProblem[] }

/** Checks one field: a text as typed, or a value that is of the right type already. */
export function checkField(field: Field, input: unknown): CheckedField {
  const value = coerce(field, input)
  if (value === undefined || value === null) {
    return field.required ? { ok: false, message: sayRequired(field) } : { ok: true, value: undefined }
  }
  const message = judgeValue(field, value)
  return message === undefined ? { ok: true, value: value as FieldValue } : { ok: false, message }
}

/** Checks all fields by name. What no field asks for is left out. */
export function checkForm(fields: readonly Field[], values: Readonly<Record<string, unknown>>): CheckedForm {
  const content: [string, FieldValue][] = []
  const problems: FieldProblem[] = []
  for (const field of fields) {
    const checked = checkField(field, Object.hasOwn(values, field.name) ? values[field.name] : undefined)
    if (!checked.ok) problems.push({ name: field.name, message: checked.message })
    else if (checked.value !== undefined) content.push([field.name, checked.value])
  }
  return problems.length > 0 ? { ok: false, problems } : { ok: true, content: Object.fromEntries(content) }
}

/** What a form shows before anybody has typed: the defaults by name. */
export function startValues(fields: readonly Field[]): Record<string, FieldValue> {
  return Object.fromEntries(
    fields.flatMap((field) => (field.default === undefined ? [] : [[field.name, field.default]])),
  )
}

/** The value that was meant, or the input as it is if it cannot be read: judging it then gives the message. */
function coerce(field: Field, input: unknown): unknown {
  if (Array.isArray(input)) return field.type === 'choices' ? readChoices(field, input) : input
  if (typeof input !== 'string') return input
  const text = input.trim()
  if (field.type === 'text') return readText(field, input, text)
  if (text === '') return field.type === 'choices' && field.required ? [] : undefined
  switch (field.type) {
    case 'number':
    case 'integer':
      return readNumber(field, text)
    case 'boolean':
      return readBoolean(text)
    case 'choice':
      return findTyped(field, input)?.value ?? input
    case 'choices':
      return readChoices(field, findTyped(field, input) === undefined ? text.split(',') : [input])
  }
}

function readText(field: Field, input: string, text: string): string | undefined {
  if (input === '' && !field.required) return undefined
  if (field.format === undefined) return input
  if (text === '') return undefined
  // A date and time as people write it: with a blank between, without seconds.
  if (field.format !== 'date-time') return text
  return text.replace(/^(\S{10})\s+(?=\d)/, '$1T').replace(/^(\S{10}T\d{2}:\d{2})(?=[Zz+-])/, '$1:00')
}

function readNumber(field: Field, text: string): unknown {
  const value = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,3})?$/i.test(text) ? Number(text) : Number.NaN
  // A whole number that cannot be told from its neighbours is not the one that was typed.
  return field.type === 'integer' && Number.isInteger(value) && !Number.isSafeInteger(value)
    ? Number.NaN
    : value
}

const YES = new Set(['yes', 'y', 'true', 'on', '1'])
const NO = new Set(['no', 'n', 'false', 'off', '0'])

function readBoolean(text: string): unknown {
  const word = text.toLowerCase()
  if (YES.has(word)) return true
  return NO.has(word) ? false : text
}

function readChoices(field: Field, inputs: readonly unknown[]): unknown[] {
  const values = inputs.map((input) =>
    typeof input === 'string' ? (findTyped(field, input)?.value ?? input.trim()) : input,
  )
  return [...new Set(values)]
}

/** As `findOption` has it, else by what matches one option only but for case. */
function findTyped(field: Field, input: string): FieldOption | undefined {
  const exact = findOption(field, input)
  if (exact !== undefined) return exact
  const word = input.trim().toLowerCase()
  const near = (field.options ?? []).filter(
    ({ value, title }) => value.toLowerCase() === word || title.toLowerCase() === word,
  )
  return near.length === 1 ? near[0] : undefined
}
