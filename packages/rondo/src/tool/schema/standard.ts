/**
 * Schemas at run time: how a value is checked, by the schema's own code where it is a Standard Schema (zod, valibot, arktype),
 * and how a schema is recognized that a handler has created before. `schema.ts` compiles what is declared once. A check that
 * can be done synchronously is not made asynchronous.
 */

import { isRecord } from '../../lib/json.ts'
import type { JsonSchema } from '../../protocol/wire.ts'
import type { Schema, StandardSchema } from '../context.ts'
import { boundValue } from './bound.ts'
import { formatPath, MAX_PROBLEMS, type Problem, type Result, type TextBounds } from './judge.ts'

export interface Compiled {
  readonly json: JsonSchema
  validate(value: unknown): Result | Promise<Result>
}

/** Bounds what a caller sends before any code judges it (T11). */
export function bounded(
  schema: Schema,
  json: JsonSchema,
  check: Compiled['validate'],
  bounds: TextBounds,
): Compiled {
  const findExcess = isStandardSchema(schema)
    ? boundValue(json, { remembers: remembersVerdicts(schema) })
    : undefined
  return {
    json,
    validate(value) {
      const excess = findLongText(value, bounds) ?? findExcess?.(value, bounds)
      return excess === undefined ? check(value) : { ok: false, problems: [excess] }
    },
  }
}

/** The schema's own check. */
export function checkOf(schema: StandardSchema): Compiled['validate'] {
  return (value) => validateStandard(schema, value)
}

/** The first text that is too long for any check. */
export function findLongText(value: unknown, { maxTextLength }: TextBounds): Problem | undefined {
  return hasLongText(value, maxTextLength, 0) ? locateLongText(value, maxTextLength) : undefined
}

/** Allocates nothing: almost every value passes. */
function hasLongText(value: unknown, max: number, depth: number): boolean {
  if (typeof value === 'string') return value.length > max
  if (typeof value !== 'object' || value === null || depth > MAX_TEXT_DEPTH) return false
  for (const name in value) {
    if (Object.hasOwn(value, name) && hasLongText((value as Record<string, unknown>)[name], max, depth + 1))
      return true
  }
  return false
}

function locateLongText(value: unknown, max: number): Problem | undefined {
  const todo: { value: unknown; path: readonly PropertyKey[] }[] = [{ value, path: [] }]
  for (let next = todo.pop(); next !== undefined; next = todo.pop()) {
    const { value: here, path } = next
    if (typeof here === 'string' && here.length > max) {
      return { path: formatPath(path), message: `The text is longer than ${max} characters` }
    }
    if (typeof here !== 'object' || here === null || path.length > MAX_TEXT_DEPTH) continue
    for (const [name, inner] of Object.entries(here)) {
      if (typeof inner === 'object' || typeof inner === 'string')
        todo.push({ value: inner, path: [...path, name] })
    }
  }
  return undefined
}

/** Deeper than guarded input goes. */
const MAX_TEXT_DEPTH = 1_000

/** Since 4.5, zod validates a recursive schema once per value. */
function remembersVerdicts(schema: StandardSchema): boolean {
  const { _zod } = schema as { _zod?: { version?: { major?: number; minor?: number } } }
  const { major = 0, minor = 0 } = _zod?.version ?? {}
  return major > 4 || (major === 4 && minor >= 5)
}

export function isStandardSchema(schema: unknown): schema is StandardSchema {
  // Creating the `~standard` of a zod schema costs more than recognizing it.
  if (isZod(schema)) return true
  const isHolder = typeof schema === 'function' || isRecord(schema)
  return isHolder && isRecord((schema as unknown as Record<string, unknown>)['~standard'])
}

/** Runs the schema's own check. */
export function validateStandard(schema: StandardSchema, value: unknown): Result | Promise<Result> {
  const outcome = schema['~standard'].validate(value)
  return 'then' in outcome ? outcome.then(fromStandard) : fromStandard(outcome)
}

/** Without the parser that zod generates for a schema when it is first used: that costs more than one use saves. */
const UNCOMPILED = { jitless: true }

