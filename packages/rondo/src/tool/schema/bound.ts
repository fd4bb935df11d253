/**
 * Bounds what reaches the code of a Standard Schema, which has limits of its own or none (T11): a text too long for a pattern
 * there, or a value whose alternatives multiply. The library's JSON Schema is walked with the nodes of our validator; whether
 * the value is valid is left to the library.
 */

import { countCharacters } from '../../form/judge.ts'
import { isRecord } from '../../lib/json.ts'
import type { JsonSchema } from '../../protocol/wire.ts'
import {
  ALWAYS,
  addPart,
  addSame,
  type Compile,
  createCompiler,
  entriesOf,
  fail,
  itemNodes,
  judge,
  objectTests,
  type Problem,
  type Run,
  type SchemaNode,
  sayTooLong,
  type Test,
  type TextBounds,
  textLimit,
  toProblems,
} from './judge.ts'
import { listSubschemas } from './subschemas.ts'

/** A check that tries alternatives again at every level may take this many steps, or this many times the linear number. */
const FREE_STEPS = 100_000
const STEP_FACTOR = 64

/**
 * Finds what must not reach the schema's own code; undefined if the schema leaves nothing to find. Alternatives multiply only
 * behind references, and not where that code `remembers` its verdicts. A part of the schema that is not understood bounds
 * nothing.
 */
export function boundValue(
  json: JsonSchema,
  { remembers = false }: { readonly remembers?: boolean } = {},
): ((value: unknown, bounds: TextBounds) => Problem | undefined) | undefined {
  const isCostly = (schema: JsonSchema): boolean =>
    'pattern' in schema || 'patternProperties' in schema || '$ref' in schema
  if (!listSubschemas(json).some(isCostly)) return undefined
  const compile = createCompiler(json, { tests: boundTests, never: ALWAYS })
  let root: SchemaNode | undefined
  return (value, bounds) => {
    try {
      root ??= compile(json)
      const run: Run = { bounds, tracksSeen: false, known: new Map(), steps: 0 }
      const { faults, cost } = judge(root, value, run)
      if (faults[0] !== undefined) return toProblems(faults)[0]
      if (remembers || cost <= FREE_STEPS || cost <= STEP_FACTOR * run.steps) return undefined
      return { path: '', message: 'The value is nested too deeply for the alternatives of this schema' }
    } catch {
      // Not plain JSON, or a schema that refers only to itself: the schema's own code decides.
      return undefined
    }
  }
}

/** Enters every schema that could apply to a place, whether the value is valid there or not. */
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

/** Returns whether the properties of a value agree with the constants of the schema. */
function constantsOf(schema: unknown): (value: unknown) => boolean {
  const constants = entriesOf(isRecord(schema) ? schema.properties : undefined).flatMap(([name, inner]) =>
    isRecord(inner) && 'const' in inner ? [{ name, constant: inner.const }] : [],
  )
  return (value) =>
    !isRecord(value) || constants.every(({ name, constant }) => !(name in value) || value[name] === constant)
}
