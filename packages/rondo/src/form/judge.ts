/**
 * Checks what a person answers. `judgeContent` checks values as they are sent, and converts nothing but the spelling of choices;
 * `checkForm` reads what a person typed or picked. Messages are sentences for that person.
 *
 * Controls return text for nearly everything, so typed text is read as the field needs it: numbers, yes and no, the value
 * or the title of a choice, a list with commas. An empty input leaves an optional field out; in a required text field it is
 * the empty text, which the schema may allow. Defaults only prefill (`startValues`): what a person cleared stays cleared.
 */

import { type Field, type FieldOption, type FieldValue, FORMATS, listOptions } from './field.ts'

export interface FieldProblem {
  /** The name of the field. */
  readonly name: string
  readonly message: string
}

export type CheckedField =
  /** No value: the field is left out of the answer. */
  | { readonly ok: true; readonly value: FieldValue | undefined }
  | { readonly ok: false; readonly message: string }

export type CheckedForm =
  | { readonly ok: true; readonly content: Record<string, FieldValue> }
  | { readonly ok: false; readonly problems: readonly FieldProblem[] }

/**
 * The value in the spelling that is expected: a choice by its value if its title came, a list if a host sent a text. Anything
 * else, and anything ambiguous, stays as it is.
 */
export function normalizeValue(field: Field, value: unknown): unknown {
  if (field.type === 'choice') return typeof value === 'string' ? toOptionValue(field, value) : value
  if (field.type !== 'choices') return value
  if (typeof value === 'string') return splitChoices(field, value) ?? value
  if (!Array.isArray(value)) return value
  return value.map((one) => (typeof one === 'string' ? toOptionValue(field, one) : one))
}

function toOptionValue(field: Field, text: string): string {
  return findOption(field, text)?.value ?? text
}

/** The option with this value, else the only one with this title; surrounding white space does not count. */
function findOption({ options = [] }: Field, text: string): FieldOption | undefined {
  const find = (wanted: string): FieldOption | undefined => {
    const titled = options.filter(({ title }) => title === wanted)
    return options.find(({ value }) => value === wanted) ?? (titled.length === 1 ? titled[0] : undefined)
  }
  return find(text) ?? find(text.trim())
}

/** Reads a JSON array, one choice, or several separated by commas; undefined unless every part is a choice. */
function splitChoices(field: Field, text: string): string[] | undefined {
  const one = findOption(field, text)
  if (one !== undefined) return [one.value]
  const parts = parseList(text) ?? text.split(',')
  if (parts.length > (field.options?.length ?? 0)) return undefined
  const found = parts.map((part) => (typeof part === 'string' ? findOption(field, part)?.value : undefined))
  return found.every((value) => value !== undefined) ? [...new Set(found)] : undefined
}

function parseList(text: string): unknown[] | undefined {
  if (!text.trimStart().startsWith('[')) return undefined
  try {
    const list: unknown = JSON.parse(text)
    return Array.isArray(list) ? list : undefined
  } catch {
    return undefined
  }
}

/** Returns what is wrong with the value, or undefined. Converts nothing: the text "5" is not a number. */
export function judgeValue(field: Field, value: unknown): string | undefined {
  const complaint = findComplaint(field, value)
  return complaint === undefined ? undefined : `${field.title} ${complaint}`
}

/**
 * Checks a whole answer, after `normalizeValue`. A field that is missing or null is not answered, which is a problem only if
 * it is required. Content that no field asks for is dropped.
 */
export function judgeContent(fields: readonly Field[], answer: unknown): CheckedForm {
  const given = typeof answer === 'object' && answer !== null ? (answer as Record<string, unknown>) : {}
  // `readForm` accepts no unsafe name.
  const content: Record<string, FieldValue> = {}
  const problems: FieldProblem[] = []
  for (const field of fields) {
    const value = Object.hasOwn(given, field.name) ? normalizeValue(field, given[field.name]) : undefined
    if (value === undefined || value === null) {
      if (field.required) problems.push({ name: field.name, message: sayRequired(field) })
      continue
    }
    const message = judgeValue(field, value)
    if (message === undefined) content[field.name] = value as FieldValue
    else problems.push({ name: field.name, message })
  }
  return problems.length > 0 ? { ok: false, problems } : { ok: true, content }
}

function sayRequired(field: Field): string {
  return `${field.title} is required`
}