/** The same for a schema that may not be used again. */
export function validateOnce(schema: StandardSchema, value: unknown): Result | Promise<Result> {
  if (!isZod(schema)) return validateStandard(schema, value)
  try {
    return fromZod(schema.safeParse(value, UNCOMPILED))
  } catch {
    // It has an asynchronous check, or one that throws. Its `~standard` does the same.
    return schema.safeParseAsync(value, UNCOMPILED).then(fromZod)
  }
}

function fromZod(outcome: ZodOutcome): Result {
  return outcome.success
    ? { ok: true, value: outcome.data }
    : { ok: false, problems: toProblems(outcome.error.issues) }
}

type StandardOutcome = Awaited<ReturnType<StandardSchema['~standard']['validate']>>

function fromStandard(outcome: StandardOutcome): Result {
  if (outcome.issues === undefined) return { ok: true, value: outcome.value }
  return { ok: false, problems: toProblems(outcome.issues) }
}

function toProblems(issues: NonNullable<StandardOutcome['issues']>): Problem[] {
  return issues.slice(0, MAX_PROBLEMS).map((issue) => ({
    path: formatPath(Array.from(issue.path ?? [], (part) => (typeof part === 'object' ? part.key : part))),
    message: issue.message,
  }))
}

// Recognizes a schema that a handler has created before. A handler that creates its schemas itself creates them again in every
// round, and converting one to JSON Schema or compiling it costs more than the rest of a question. The key of a schema is
// built from its definition, and reading it is much cheaper.
//
// reuse 1: Two schemas with the same `text` have the same JSON Schema. The text holds everything the library's conversion
// reads: constructors, definitions, checks, metadata, ancestors. Functions are left out, because the conversion calls none of
// those that are allowed here.
// reuse 2: Two schemas with the same `exact` key also validate alike: their functions are the same objects.
// reuse 3: A schema that holds anything else has no key, and is converted. So has a schema of a library other than zod 4.
//
// A default is the one value that a function of the author may compute while the schema is converted. It is read for the
// text, and `fitsDefaults` tells whether the conversion saw the same one.

export interface SchemaKey {
  /** Equal for schemas with the same JSON Schema. */
  readonly text: string
  /** Equal for schemas that also validate alike. Undefined if that cannot be told. */
  readonly exact: string | undefined
  /** The default of each field that has one. */
  readonly defaults: ReadonlyMap<string, unknown>
}

/** A zod 4 schema, as far as it is read here. */
export interface ZodSchema extends StandardSchema {
  readonly _zod: Internals
  meta(): unknown
  safeParse(value: unknown, context: object): ZodOutcome
  safeParseAsync(value: unknown, context: object): Promise<ZodOutcome>
}

interface Internals {
  readonly def: Record<string, unknown>
  readonly constr: object
  readonly parent?: unknown
  readonly toJSONSchema?: unknown
  readonly values?: unknown
}

export type ZodOutcome =
  | { readonly success: true; readonly data: unknown }
  | { readonly success: false; readonly error: { readonly issues: readonly ZodIssue[] } }

interface ZodIssue {
  readonly path: readonly PropertyKey[]
  readonly message: string
}

/** Types whose conversion depends on their definition alone. Not `lazy`, `catch` and `custom`, which have code of their own. */
const TYPES: ReadonlySet<unknown> = new Set([
  'string',
  'number',
  'boolean',
  'any',
  'unknown',
  'never',
  'enum',
  'literal',
  'object',
  'array',
  'union',
  'optional',
  'nullable',
  'nonoptional',
  'readonly',
  'pipe',
  'transform',
  'default',
  'prefault',
])

/** Types that wrap the schema of a field without changing where its default is written. */
const WRAPPERS: ReadonlySet<unknown> = new Set(['optional', 'nullable', 'nonoptional', 'readonly'])

const MAX_DEPTH = 12
const MAX_TEXT = 8_192

/** A zod schema with its own methods. One that was extended, wrapped or given another `~standard` is not recognized. */
export function isZod(schema: unknown): schema is ZodSchema {
  return isGenuine(schema) && !Object.hasOwn(schema, '~standard') && typeof schema.safeParse === 'function'
}

