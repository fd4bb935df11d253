/**
 * One way to use any schema an author may bring: what clients are told (`json`) and how values are checked (`validate`).
 *
 * A Standard Schema (zod, valibot, arktype) tells its own JSON Schema and checks with its own code; plain JSON Schema is
 * checked by plain-schema.ts. Compiling happens once, when something is defined, and every fault of the schema
 * is a TypeError there. A check that can be done at once is not made asynchronous.
 */

import { misuse } from '../../errors.ts'
import type { JsonSchema } from '../../protocol/wire.ts'
import type { Schema, StandardSchema } from '../context.ts'
import { findTarget, TEXT_BOUNDS, type TextBounds } from './judge.ts'
import { listPatterns } from './pattern-warning.ts'
import { boundValue, compilePlainSchema, findLongText } from './plain.ts'
import { formatPath, isObject, MAX_PROBLEMS, type Problem, type Result } from './subschemas.ts'

export type { Problem, Result }

/** `input`: what a caller sends. `output`: what a handler gives and a caller gets. */
export type SchemaRole = 'input' | 'output'

export interface Compiled {
  readonly json: JsonSchema
  validate(value: unknown): Result | Promise<Result>
}

const TARGET = { target: 'draft-2020-12' } as const

/** Compiles a tool's schema. Its input must be an object; its output may be any JSON. */
export function compileSchema(schema: Schema, role: SchemaRole, bounds: TextBounds = TEXT_BOUNDS): Compiled {
  const what = `The ${role} schema`
  const json = toJsonSchema(schema, role, what)
  if (role === 'input' && json.type !== 'object') {
    throw misuse(`${what} must describe an object ("type": "object"): arguments are sent by name`)
  }
  assertPatterns(json, what)
  const check = isStandardSchema(schema)
    ? (value: unknown) => validateStandard(schema, value)
    : compilePlainSchema(json, what, bounds)
  // What a handler returns is its author's; what a caller sends is bounded before anybody's code judges it (T11).
  if (role === 'output') return { json, validate: check }
  const findExcess = isStandardSchema(schema)
    ? boundValue(json, { remembers: remembersVerdicts(schema) })
    : findLongText
  return {
    json,
    validate(value) {
      const excess = findExcess(value, bounds)
      return excess === undefined ? check(value) : { ok: false, problems: [excess] }
    },
  }
}

/**
 * The same schema for hosts that add arguments of their own: what it does not name is dropped before it is checked. A schema
 * that takes further names by design keeps them.
 */
export function droppingUnknown({ json, validate }: Compiled): Compiled {
  const parts = sameObject(json, json)
  const takesMore = parts.some(
    ({ patternProperties, additionalProperties, unevaluatedProperties }) =>
      patternProperties !== undefined || (additionalProperties ?? false) || (unevaluatedProperties ?? false),
  )
  if (takesMore) return { json, validate }
  const names = new Set(
    parts.flatMap(({ properties }) => (isObject(properties) ? Object.keys(properties) : [])),
  )
  return {
    json,
    validate(value) {
      if (!isObject(value)) return validate(value)
      return validate(Object.fromEntries(Object.entries(value).filter(([name]) => names.has(name))))
    },
  }
}

/** The schema and those within it that are about the same object. */
function sameObject(root: JsonSchema, schema: unknown, depth = 0): JsonSchema[] {
  if (!isObject(schema) || depth > MAX_PARTS_DEPTH) return []
  const { allOf, anyOf, oneOf, if: condition, then, else: otherwise, $ref, dependentSchemas } = schema
  const inner = [allOf, anyOf, oneOf].flatMap((list) => (Array.isArray(list) ? list : []))
  if (typeof $ref === 'string') inner.push(findTarget(root, $ref))
  if (isObject(dependentSchemas)) inner.push(...Object.values(dependentSchemas))
  const all = [...inner, condition, then, otherwise]
  return [schema, ...all.flatMap((one) => sameObject(root, one, depth + 1))]
}

