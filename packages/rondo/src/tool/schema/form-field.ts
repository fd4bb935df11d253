/**
 * Writes one field of an author's schema in the restricted form schema of MCP, which is all that a client has to understand.
 *
 * The output of schema libraries is normalised: nullable becomes optional, literals become choices, and what only narrows a
 * value (pattern, exclusive bounds, other formats) is left out, since the library itself checks the answer too.
 * Plain JSON Schema is taken literally: nothing else would check what was left out, so any keyword outside of the form
 * schema is a TypeError.
 */

import { misuse } from '../../errors.ts'
import { isFieldFormat } from '../../form/field.ts'
import { isRecord } from '../../lib/json.ts'
import type { JsonSchema } from '../../protocol/wire.ts'

interface FormField {
  readonly json: JsonSchema
  /** The author's schema accepts null; in a form the field can only be left out. */
  readonly nullable: boolean
}

interface FieldSource {
  readonly name: string
  readonly schema: unknown
  /** The schema as a whole, for references within it. */
  readonly root: JsonSchema
  /** True for plain JSON Schema. */
  readonly strict: boolean
}

const ALLOWED =
  'A field may be a string (minLength, maxLength, format email, uri, date or date-time), a number or an integer (minimum, maximum), a boolean, a choice of strings, or a list of such choices; each with title, description and default'

const MAX_REFERENCES = 8

const KEYWORDS: Readonly<Record<string, readonly string[]>> = {
  text: ['minLength', 'maxLength', 'format'],
  number: ['minimum', 'maximum'],
  boolean: [],
  choice: ['enum', 'enumNames', 'oneOf'],
  choices: ['items', 'minItems', 'maxItems'],
}
const EVERYWHERE = ['type', 'title', 'description', 'default']

export function toFormField(source: FieldSource): FormField {
  const { schema, nullable } = simplify(source)
  const shape = toShape(source, schema)
  if (source.strict) assertKeywords(source, schema, shape.kind)
  const { title, description, default: preset } = schema
  return {
    nullable,
    json: {
      ...shape.json,
      ...(typeof title === 'string' ? { title } : {}),
      ...(typeof description === 'string' ? { description } : {}),
      ...(preset === undefined || preset === null ? {} : { default: preset }),
    },
  }
}

interface Simple {
  readonly schema: JsonSchema
  readonly nullable: boolean
}

/** Follows references and removes null: from the types, the enum, or the alternatives. */
function simplify(source: FieldSource): Simple {
  let schema = followReference(source, source.schema)
  if (source.strict) return { schema, nullable: false }
  let nullable = false
  const without = (list: readonly unknown[], isNull: (one: unknown) => boolean): unknown[] => {
    const rest = list.filter((one) => !isNull(one))
    nullable ||= rest.length < list.length
    return rest
  }
  const { type, enum: values, anyOf, oneOf, ...rest } = schema
  const alternatives = Array.isArray(anyOf) ? anyOf : oneOf
  if (Array.isArray(alternatives)) {
    const others = without(
      alternatives.map((one) => followReference(source, one)),
      isNullSchema,
    )
    schema =
      others.length === 1 && isRecord(others[0]) ? { ...others[0], ...rest } : { ...rest, anyOf: others }
  } else if (Array.isArray(values)) {
    schema = { ...schema, enum: without(values, (one) => one === null) }
  }
  if (Array.isArray(type)) {
    const types = without(type, (one) => one === 'null')
    schema = { ...schema, type: types.length === 1 ? types[0] : types }
  }
  return { schema, nullable }
}

function isNullSchema(schema: unknown): boolean {
  return isRecord(schema) && (schema.type === 'null' || schema.const === null)
}

function followReference(source: FieldSource, schema: unknown): JsonSchema {
  let place = schema
  for (let i = 0; i < MAX_REFERENCES; i++) {
    if (!isRecord(place)) throw refuse(source, 'it has no schema')
    const { $ref, ...rest } = place
    if ($ref === undefined || source.strict) return place
    const [, group = '', name = ''] = /^#\/(\$defs|definitions)\/([^/]+)$/.exec(String($ref)) ?? []
    const definitions = source.root[group]
    const target = isRecord(definitions) && Object.hasOwn(definitions, name) ? definitions[name] : undefined
    place = isRecord(target) ? { ...target, ...rest } : target
  }
  throw refuse(source, 'its references form a cycle')
}

interface Shape {
  readonly kind: 'text' | 'number' | 'boolean' | 'choice' | 'choices'
  readonly json: JsonSchema
}

function toShape(source: FieldSource, schema: JsonSchema): Shape {
  const choice = toChoice(source, schema, 'oneOf')
  if (choice !== undefined) return choice
  switch (schema.type) {
    case 'string':
      return { kind: 'text', json: { type: 'string', ...toTextLimits(source, schema) } }
    case 'number':
    case 'integer':
      return { kind: 'number', json: { type: schema.type, ...toNumberLimits(schema, schema.type) } }
    case 'boolean':
      return { kind: 'boolean', json: { type: 'boolean' } }
    case 'array':
      return toChoices(source, schema)
    case 'object':
      throw refuse(source, 'it is an object, but a form is flat')
  }
  throw refuse(
    source,
    schema.type === undefined ? 'it has no type' : `it has the type ${String(schema.type)}`,
  )
}

