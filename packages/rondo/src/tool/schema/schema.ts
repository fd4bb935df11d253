/**
 * Reads a schema from an author, once, when something is defined: the JSON Schema that clients see (`json`) and how values are checked
 * (`validate`). Every fault of the schema is a TypeError then.
 *
 * A Standard Schema (zod, valibot, arktype) converts itself to JSON Schema and validates with its own code (`standard.ts`);
 * `judge.ts` validates plain JSON Schema.
 */

import { misuse, nearest } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type { JsonSchema } from '../../protocol/wire.ts'
import type { Schema, StandardSchema } from '../context.ts'
import { compilePlainSchema, type Problem, TEXT_BOUNDS, type TextBounds } from './judge.ts'
import { bounded, type Compiled, checkOf, isStandardSchema } from './standard.ts'
import { assertPatterns, findTarget } from './subschemas.ts'

/** `input`: what a caller sends. `output`: what a handler returns and a caller receives. */
type SchemaRole = 'input' | 'output'

const TARGET = { target: 'draft-2020-12' } as const

/** Compiles the schema of a tool or a prompt, which `of` names. Its input must be an object; its output may be any JSON. */
export function compileSchema(
  schema: Schema,
  role: SchemaRole,
  bounds: TextBounds = TEXT_BOUNDS,
  of?: string,
): Compiled {
  const what = of === undefined ? `The ${role} schema` : `The ${role} schema of ${of}`
  const json = toJsonSchema(schema, role, what)
  if (role === 'input' && json.type !== 'object') {
    throw misuse(`${what} must describe an object ("type": "object"): arguments have names`)
  }
  assertPatterns(json, what)
  const check = isStandardSchema(schema) ? checkOf(schema) : compilePlainSchema(json, what, bounds)
  // Results are the author's own. Arguments come from a caller, and are bounded before any code judges them (T11).
  return role === 'output' ? { json, validate: check } : bounded(schema, json, check, bounds)
}

const events = new WeakMap<TextBounds, WeakMap<Schema, Compiled>>()

/** Compiles the schema of an event from outside, which may be any JSON; once, if the schema outlives the round. */
export function compileEvent(schema: Schema, bounds: TextBounds = TEXT_BOUNDS): Compiled {
  const known = events.get(bounds) ?? new WeakMap<Schema, Compiled>()
  events.set(bounds, known)
  const compiled = known.get(schema) ?? compileNewEvent(schema, bounds)
  known.set(schema, compiled)
  return compiled
}

function compileNewEvent(schema: Schema, bounds: TextBounds): Compiled {
  const what = 'The schema of a hook'
  const json = toJsonSchema(schema, 'input', what)
  assertPatterns(json, what)
  // This holds for a Standard Schema too: an instance that has only its JSON Schema checks events with it.
  const plain = compilePlainSchema(json, what, bounds)
  return bounded(schema, json, isStandardSchema(schema) ? checkOf(schema) : plain, bounds)
}

