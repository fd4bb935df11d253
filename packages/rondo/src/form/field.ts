/**
 * A field of a form: its type, the formats that a text may be asked for in, and its description in words for whoever has to
 * answer without seeing the form (a model, or a person who reads a refusal). Every check takes linear time.
 */

import { cleanText } from './clean-text.ts'

export type FieldType = 'text' | 'number' | 'integer' | 'boolean' | 'choice' | 'choices'

export type FieldValue = string | number | boolean | readonly string[]

export interface FieldOption {
  readonly value: string
  readonly title: string
}

export interface Field {
  readonly name: string
  /** The label for people: the schema's title, or the name in words. */
  readonly title: string
  readonly type: FieldType
  readonly required: boolean
  /** Bounds on characters (text), on the number, or on how many are chosen (choices). */
  readonly limits: { readonly min?: number; readonly max?: number }
  /** The options; for choice and choices only. */
  readonly options?: readonly FieldOption[]
  readonly format?: FieldFormat
  readonly default?: FieldValue
  readonly description?: string
  /** The reason why the schema of this field could not be understood. The field is then shown as a text. */
  readonly unsupported?: string
}

export interface Form {
  readonly fields: readonly Field[]
  /** The parts that were left out or not understood, in sentences. Empty for a schema that follows the rules. */
  readonly notes: readonly string[]
}

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
  const isAtom = (part: string): boolean => /^[^\s@"(),:;<>[\]\\]+$/.test(part)
  const isLabel = (part: string): boolean => /^[\p{L}\p{M}\p{N}-]+$/u.test(part) && !/^-|-$/.test(part)
  const isName = name.split('.').every(isAtom) || /^"(?:[^"\\\p{Cc}]|\\\P{Cc})*"$/u.test(name)
  return isName && (host.split('.').every(isLabel) || isAddressLiteral(host))
}

/** `[192.0.2.1]` or `[IPv6:2001:db8::1]`. */
function isAddressLiteral(host: string): boolean {
  const [, ipv4, ipv6] = /^\[(?:(\d{1,3}(?:\.\d{1,3}){3})|IPv6:([0-9a-f:.]{2,45}))\]$/i.exec(host) ?? []
  if (ipv6 !== undefined) return isUrl(`http://[${ipv6}]/`)
  return ipv4?.split('.').every((part) => Number(part) <= 255) ?? false
}

/** RFC 3986: ASCII, complete triplets, brackets only around an IPv6 host. What no URL parser takes is refused, too. */
const URI =
  /^[a-z][a-z0-9+.-]*:(?=.)(?:\/\/(?:[\w.~!$&'()*+,;=:%-]*@)?\[[\w:.]+\])?(?:[\w.~:/?#@!$&'()*+,;=-]|%[0-9a-f]{2})*$/i

function isUri(text: string): boolean {
  return URI.test(text) && isUrl(text)
}

function isUrl(text: string): boolean {
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
  const found = /^(.{10})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.\d{1,18})?(?:[Zz]|([+-])(\d{2}):(\d{2}))$/.exec(text)
  const [, date = '', hour, minute, second, sign, zoneHour = 0, zoneMinute = 0] = found ?? []
  if (!isDate(date)) return false
  const within = (value: unknown, max: number): boolean => Number(value) <= max
  const offset = (Number(zoneHour) * 60 + Number(zoneMinute)) * (sign === '-' ? -1 : 1)
  // A leap second is the last of a day in UTC.
  const isLastMinute = (Number(hour) * 60 + Number(minute) - offset + DAY) % DAY === DAY - 1
  return (
    within(hour, 23) &&
    within(minute, 59) &&
    within(second, isLastMinute ? 60 : 59) &&
    within(zoneHour, 23) &&
    within(zoneMinute, 59)
  )
}

/** Minutes of a day. */
const DAY = 1_440

const SHOWN_OPTIONS = 12
const SHOWN_FIELDS = 12
const MAX_NAME = 100

/** The choices as they are sent, each with its title where that differs. */
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