/** A choice of strings in any spelling, written as `enum` or, with titles, under `list`. */
function toChoice(source: FieldSource, schema: JsonSchema, list: 'oneOf' | 'anyOf'): Shape | undefined {
  const alternatives = [schema.anyOf, schema.oneOf].find(Array.isArray)
  if (alternatives !== undefined) return fromAlternatives(source, schema, alternatives, list)
  const values = Array.isArray(schema.enum) ? schema.enum : 'const' in schema ? [schema.const] : undefined
  if (values === undefined) return undefined
  if (!source.strict && values.every((value) => typeof value === 'boolean')) {
    return { kind: 'boolean', json: { type: 'boolean' } }
  }
  if (values.length === 0 || !values.every((value) => typeof value === 'string')) {
    throw refuse(source, 'its choices are not all strings')
  }
  const { enumNames } = schema
  const names = Array.isArray(enumNames) && enumNames.length === values.length ? { enumNames } : {}
  if (source.strict && enumNames !== undefined && !('enumNames' in names)) {
    throw refuse(source, 'its enumNames do not match its enum')
  }
  return { kind: 'choice', json: { type: 'string', enum: values, ...names } }
}

function fromAlternatives(
  source: FieldSource,
  schema: JsonSchema,
  alternatives: readonly unknown[],
  list: 'oneOf' | 'anyOf',
): Shape {
  const parts = alternatives.map((one) => followReference(source, one))
  const options = parts.flatMap((part) =>
    'const' in part
      ? [{ const: part.const, title: part.title }]
      : Array.isArray(part.enum)
        ? part.enum.map((value) => ({ const: value, title: undefined }))
        : [undefined],
  )
  if (options.length > 0 && options.every((option) => typeof option?.const === 'string')) {
    if (options.some((option) => typeof option?.title === 'string')) {
      const titled = options.map((option) => ({
        const: option?.const,
        title: option?.title ?? option?.const,
      }))
      return {
        kind: 'choice',
        json: list === 'oneOf' ? { type: 'string', oneOf: titled } : { anyOf: titled },
      }
    }
    return { kind: 'choice', json: { type: 'string', enum: options.map((option) => option?.const) } }
  }
  if (!source.strict) {
    const isAll = (type: string): boolean =>
      parts.every((part) => part.type === type || typeof part.const === type) && parts.length > 0
    // A union of literals and free text is shown as a text; the library checks the rest.
    if (isAll('string')) return { kind: 'text', json: { type: 'string', ...toTextLimits(source, schema) } }
    if (isAll('boolean')) return { kind: 'boolean', json: { type: 'boolean' } }
  }
  throw refuse(source, 'it has alternatives that are not all strings')
}

function toChoices(source: FieldSource, schema: JsonSchema): Shape {
  const items = isRecord(schema.items)
    ? toChoice(source, followReference(source, schema.items), 'anyOf')
    : undefined
  if (items?.kind !== 'choice') throw refuse(source, 'it is a list, but not of fixed choices')
  return {
    kind: 'choices',
    json: { type: 'array', items: items.json, ...pick(schema, 'minItems'), ...pick(schema, 'maxItems') },
  }
}

function toTextLimits(source: FieldSource, schema: JsonSchema): JsonSchema {
  const { format } = schema
  if (format === 'password')
    throw refuse(
      source,
      'it has the format "password", and secrets must not pass through a form (ctx.visit can ask for them on a page of your own)',
    )
  if (source.strict && format !== undefined && !isFieldFormat(format)) {
    throw refuse(source, `it has the format "${String(format)}"`)
  }
  return {
    ...pick(schema, 'minLength'),
    ...pick(schema, 'maxLength'),
    ...(isFieldFormat(format) ? { format } : {}),
  }
}

function toNumberLimits(schema: JsonSchema, type: 'number' | 'integer'): JsonSchema {
  const whole = type === 'integer'
  const { exclusiveMinimum, exclusiveMaximum } = schema
  const bounds = (...list: unknown[]): number[] => list.filter((one) => typeof one === 'number')
  const above =
    typeof exclusiveMinimum === 'number' && whole ? Math.floor(exclusiveMinimum) + 1 : exclusiveMinimum
  const below =
    typeof exclusiveMaximum === 'number' && whole ? Math.ceil(exclusiveMaximum) - 1 : exclusiveMaximum
  const minimum = Math.max(...bounds(schema.minimum, above))
  const maximum = Math.min(...bounds(schema.maximum, below))
  // Libraries write the bounds of safe integers, which mean nothing to a person.
  const isReal = (bound: number): boolean => Math.abs(bound) < Number.MAX_SAFE_INTEGER
  return { ...(isReal(minimum) ? { minimum } : {}), ...(isReal(maximum) ? { maximum } : {}) }
}

function pick(schema: JsonSchema, keyword: string): JsonSchema {
  return typeof schema[keyword] === 'number' ? { [keyword]: schema[keyword] } : {}
}

function assertKeywords(source: FieldSource, schema: JsonSchema, kind: Shape['kind']): void {
  const allowed = [...EVERYWHERE, ...(KEYWORDS[kind] ?? [])]
  const other = Object.keys(schema).find((keyword) => !allowed.includes(keyword))
  if (other !== undefined) throw refuse(source, `it has "${other}"`)
}

/** A TypeError that names the field and says what is wrong and what is allowed. */
export function refuse(source: { readonly name: string }, why: string): TypeError {
  return misuse(`The field "${source.name}" cannot be asked for in a form: ${why}. ${ALLOWED}`)
}
