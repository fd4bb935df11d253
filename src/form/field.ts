/** One thing a form asks for, whoever asks and wherever it is shown. */

import { cleanText } from './clean-text.ts'

export type FieldType = 'text' | 'number' | 'integer' | 'boolean' | 'choice' | 'choices'

export type FieldValue = string | number | boolean | readonly string[]

export interface FieldOption {
  readonly value: string
  readonly title: string
}

export interface Field {
  readonly name: string
  /** What a person reads: the schema's title, or the name in words. */
  readonly title: string
  readonly type: FieldType
  readonly required: boolean
  /** Bounds on characters (text), on the number, or on how many are chosen (choices). */
  readonly limits: { readonly min?: number; readonly max?: number }
  /** What may be chosen; for choice and choices only. */
  readonly options?: readonly FieldOption[]
  readonly format?: FieldFormat
  readonly default?: FieldValue
  readonly description?: string
  /** Why the schema of this field could not be understood. It is then shown as a text. */
  readonly unsupported?: string
}

export interface Form {
  readonly fields: readonly Field[]
  /** What was left out or not understood, in sentences. Empty for a schema that keeps the rules. */
  readonly notes: readonly string[]
}

/* The four formats a form may ask for. Every check takes time in proportion to the text. */

export type FieldFormat = 'email' | 'uri' | 'date' | 'date-time'

interface FormatRow {
  readonly test: (text: string) => boolean
  /** Completes "… must be". */
  readonly wanted: string
}

export const FORMATS: Readonly<Record<FieldFormat, FormatRow>> = {
  email: { test: isEmail, wanted: 'an e-mail address, such as name@example.org' },
  uri: { test: isUri, wanted: 'a full URL, such as https://example.org/page' },
  date: { test: isDate, wanted: 'a date, such as 2026-07-28' },
  'date-time': { test: isDateTime, wanted: 'a date and time with its zone, such as 2026-07-28T09:30:00Z' },
}

export function isFieldFormat(format: unknown): format is FieldFormat {
  return typeof format === 'string' && Object.hasOwn(FORMATS, format)
}

function isEmail(text: string): boolean {
  const at = text.lastIndexOf('@')
  const name = text.slice(0, at)
  const host = text.slice(at + 1)
  if (at < 1 || name.length > 64 || host.length > 253) return false
  const isPart = (part: string): boolean => part !== '' && /^[^\s@"(),:;<>[\]\\]+$/.test(part)
  const isLabel = (part: string): boolean => /^[\p{L}\p{M}\p{N}-]+$/u.test(part) && !/^-|-$/.test(part)
  return name.split('.').every(isPart) && host.split('.').every(isLabel)
}

function isUri(text: string): boolean {
  if (!/^[a-z][a-z0-9+.-]*:[^\s<>"{}|\\^`]+$/i.test(text)) return false
  try {
    new URL(text)
    return true
  } catch {
    return false
  }
}

function isDate(text: string): boolean {
  const found = /^(\d{4})-(\d{2})-(\d{2})$/.exec(text)
  if (found === null) return false
  const [year, month, day] = found.slice(1).map(Number) as [number, number, number]
  const isLeap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0)
  const days = [31, isLeap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1] ?? 0
  return day >= 1 && day <= days
}

function isDateTime(text: string): boolean {
  const found = /^(.{10})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.\d{1,18})?(?:[Zz]|[+-](\d{2}):(\d{2}))$/.exec(text)
  if (found === null || !isDate(found[1] ?? '')) return false
  const [hour, minute, second, zoneHour, zoneMinute] = found.slice(2).map((part) => Number(part ?? 0))
  const within = (value: number | undefined, max: number): boolean => (value ?? 0) <= max
  // A minute may have a second 60: a leap second.
  return (
    within(hour, 23) &&
    within(minute, 59) &&
    within(second, 60) &&
    within(zoneHour, 23) &&
    within(zoneMinute, 59)
  )
}

/* Fields in words, for whoever has to answer without seeing the form: a model, or a person who reads a refusal. */

const SHOWN_OPTIONS = 12
const SHOWN_FIELDS = 12
const MAX_NAME = 100

/** The choices as they are sent, each with its title where that is another text. */
export function listOptions({ options = [] }: Pick<Field, 'options'>): string {
  const shown = options.slice(0, SHOWN_OPTIONS).map(({ value, title }) => {
    const sent = cleanText(value, MAX_NAME)
    if (sent === title || sent === '') return title
    return sent.includes(',') ? `"${sent}" (${title})` : `${sent} (${title})`
  })
  const more = options.length - shown.length
  return more > 0 ? `${shown.join(', ')}, and ${more} more` : shown.join(', ')
}

/** `resolution: one of Fixed, Duplicate; note (optional): a text`. */
export function describeFields(fields: readonly Field[]): string {
  const shown = fields
    .slice(0, SHOWN_FIELDS)
    .map(
      (field) =>
        `${cleanText(field.name, MAX_NAME)}${field.required ? '' : ' (optional)'}: ${describe(field)}`,
    )
  const more = fields.length - shown.length
  return more > 0 ? `${shown.join('; ')}; and ${more} more` : shown.join('; ')
}

function describe(field: Field): string {
  switch (field.type) {
    case 'text':
      return field.format === undefined ? 'a text' : FORMATS[field.format].wanted
    case 'number':
      return 'a number'
    case 'integer':
      return 'a whole number'
    case 'boolean':
      return 'yes or no'
    case 'choice':
      return `one of ${listOptions(field)}`
    case 'choices':
      return `any of ${listOptions(field)}`
  }
}