/** Lists the problems in one line. */
export function describeProblems(problems: readonly Problem[]): string {
  return problems.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`)).join('; ')
}

const MAX_UNKNOWN = 5
const MAX_NAME = 64

/** Lists the problems of a call's arguments in one line. Names what is missing, and what was perhaps meant instead. */
export function describeArguments({ json }: Compiled, args: unknown, problems: readonly Problem[]): string {
  if (!isRecord(args)) return describeProblems(problems)
  const names = namesOf(json)
  const unknown = names ? Object.keys(args).filter((name) => !names.has(name)) : []
  const about = problems
    .filter(({ path }) => !unknown.includes(path))
    .map((problem) =>
      names?.has(problem.path) && !Object.hasOwn(args, problem.path)
        ? { path: '', message: `Missing required property "${problem.path}"` }
        : problem,
    )
  const hints = unknown.slice(0, MAX_UNKNOWN).flatMap((name) => {
    const meant = nearest(name, [...(names ?? [])])
    // Hosts may add arguments of their own: one that is unlike any other, and that the schema allows, is no mistake.
    if (meant === undefined && !problems.some(({ path }) => path === name)) return []
    const message = `There is no argument ${JSON.stringify(name.slice(0, MAX_NAME))}.`
    return [{ path: '', message: meant === undefined ? message : `${message} Did you mean "${meant}"?` }]
  })
  return describeProblems([...about, ...hints])
}

/** The names of the properties; undefined if the schema takes others too. */
function namesOf(json: JsonSchema): ReadonlySet<string> | undefined {
  const parts = sameObject(json, json)
  const takesMore = parts.some(
    ({ patternProperties, additionalProperties, unevaluatedProperties }) =>
      patternProperties !== undefined || (additionalProperties ?? false) || (unevaluatedProperties ?? false),
  )
  if (takesMore) return undefined
  return new Set(parts.flatMap(({ properties }) => (isRecord(properties) ? Object.keys(properties) : [])))
}

/**
 * Returns the schema for hosts that add arguments of their own: properties that it does not name are dropped before it is
 * checked. A schema that accepts further names keeps them.
 */
export function droppingUnknown({ json, validate }: Compiled): Compiled {
  const names = namesOf(json)
  if (!names) return { json, validate }
  return {
    json,
    validate(value) {
      if (!isRecord(value)) return validate(value)
      return validate(Object.fromEntries(Object.entries(value).filter(([name]) => names.has(name))))
    },
  }
}

/** The schema and those inside it that apply to the same object. */
function sameObject(root: JsonSchema, schema: unknown, depth = 0): JsonSchema[] {
  if (!isRecord(schema) || depth > MAX_PARTS_DEPTH) return []
  const { allOf, anyOf, oneOf, if: condition, then, else: otherwise, $ref, dependentSchemas } = schema
  const inner = [allOf, anyOf, oneOf].flatMap((list) => (Array.isArray(list) ? list : []))
  if (typeof $ref === 'string') inner.push(findTarget(root, $ref))
  if (isRecord(dependentSchemas)) inner.push(...Object.values(dependentSchemas))
  const all = [...inner, condition, then, otherwise]
  return [schema, ...all.flatMap((one) => sameObject(root, one, depth + 1))]
}

const MAX_PARTS_DEPTH = 16

/** A copy of the JSON Schema as clients see it. */
export function toJsonSchema(schema: Schema, role: SchemaRole, what: string): JsonSchema {
  if (!isStandardSchema(schema)) return copyJson(schema, what)
  const { $schema: _, ...json } = copyJson(convertStandard(schema, role, what), what)
  return json
}

function convertStandard(schema: StandardSchema, role: SchemaRole, what: string): unknown {
  const { vendor, jsonSchema } = schema['~standard'] as Partial<StandardSchema['~standard']>
  if (typeof jsonSchema?.[role] !== 'function') {
    throw misuse(
      `${what} is a ${vendor} schema that cannot be converted to JSON Schema: ${adviseVendor(vendor)}`,
    )
  }
  try {
    return jsonSchema[role](TARGET)
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw misuse(`${what} cannot be written as JSON Schema, which clients need: ${reason}`, {
      cause,
    })
  }
}

function adviseVendor(vendor: string | undefined): string {
  switch (vendor) {
    case 'zod':
      return 'upgrade to zod 4.2 or later (and import from "zod", not "zod/v3" or "zod/mini")'
    case 'valibot':
      return 'wrap it with toStandardJsonSchema() from the package @valibot/to-json-schema'
    case 'arktype':
      return 'upgrade to arktype 2.1.28 or later'
    default:
      return 'use its converter to "Standard JSON Schema", if it has one, or pass plain JSON Schema'
  }
}

/** An object of schemas would be taken for JSON Schema without any keyword, which accepts everything. */
function assertNoShape(schema: unknown, what: string): void {
  if (!isRecord(schema)) return
  const [name, inner] = Object.entries(schema).find(([, value]) => isStandardSchema(value as Schema)) ?? []
  if (name === undefined) return
  const { vendor } = (inner as StandardSchema)['~standard']
  const wrapped = vendor === 'zod' ? `z.object({ ${name}: … })` : `it to the object schema of ${vendor}`
  throw misuse(`${what} is an object with a schema in "${name}", and no schema itself. Pass ${wrapped}.`)
}

function copyJson(schema: unknown, what: string): JsonSchema {
  assertNoShape(schema, what)
  if (!isRecord(schema)) {
    throw misuse(`${what} must be a Standard Schema (zod, valibot, arktype) or a JSON Schema object`)
  }
  try {
    return JSON.parse(JSON.stringify(schema)) as JsonSchema
  } catch (cause) {
    throw misuse(`${what} is not plain JSON. If it contains itself, use $defs and $ref`, {
      cause,
    })
  }
}