const MAX_PARTS_DEPTH = 16

/** From 4.5 on, zod judges a recursive schema once per value. */
function remembersVerdicts(schema: StandardSchema): boolean {
  const { _zod } = schema as { _zod?: { version?: { major?: number; minor?: number } } }
  const { major = 0, minor = 0 } = _zod?.version ?? {}
  return major > 4 || (major === 4 && minor >= 5)
}

/** A copy of the JSON Schema that is told to clients. */
export function toJsonSchema(schema: Schema, role: SchemaRole, what: string): JsonSchema {
  if (!isStandardSchema(schema)) return copyJson(schema, what)
  const { $schema: _, ...json } = copyJson(convertStandard(schema, role, what), what)
  return json
}

export function isStandardSchema(schema: unknown): schema is StandardSchema {
  const isHolder = typeof schema === 'function' || isObject(schema)
  return isHolder && isObject((schema as unknown as Record<string, unknown>)['~standard'])
}

/** Runs the schema's own check. */
export function validateStandard(schema: StandardSchema, value: unknown): Result | Promise<Result> {
  const outcome = schema['~standard'].validate(value)
  return 'then' in outcome ? outcome.then(fromStandard) : fromStandard(outcome)
}

type StandardOutcome = Awaited<ReturnType<StandardSchema['~standard']['validate']>>

function fromStandard(outcome: StandardOutcome): Result {
  if (outcome.issues === undefined) return { ok: true, value: outcome.value }
  const problems = outcome.issues.slice(0, MAX_PROBLEMS).map((issue) => ({
    path: formatPath(Array.from(issue.path ?? [], (part) => (typeof part === 'object' ? part.key : part))),
    message: issue.message,
  }))
  return { ok: false, problems }
}

function convertStandard(schema: StandardSchema, role: SchemaRole, what: string): unknown {
  const { vendor, jsonSchema } = schema['~standard'] as Partial<StandardSchema['~standard']>
  if (typeof jsonSchema?.[role] !== 'function') {
    throw misuse(`${what} is a ${vendor} schema that cannot tell its JSON Schema: ${adviseVendor(vendor)}`)
  }
  try {
    return jsonSchema[role](TARGET)
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw misuse(`${what} cannot be written as JSON Schema, so clients could not be told it: ${reason}`, {
      cause,
    })
  }
}

function adviseVendor(vendor: string | undefined): string {
  switch (vendor) {
    case 'zod':
      return 'zod does from 4.2 on, please upgrade (and import from "zod", not "zod/v3" or "zod/mini")'
    case 'valibot':
      return 'wrap it with toStandardJsonSchema() of the package @valibot/to-json-schema'
    case 'arktype':
      return 'arktype does from 2.1.28 on, please upgrade'
    default:
      return 'see if the library has a converter to "Standard JSON Schema", or give plain JSON Schema'
  }
}

function copyJson(schema: unknown, what: string): JsonSchema {
  if (!isObject(schema)) {
    throw misuse(`${what} must be a Standard Schema (zod, valibot, arktype) or a JSON Schema object`)
  }
  try {
    return JSON.parse(JSON.stringify(schema)) as JsonSchema
  } catch (cause) {
    throw misuse(`${what} is not plain JSON (is it recursive by reference? use $defs and $ref)`, {
      cause,
    })
  }
}

function assertPatterns(json: JsonSchema, what: string): void {
  for (const pattern of listPatterns(json)) {
    if (pattern.length > MAX_PATTERN)
      throw misuse(`${what} has a pattern that is longer than ${MAX_PATTERN} characters`)
    if (!compiles(pattern, 'u') && !compiles(pattern, ''))
      throw misuse(`${what} has the pattern ${pattern}, which is not a regular expression`)
  }
}

const MAX_PATTERN = 4_000

function compiles(pattern: string, flags: string): boolean {
  try {
    new RegExp(pattern, flags)
    return true
  } catch {
    return false
  }
}
