/**
 * Turns the schema of a question into a list of neutral fields, for any user interface: a terminal, a web page, a test.
 *
 * Reads the restricted form schema of MCP in all its spellings, and is tolerant: the schema comes from a foreign server.
 * 1. It never throws. A field that cannot be understood becomes a text field marked `unsupported`, with a note.
 * 2. It is bounded: fields, options, the length of every text. `notes` say what was left out.
 * 3. Titles and descriptions have no control characters. Names and option values are kept as they are, since they are
 *    sent back; show the titles.
 */

import { cleanText } from './clean-text.ts'
import { type Field, type FieldOption, type FieldValue, type Form, isFieldFormat } from './field.ts'
import { judgeValue } from './judge.ts'

const MAX_FIELDS = 200
const MAX_OPTIONS = 1_000
const MAX_TITLE = 200
const MAX_DESCRIPTION = 2_000
const MAX_VALUE = 1_000
/** Names that parsers of JSON refuse. */
export const UNSAFE_NAMES: ReadonlySet<string> = new Set(['__proto__', 'constructor', 'prototype'])

type Part = Readonly<Record<string, unknown>>

/**
 * Reads the `requestedSchema` of an elicitation.
 *
 * @example
 * ```ts
 * const { fields } = readForm(requestedSchema)
 * for (const { title, required } of fields) console.log(title, required)
 * ```
 */
export function readForm(schema: unknown): Form {
  const notes: string[] = []
  if (!isPart(schema) || !isPart(schema.properties)) {
    return { fields: [], notes: ['The form has no fields'] }
  }
  const required = new Set(Array.isArray(schema.required) ? schema.required.slice(0, 10 * MAX_FIELDS) : [])
  const names = Object.keys(schema.properties)
  if (names.length > MAX_FIELDS)
    notes.push(`The form has ${names.length} fields; only ${MAX_FIELDS} are shown`)
  const fields: Field[] = []
  for (const name of names.slice(0, MAX_FIELDS)) {
    if (name.length > MAX_VALUE || UNSAFE_NAMES.has(name)) {
      notes.push(`The field ${nameInWords(name)} has a name that cannot be used`)
      continue
    }
    const field = readField(name, schema.properties[name], required.has(name))
    fields.push(field.field)
    notes.push(...field.notes)
  }
  return { fields, notes }
}

function readField(name: string, schema: unknown, required: boolean): { field: Field; notes: string[] } {
  const part = isPart(schema) ? unwrapNullable(schema) : {}
  const title = readText(part.title, MAX_TITLE) || nameInWords(name)
  const description = isPart(part) ? readText(part.description, MAX_DESCRIPTION, 'many') : ''
  const shape = readShape(part)
  const notes = shape.notes.map((note) => `${title}: ${note}`)
  const bare: Field = {
    name,
    title,
    required,
    ...shape.shape,
    ...(description === '' ? {} : { description }),
  }
  if (part.default === undefined || part.default === null) return { field: bare, notes }
  const misfit = judgeValue(bare, part.default)
  if (misfit === undefined) return { field: { ...bare, default: part.default as FieldValue }, notes }
  return { field: bare, notes: [...notes, `${title}: its default does not fit`] }
}

type Shape = Pick<Field, 'type' | 'limits' | 'options' | 'format' | 'unsupported'>

function readShape(part: Part): { shape: Shape; notes: string[] } {
  const list = readOptions(part)
  if (list !== undefined) return withOptions('choice', {}, list)
  switch (part.type) {
    case 'string':
      return {
        shape: {
          type: 'text',
          limits: readLimits(part.minLength, part.maxLength),
          ...(isFieldFormat(part.format) ? { format: part.format } : {}),
        },
        notes: [],
      }
    case 'number':
    case 'integer':
      return { shape: { type: part.type, limits: readLimits(part.minimum, part.maximum) }, notes: [] }
    case 'boolean':
      return { shape: { type: 'boolean', limits: {} }, notes: [] }
    case 'array': {
      const items = isPart(part.items) ? readOptions(part.items) : undefined
      if (items === undefined) return unsupported('a list of anything but fixed choices')
      return withOptions('choices', readLimits(part.minItems, part.maxItems), items)
    }
  }
  return unsupported(
    typeof part.type === 'string' ? `the type "${part.type.slice(0, 40)}"` : 'a field of no known type',
  )
}

function unsupported(what: string): { shape: Shape; notes: string[] } {
  const reason = `${cleanText(what, MAX_TITLE)} is not part of the form schema`
  return { shape: { type: 'text', limits: {}, unsupported: reason }, notes: [reason] }
}

function withOptions(type: 'choice' | 'choices', limits: Shape['limits'], { options, total }: OptionList) {
  const notes = options.length < total ? [`only ${options.length} of ${total} choices are shown`] : []
  return { shape: { type, limits, options }, notes }
}

interface OptionList {
  readonly options: readonly FieldOption[]
  readonly total: number
}