function findComplaint(field: Field, value: unknown): string | undefined {
  switch (field.type) {
    case 'text':
      return typeof value === 'string' ? judgeText(field, value) : 'must be a text'
    case 'number':
    case 'integer':
      return judgeNumber(field, value)
    case 'boolean':
      return typeof value === 'boolean' ? undefined : 'must be answered with yes or no'
    case 'choice':
      return isOption(field, value) ? undefined : `must be one of: ${listOptions(field)}`
    case 'choices':
      return judgeChoices(field, value)
  }
}

function judgeText({ limits, format }: Field, value: string): string | undefined {
  // A text within the limit in UTF-16 units is within it in characters, too.
  const units = value.length
  const length = units > (limits.max ?? units) || limits.min !== undefined ? countCharacters(value) : units
  if (limits.min !== undefined && length < limits.min)
    return `must have at least ${count(limits.min, 'character')}`
  if (limits.max !== undefined && length > limits.max)
    return `must have at most ${count(limits.max, 'character')}`
  if (format !== undefined && !FORMATS[format].test(value)) return `must be ${FORMATS[format].wanted}`
  return undefined
}

function judgeNumber({ type, limits }: Field, value: unknown): string | undefined {
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    return type === 'integer' ? 'must be a whole number' : 'must be a number'
  }
  if (type === 'integer' && !Number.isInteger(value)) return 'must be a whole number'
  if (limits.min !== undefined && value < limits.min) return `must be at least ${limits.min}`
  if (limits.max !== undefined && value > limits.max) return `must be at most ${limits.max}`
  return undefined
}

function judgeChoices(field: Field, value: unknown): string | undefined {
  const { limits } = field
  if (!Array.isArray(value)) return `must be a list of these: ${listOptions(field)}`
  if (limits.max !== undefined && value.length > limits.max)
    return `takes at most ${count(limits.max, 'choice')}`
  if (value.length > (field.options?.length ?? 0)) return 'has a choice more than once'
  if (limits.min !== undefined && value.length < limits.min)
    return `needs at least ${count(limits.min, 'choice')}`
  if (!value.every((one) => isOption(field, one))) return `must be chosen from: ${listOptions(field)}`
  return undefined
}

function isOption(field: Field, value: unknown): boolean {
  return field.options?.some((option) => option.value === value) ?? false
}

/** Characters as a reader counts them, not UTF-16 units. */
export function countCharacters(text: string): number {
  let length = 0
  for (const _ of text) length++
  return length
}

function count(n: number, word: string): string {
  return `${n} ${word}${n === 1 ? '' : 's'}`
}

/**
 * Checks one field of a form: a text as typed, or a value that is of the right type already.
 *
 * @example
 * ```ts
 * const one = checkField(field, '42')
 * if (!one.ok) console.log(one.message)
 * ```
 */
export function checkField(field: Field, input: unknown): CheckedField {
  const value = coerce(field, input)
  if (value === undefined || value === null) {
    return field.required ? { ok: false, message: sayRequired(field) } : { ok: true, value: undefined }
  }
  const message = judgeValue(field, value)
  return message === undefined ? { ok: true, value: value as FieldValue } : { ok: false, message }
}

/**
 * Checks all fields of a form by name. Values that no field asks for are left out.
 *
 * @example
 * ```ts
 * const checked = checkForm(fields, values)
 * if (!checked.ok) console.log(checked.problems)
 * ```
 */
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

/**
 * Returns what a form shows before a person types: the defaults by the names of the fields.
 *
 * @example
 * ```ts
 * const values = { ...startValues(fields), ...typed }
 * ```
 */
export function startValues(fields: readonly Field[]): Record<string, FieldValue> {
  return Object.fromEntries(
    fields.flatMap((field) => (field.default === undefined ? [] : [[field.name, field.default]])),
  )
}

/** The value that was meant; an input that cannot be read stays as it is, and judging it yields the message. */
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
  // People write a date and time with a space between them and without seconds.
  if (field.format !== 'date-time') return text
  return text.replace(/^(\S{10})\s+(?=\d)/, '$1T').replace(/^(\S{10}T\d{2}:\d{2})(?=[Zz+-])/, '$1:00')
}

function readNumber(field: Field, text: string): unknown {
  const value = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,3})?$/i.test(text) ? Number(text) : Number.NaN
  // A whole number beyond the safe range may not be the one that was typed.
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

/** As `findOption`, else the only option that matches when case is ignored. */
function findTyped(field: Field, input: string): FieldOption | undefined {
  const exact = findOption(field, input)
  if (exact !== undefined) return exact
  const word = input.trim().toLowerCase()
  const near = (field.options ?? []).filter(
    ({ value, title }) => value.toLowerCase() === word || title.toLowerCase() === word,
  )
  return near.length === 1 ? near[0] : undefined
}