/** The same for a schema inside another, which may have been used: then it has its own `~standard`. */
function isGenuine(schema: unknown): schema is ZodSchema {
  if (typeof schema !== 'object' || schema === null || !('_zod' in schema)) return false
  const { _zod, meta } = schema as Partial<ZodSchema>
  return (
    isRecord(_zod) && isRecord(_zod.def) && _zod.constr === schema.constructor && typeof meta === 'function'
  )
}

/** The key of a schema; undefined if it has none. */
export function keyOf(schema: ZodSchema): SchemaKey | undefined {
  const writer: Writer = { text: '', functions: '', isExact: true, defaults: NONE }
  try {
    if (!writeSchema(writer, schema, 0, undefined)) return undefined
  } catch {
    // A getter of the author threw. The conversion reports it.
    return undefined
  }
  const { text, functions, isExact, defaults } = writer
  if (text.length > MAX_TEXT) return undefined
  return { text, exact: isExact ? text + functions : undefined, defaults }
}

/** True if the conversion saw the defaults that are in the key. */
export function fitsDefaults({ defaults }: SchemaKey, json: JsonSchema): boolean {
  for (const [name, value] of defaults) {
    const fields = isRecord(json.properties) ? json.properties : {}
    const field = Object.hasOwn(fields, name) ? fields[name] : undefined
    if (!isRecord(field) || JSON.stringify(field.default) !== JSON.stringify(value)) return false
  }
  return true
}

/** Texts are written behind their length, so that no two definitions are written alike. */
interface Writer {
  text: string
  functions: string
  isExact: boolean
  defaults: ReadonlyMap<string, unknown>
}

const NONE: ReadonlyMap<string, unknown> = new Map()

/** Functions and constructors by identity. A function has a number from the second time on: many are created for one schema. */
const numbers = new WeakMap<object, number>()
let lastNumber = 0

/** Returns false if there is no key, as all of these do. `field`: the field of the form that only wrappers surround. */
function writeSchema(writer: Writer, schema: unknown, depth: number, field: string | undefined): boolean {
  if (depth > MAX_DEPTH || writer.text.length > MAX_TEXT || !isGenuine(schema)) return false
  const { _zod } = schema
  const { def, constr, parent } = _zod
  if (!TYPES.has(def.type) || _zod.toJSONSchema !== undefined) return false
  writer.text += `<${numberOf(constr)}`
  if (!writeDefinition(writer, def, depth, field)) return false
  // The choices that it validates with. Those of its definition belong to the author, who may have changed them since.
  if (def.type === 'enum' || def.type === 'literal') {
    if (!(_zod.values instanceof Set) || !writeValue(writer, [..._zod.values], depth + 1)) return false
  }
  const meta = schema.meta()
  if (meta !== undefined) {
    // Schemas with an id become definitions of their own, so the JSON depends on which of them are the same object.
    if (!isRecord(meta) || meta.id !== undefined) return false
    writer.text += '#'
    if (!writeData(writer, meta, depth)) return false
  }
  if (parent !== undefined) {
    writer.text += '^'
    if (!writeSchema(writer, parent, depth + 1, undefined)) return false
  }
  writer.text += '>'
  return true
}

function writeDefinition(
  writer: Writer,
  def: Record<string, unknown>,
  depth: number,
  field: string | undefined,
): boolean {
  const { type } = def
  // All names: some definitions have members that are not enumerable.
  for (const name of Object.getOwnPropertyNames(def)) {
    const value = def[name]
    writer.text += `,${name.length}.${name}:`
    if (name === 'shape') {
      if (!writeShape(writer, value, depth)) return false
    } else if (name === 'checks') {
      if (!Array.isArray(value) || !value.every((check) => writeCheck(writer, check, depth))) return false
    } else if (name === 'defaultValue') {
      if (field === undefined || writer.defaults.has(field)) return false
      writer.defaults = new Map(writer.defaults).set(field, value)
      writer.isExact = false
      if (!writeData(writer, value, depth)) return false
    } else if (name === 'innerType') {
      const inner = WRAPPERS.has(type) ? field : undefined
      if (!writeSchema(writer, value, depth + 1, inner)) return false
    } else if (!writeValue(writer, value, depth + 1)) return false
  }
  return true
}

