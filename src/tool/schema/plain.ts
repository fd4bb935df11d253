/**
 * Checks values against plain JSON Schema, and bounds what reaches the code of a Standard Schema, which has bounds of its own or
 * none (T11). References stay within the schema: nothing is ever fetched.
 */

import { misuse } from '../../errors.ts'
import type { JsonSchema } from '../../protocol/wire.ts'
import {
  ALWAYS,
  addPart,
  addSame,
  type Compile,
  countCharacters,
  createCompiler,
  entriesOf,
  type Fault,
  fail,
  findTarget,
  itemNodes,
  judge,
  objectTests,
  type Run,
  type SchemaNode,
  sayTooLong,
  TEXT_BOUNDS,
  type Test,
  type TextBounds,
  textLimit,
} from './judge.ts'
import { formatPath, isObject, listSubschemas, type Problem, type Result } from './subschemas.ts'

const DIALECTS = [
  undefined,
  'https://json-schema.org/draft/2020-12/schema',
  'https://json-schema.org/draft/2019-09/schema',
  'http://json-schema.org/draft-07/schema',
]

/** `what` begins the messages of the TypeErrors. */
export function compilePlainSchema(
  json: JsonSchema,
  what: string,
  bounds: TextBounds = TEXT_BOUNDS,
): (value: unknown) => Result {
  const dialect = typeof json.$schema === 'string' ? json.$schema.replace(/#$/, '') : json.$schema
  if (!DIALECTS.some((known) => known === dialect)) {
    const known = DIALECTS.filter(Boolean).join(', ')
    throw misuse(`${what} is in the dialect ${String(json.$schema)}; known are ${known}`)
  }
  assertReferences(json, what)
  const root = createCompiler(json)(json)
  const tracksSeen = listSubschemas(json).some(
    (schema) => 'unevaluatedProperties' in schema || 'unevaluatedItems' in schema,
  )
  const check = (value: unknown): Result => {
    const { faults } = judge(root, value, { bounds, tracksSeen, known: new Map(), steps: 0 })
    return faults.length === 0 ? { ok: true, value } : { ok: false, problems: toProblems(faults) }
  }
  return (value) => {
    try {
      return check(value)
    } catch {
      // There is undefined in it, say: what a handler returns is judged as it would be sent.
    }
    try {
      return check(JSON.parse(JSON.stringify(value)))
    } catch {
      // A cycle, or a reference in the schema that refers only to itself.
      return {
        ok: false,
        problems: [{ path: '', message: 'The value cannot be checked: is it plain JSON?' }],
      }
    }
  }
}

function toProblems(faults: readonly Fault[]): Problem[] {
  return faults.map(({ path, message }) => ({ path: formatPath(path), message }))
}

/** A check that tries alternatives again at every level may take this many steps, or this many times the linear number. */
const FREE_STEPS = 100_000
const STEP_FACTOR = 64

/**
 * What must not reach the schema's own code: a text too long for a pattern there, or a value whose alternatives multiply
 * (unless that code remembers what it has judged). Says nothing about whether the value fits. A part of the schema that is not
 * understood bounds nothing.
 */
export function boundValue(
  json: JsonSchema,
  { remembers = false }: { readonly remembers?: boolean } = {},
): (value: unknown, bounds?: TextBounds) => Problem | undefined {
  const compile = createCompiler(json, { tests: boundTests, never: ALWAYS })
  let root: SchemaNode | undefined
  return (value, bounds = TEXT_BOUNDS) => {
    const long = findLongText(value, bounds)
    if (long !== undefined) return long
    try {
      root ??= compile(json)
      const run: Run = { bounds, tracksSeen: false, known: new Map(), steps: 0 }
      const { faults, cost } = judge(root, value, run)
      if (faults[0] !== undefined) return toProblems(faults)[0]
      if (remembers || cost <= FREE_STEPS || cost <= STEP_FACTOR * run.steps) return undefined
      return { path: '', message: 'The value is nested too deep for the alternatives of this schema' }
    } catch {
      // Not plain JSON, or a schema that leads only to itself: the schema's own code has the word.
      return undefined
    }
  }
}

/** The first text that is too long for anything to be done with it. */
export function findLongText(value: unknown, { maxTextLength }: TextBounds): Problem | undefined {
  const todo: { value: unknown; path: readonly PropertyKey[] }[] = [{ value, path: [] }]
  for (let next = todo.pop(); next !== undefined; next = todo.pop()) {
    const { value: here, path } = next
    if (typeof here === 'string' && here.length > maxTextLength) {
      return { path: formatPath(path), message: `The text is longer than ${maxTextLength} characters` }
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
const MAX_TEXT_DEPTH = 100

/** The walk of `boundValue`: into every schema that could be asked about a place, whether the value fits it or not. */
function boundTests(schema: JsonSchema, compile: Compile): Test[] {
  const tests: Test[] = []
  const { pattern } = schema
  if (typeof pattern === 'string') {
    tests.push((value, verdict, { bounds }) => {
      const limit = textLimit(schema, bounds)
      if (typeof value === 'string' && value.length > limit && countCharacters(value) > limit)
        fail(verdict, sayTooLong(limit))
    })
  }
  const same = [schema.allOf, schema.anyOf].flatMap((list) => (Array.isArray(list) ? list : []))
  for (const inner of [...same, schema.not, schema.if, schema.then, schema.else]) {
    if (inner === undefined) continue
    const node = compile(inner)
    tests.push((value, verdict, run) => void addSame(verdict, judge(node, value, run)))
  }
  for (const inner of Array.isArray(schema.oneOf) ? schema.oneOf : []) {
    const node = compile(inner)
    // A library that writes `oneOf` picks the alternative by its constant and tries no other.
    const isPicked = constantsOf(inner)
    tests.push((value, verdict, run) => {
      if (isPicked(value)) addSame(verdict, judge(node, value, run))
    })
  }
  const { properties, patternProperties, additionalProperties, propertyNames, contains } = schema
  const inside = { properties, patternProperties, additionalProperties, propertyNames }
  const parts = objectTests(inside, compile)
  const { first, rest } = itemNodes(schema, compile)
  const other = contains === undefined ? undefined : compile(contains)
  tests.push(...parts, (value, verdict, run) => {
    if (!Array.isArray(value)) return
    for (const [i, item] of value.entries()) {
      const node = first[i] ?? (i < first.length ? undefined : rest)
      if (node !== undefined) addPart(verdict, judge(node, item, run), i)
      if (other !== undefined) addPart(verdict, judge(other, item, run), i)
    }
  })
  return tests
}

/** Whether no property of the value contradicts a constant of the schema. */
function constantsOf(schema: unknown): (value: unknown) => boolean {
  const constants = entriesOf(isObject(schema) ? schema.properties : undefined).flatMap(([name, inner]) =>
    isObject(inner) && 'const' in inner ? [{ name, constant: inner.const }] : [],
  )
  return (value) =>
    !isObject(value) || constants.every(({ name, constant }) => !(name in value) || value[name] === constant)
}

function assertReferences(json: JsonSchema, what: string): void {
  const all = listSubschemas(json)
  for (const schema of all) {
    if ('$dynamicRef' in schema || '$recursiveRef' in schema) {
      throw misuse(`${what} uses $dynamicRef or $recursiveRef, which are not supported: use $ref`)
    }
    if (schema !== json && '$id' in schema) {
      throw misuse(`${what} has a schema with its own $id inside, which is not supported: use $defs and $ref`)
    }
  }
  for (const { $ref } of all) {
    if ($ref === undefined) continue
    if (typeof $ref !== 'string' || !$ref.startsWith('#')) {
      throw misuse(
        `${what} refers to ${String($ref)}: only references within the schema are followed, nothing is fetched. Put it under $defs and refer to "#/$defs/…"`,
      )
    }
    const target = findTarget(json, $ref)
    if (typeof target !== 'boolean' && !all.some((schema) => schema === target)) {
      throw misuse(`${what} refers to ${$ref}, where there is no schema`)
    }
  }
}