/** `enum`, `enum` with `enumNames`, or a list of `{ const, title }`; undefined if it is none of these. */
function readOptions(part: Part): OptionList | undefined {
  const names = Array.isArray(part.enumNames) ? part.enumNames : []
  const list = [part.enum, part.oneOf, part.anyOf].find(Array.isArray)
  if (list === undefined || list.length === 0) return undefined
  const options: FieldOption[] = []
  for (const [i, one] of list.slice(0, MAX_OPTIONS).entries()) {
    const isTitled = part.enum === undefined && isPart(one)
    const value: unknown = isTitled ? one.const : one
    if (typeof value !== 'string') return undefined
    if (value.length > MAX_VALUE) continue
    const title = readText(isTitled ? one.title : names[i], MAX_TITLE)
    options.push({ value, title: title || cleanText(value, MAX_TITLE) || '(empty)' })
  }
  return { options, total: list.length }
}

/** A type that may also be null is read as that type: a person who leaves the field empty sends nothing. */
function unwrapNullable(part: Part): Part {
  const isNull = (one: unknown): boolean => one === 'null' || (isPart(one) && one.type === 'null')
  const { type, anyOf, ...rest } = part
  if (Array.isArray(type)) return { ...part, type: type.find((one) => !isNull(one)) }
  if (!Array.isArray(anyOf) || !anyOf.some(isNull)) return part
  const others = anyOf.filter((one) => !isNull(one))
  return others.length === 1 && isPart(others[0]) ? { ...others[0], ...rest } : { ...part, anyOf: others }
}

function readLimits(min: unknown, max: unknown): Shape['limits'] {
  return {
    ...(typeof min === 'number' && Number.isFinite(min) ? { min } : {}),
    ...(typeof max === 'number' && Number.isFinite(max) ? { max } : {}),
  }
}

function readText(text: unknown, maxLength: number, lines?: 'many'): string {
  return typeof text === 'string' ? cleanText(text, maxLength, lines) : ''
}

/** `duplicateOfId` and `duplicate_of_id` as "Duplicate of id". */
function nameInWords(name: string): string {
  const words = cleanText(name, MAX_TITLE)
    .replace(/[_-]+/g, ' ')
    .replace(/(?<=[\p{Ll}\p{N}])\p{Lu}(?=\p{Ll})/gu, (start) => ` ${start.toLowerCase()}`)
    .trim()
  return words === '' ? '(no name)' : words.charAt(0).toUpperCase() + words.slice(1)
}

function isPart(value: unknown): value is Part {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

// Fields that ask for a secret are recognised by their name or title (T5): the protocol forbids asking for one in a form,
// since the answer passes through the client and its model. Words are matched whole, so `tokenize`, `pinned` and
// `keyboard` are fine, and so is what only describes a secret (`tokenCount`, `passwordPolicy`). Servers refuse to ask for
// such a field, and our client refuses to show it.

/** Words and pairs of words that name a secret. `tokens` alone counts pieces of text. */
const SECRETS = new Set(
  `password passwords passwd pwd passphrase passcode secret secrets token credential credentials pin cvv cvc csc
  ssn otp totp apikey apitoken accesskey accesstoken authtoken bearertoken clientsecret privatekey refreshtoken
  secretkey sessiontoken signingkey userpassword jwt
  api-key api-keys api-tokens access-key access-keys access-tokens private-key secret-key signing-key encryption-key
  master-key ssh-key license-key bearer-tokens refresh-tokens recovery-code recovery-codes recovery-phrase backup-code
  backup-codes seed-phrase security-code verification-code auth-code authentication-code one-time-code card-number
  credit-card social-security security-answer`.split(/\s+/),
)

/** Words after which the field describes a secret and does not hold it. */
const DESCRIBING = new Set(
  `age algorithm budget count counter expiration expires expiry format hint kind length lifetime limit name policy size
  status strength ttl type usage`.split(/\s+/),
)

const MAX_WORDS = 50

/**
 * The words by which a field of a form asks for a secret, as they would be said ("api key"); undefined if it does not. Only
 * fields with free input can take a secret: a boolean or a choice cannot.
 */
export function findSecret(name: string, schema: unknown): string | undefined {
  if (isPart(schema) && schema.format === 'password') return 'password'
  const [field] = readForm({ properties: { [name]: schema } }).fields
  const { type, title } = field ?? { type: 'text', title: '' }
  if (type !== 'text' && type !== 'number' && type !== 'integer') return undefined
  return findSecretWords(name) ?? findSecretWords(title)
}

export function findSecretWords(text: string): string | undefined {
  const words = splitWords(text.slice(0, 500)).slice(0, MAX_WORDS)
  for (let i = 0; i < words.length; i++) {
    for (const length of [3, 2, 1]) {
      const phrase = words.slice(i, i + length)
      const next = words[i + length]
      if (phrase.length < length || !SECRETS.has(phrase.join('-'))) continue
      if (next === undefined || !DESCRIBING.has(next)) return phrase.join(' ')
    }
  }
  return undefined
}

/** `userAPIKey2`, `user_api-key 2` as user, api, key, 2. */
function splitWords(text: string): string[] {
  return text
    .replace(/([\p{Ll}\p{N}])(\p{Lu})/gu, '$1 $2')
    .replace(/(\p{Lu})(\p{Lu}\p{Ll})/gu, '$1 $2')
    .replace(/(\p{L})(\p{N})/gu, '$1 $2')
    .toLowerCase()
    .split(/[^\p{L}\p{N}]+/u)
    .filter((word) => word !== '')
}