function writeShape(writer: Writer, shape: unknown, depth: number): boolean {
  if (!isRecord(shape) || Object.getOwnPropertySymbols(shape).length > 0) return false
  for (const name in shape) {
    writer.text += `${name.length}.${name}=`
    if (!writeSchema(writer, shape[name], depth + 1, depth === 0 ? name : undefined)) return false
  }
  return true
}

/** Checks of the library whose definition says what they do. */
const CHECKS: ReadonlySet<unknown> = new Set([
  'less_than',
  'greater_than',
  'multiple_of',
  'number_format',
  'max_length',
  'min_length',
  'length_equals',
  'string_format',
  'overwrite',
])

/** What `.refine` adds has its function in the definition; what `.check` and `.superRefine` add is that function. */
function writeCheck(writer: Writer, check: unknown, depth: number): boolean {
  const { _zod } = check as { _zod?: Partial<Internals> & { check?: unknown; onattach?: unknown } }
  if (!isRecord(_zod) || !isRecord(_zod.def)) return false
  const { def, constr } = _zod
  writer.text += constr === undefined ? '{' : `{${numberOf(constr)}`
  const isDefined = constr !== undefined && (CHECKS.has(def.check) || typeof def.fn === 'function')
  if (!isDefined) {
    if (!Array.isArray(_zod.onattach) || _zod.onattach.length > 0) return false
    if (!writeValue(writer, _zod.check, depth + 1)) return false
  }
  if (!writeDefinition(writer, def, depth + 1, undefined)) return false
  writer.text += '}'
  return true
}

/** What goes into the JSON as it is. A function in it, such as `toJSON`, may change what it becomes. */
function writeData(writer: Writer, value: unknown, depth: number): boolean {
  const { functions, isExact } = writer
  writer.functions = ''
  writer.isExact = true
  const isWritten = writeValue(writer, value, depth + 1) && writer.functions === '' && writer.isExact
  writer.functions = functions
  writer.isExact = isExact
  return isWritten
}

function writeValue(writer: Writer, value: unknown, depth: number): boolean {
  switch (typeof value) {
    case 'string':
      writer.text += `'${value.length}.${value}`
      return true
    case 'undefined':
    case 'boolean':
      writer.text += String(value)
      return true
    case 'number':
      writer.text += Object.is(value, -0) ? '-0' : String(value)
      return true
    case 'function':
      writeFunction(writer, value)
      return true
    case 'object':
      return writeObject(writer, value, depth)
    default:
      return false
  }
}

function writeFunction(writer: Writer, value: object): void {
  writer.text += 'f'
  if (numbers.has(value)) writer.functions += ` ${numberOf(value)}`
  else writer.isExact = false
  numberOf(value)
}

function writeObject(writer: Writer, value: object | null, depth: number): boolean {
  if (value === null) {
    writer.text += 'null'
    return true
  }
  if (depth > MAX_DEPTH) return false
  if (value instanceof RegExp) {
    // A pattern with code of the author.
    if (Object.getPrototypeOf(value) !== RegExp.prototype || Object.keys(value).length > 0) return false
    writer.text += `/${value.flags}/${value.source.length}.${value.source}`
    return true
  }
  if ('_zod' in value) return writeSchema(writer, value, depth, undefined)
  if (Array.isArray(value)) {
    writer.text += '['
    for (const one of value) {
      if (!writeValue(writer, one, depth + 1)) return false
      writer.text += ','
    }
    writer.text += ']'
    return true
  }
  const prototype = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) return false
  if (Object.getOwnPropertySymbols(value).length > 0) return false
  writer.text += '{'
  for (const name in value) {
    writer.text += `${name.length}.${name}:`
    if (!writeValue(writer, (value as Record<string, unknown>)[name], depth + 1)) return false
    writer.text += ','
  }
  writer.text += '}'
  return true
}

function numberOf(value: object): number {
  let number = numbers.get(value)
  if (number === undefined) {
    number = ++lastNumber
    numbers.set(value, number)
  }
  return number
}
