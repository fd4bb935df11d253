/**
 * The validator of plain JSON Schema: 2020-12, 2019-09 and draft 7. A schema is compiled into nodes once. The time that a
 * validation takes is bounded by the size of the schema times the size of the value, whoever wrote the value (T11):
 *
 * 1. The target of a reference is judged once per value. Without that, alternatives that refer to each other (the schema of
 *    an expression) multiply with every level of the value.
 * 2. A text longer than the limit is refused before a pattern sees it. `uniqueItems` compares canonical texts in a set.
 * 3. A verdict holds at most ten faults, with paths relative to its place.
 */

import { misuse } from '../../errors.ts'
import { FORMATS } from '../../form/field.ts'
import { countCharacters } from '../../form/judge.ts'
import { canonicalJson, isRecord } from '../../lib/json.ts'
import type { JsonSchema } from '../../protocol/wire.ts'
import { assertReferences, findTarget, listSubschemas } from './subschemas.ts'

/** A problem of a value, and its path: `items[0].name`, or an empty path for the value as a whole. */
export interface Problem {
  readonly path: string
  readonly message: string
}

/** The value as the handler receives it, or what is wrong with it. */
export type Result<T = unknown> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly problems: readonly Problem[] }

/** More would help nobody, and a hostile value can have any number of them. */
export const MAX_PROBLEMS = 10

export interface TextBounds {
  /** Characters of one string in arguments or in an answer; a longer one is refused like any invalid value. Default: 1,048,576. */
  readonly maxTextLength: number
  /**
   * Characters of a string that a `pattern` is matched against, unless the schema itself has a `maxLength`; a longer one is refused
   * like any invalid value. Default: 1000.
   */
  readonly maxPatternText: number
}

export const TEXT_BOUNDS: TextBounds = { maxTextLength: 1_048_576, maxPatternText: 1_000 }

interface Fault {
  readonly path: readonly PropertyKey[]
  readonly message: string
}

interface Verdict {
  readonly faults: Fault[]
  /** Names and indexes that some keyword has judged; kept only where `unevaluated…` asks for them. */
  readonly seen: Set<string | number> | undefined
  /** Nodes that this verdict would have taken if nothing were remembered. */
  cost: number
}

/** The state of one validation. */
export interface Run {
  readonly bounds: TextBounds
  /** Whether some `unevaluated…` needs to know what was judged. */
  readonly tracksSeen: boolean
  readonly known: Map<SchemaNode, Map<unknown, Verdict>>
  /** Nodes that were judged. */
  steps: number
}

export type Test = (value: unknown, verdict: Verdict, run: Run) => void

export interface SchemaNode {
  tests: readonly Test[]
  /** Has schemas inside, so that its verdicts are worth remembering. */
  composite: boolean
}

const DIALECTS = [
  undefined,
  'https://json-schema.org/draft/2020-12/schema',
  'https://json-schema.org/draft/2019-09/schema',
  'http://json-schema.org/draft-07/schema',
]

/** Compiles a schema into a function that validates. `what` begins the messages of the TypeErrors. */
export function compilePlainSchema(
  json: JsonSchema,
  what: string,
  bounds: TextBounds = TEXT_BOUNDS,
): (value: unknown) => Result {
  const dialect = typeof json.$schema === 'string' ? json.$schema.replace(/#$/, '') : json.$schema
  if (!DIALECTS.some((known) => known === dialect)) {
    const known = DIALECTS.filter(Boolean).join(', ')
    throw misuse(
      `${what} is in the dialect ${String(json.$schema)}, which is not supported: use one of ${known}`,
    )
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
      // It holds undefined, for example. What a handler returns is judged as it would be sent.
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

export function toProblems(faults: readonly Fault[]): Problem[] {
  return faults.map(({ path, message }) => ({ path: formatPath(path), message }))
}

/** `['items', 0, 'first name']` as `items[0]["first name"]`. */
export function formatPath(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, part) => {
    const name = String(part).slice(0, 100)
    if (/^[0-9]+$/.test(name)) return `${text}[${name}]`
    if (!/^[\w$-]+$/.test(name)) return `${text}[${JSON.stringify(name)}]`
    return text === '' ? name : `${text}.${name}`
  }, '')
}

export function judge(node: SchemaNode, value: unknown, run: Run): Verdict {
  run.steps++
  const verdict: Verdict = { faults: [], seen: run.tracksSeen ? new Set() : undefined, cost: 1 }
  for (const test of node.tests) test(value, verdict, run)
  return verdict
}

/** Judges the target of a reference once per value: the verdict is the same wherever the value is. */
function judgeOnce(node: SchemaNode, value: unknown, run: Run): Verdict {
  if (!node.composite) return judge(node, value, run)
  const verdicts = run.known.get(node) ?? new Map<unknown, Verdict>()
  const verdict = verdicts.get(value) ?? judge(node, value, run)
  run.known.set(node, verdicts.set(value, verdict))
  return verdict
}

export function fail(verdict: Verdict, message: string, path: readonly PropertyKey[] = []): void {
  if (verdict.faults.length < MAX_PROBLEMS) verdict.faults.push({ path, message })
}

/** Adds the verdict on a part of the value. */
export function addPart(verdict: Verdict, part: Verdict, name: string | number): void {
  verdict.cost += part.cost
  verdict.seen?.add(name)
  for (const { path, message } of part.faults) fail(verdict, message, [name, ...path])
}

/** Adds the verdict of another schema on the same value. */
export function addSame(verdict: Verdict, other: Verdict): boolean {
  verdict.cost += other.cost
  for (const { path, message } of other.faults) fail(verdict, message, path)
  return addSeen(verdict, other)
}

function addSeen(verdict: Verdict, other: Verdict): boolean {
  if (other.faults.length > 0) return false
  for (const name of other.seen ?? []) verdict.seen?.add(name)
  return true
}

export type Compile = (schema: unknown) => SchemaNode

export const ALWAYS: SchemaNode = { tests: [], composite: false }

/** The tests that a schema compiles to, and the node for the schema `false`. */
interface CompilerOptions {
  tests(schema: JsonSchema, compile: Compile): Test[]
  readonly never: SchemaNode
}

const NEVER: SchemaNode = {
  composite: false,
  tests: [(_value, verdict) => fail(verdict, 'This is not allowed here')],
}

export function createCompiler(
  root: JsonSchema,
  { tests, never }: CompilerOptions = { tests: allTests, never: NEVER },
): Compile {
  const isDraft7 = typeof root.$schema === 'string' && root.$schema.includes('draft-07')
  const nodes = new Map<JsonSchema, SchemaNode>()
  const compile: Compile = (schema) => {
    if (schema === false) return never
    if (!isRecord(schema)) return ALWAYS
    const known = nodes.get(schema)
    if (known !== undefined) return known
    const node: SchemaNode = { tests: [], composite: listSubschemas(schema).length > 1 || '$ref' in schema }
    nodes.set(schema, node)
    // In draft 7 a reference overrides the keywords beside it.
    const part = isDraft7 && schema.$ref !== undefined ? { $ref: schema.$ref } : schema
    node.tests = [...referenceTests(root, part, compile), ...tests(part, compile)]
    return node
  }
  return compile
}

function allTests(schema: JsonSchema, compile: Compile): Test[] {
  return [
    ...valueTests(schema),
    ...textTests(schema),
    ...numberTests(schema),
    ...inPlaceTests(schema, compile),
    ...objectTests(schema, compile),
    ...arrayTests(schema, compile),
    // Last, because these depend on what the other keywords have judged.
    ...unevaluatedTests(schema, compile),
  ]
}

function referenceTests(root: JsonSchema, { $ref }: JsonSchema, compile: Compile): Test[] {
  if (typeof $ref !== 'string') return []
  const target = findTarget(root, $ref)
  let node: SchemaNode | undefined
  return [
    (value, verdict, run) => {
      node ??= compile(target ?? true)
      addSame(verdict, judgeOnce(node, value, run))
    },
  ]
}

type JsonType = 'null' | 'boolean' | 'number' | 'string' | 'array' | 'object'

function typeOf(value: unknown): JsonType {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'array'
  const type = typeof value
  if (type === 'boolean' || type === 'number' || type === 'string' || type === 'object') return type
  throw new TypeError(`A value of type ${type} is not JSON`)
}

const SHOWN_VALUES = 300

function show(values: readonly unknown[]): string {
  const text = values.map((value) => JSON.stringify(value)).join(', ')
  return text.length > SHOWN_VALUES ? `${text.slice(0, SHOWN_VALUES)}…` : text
}

function valueTests({ type, const: constant, enum: values }: JsonSchema): Test[] {
  const types = Array.isArray(type) ? type : type === undefined ? undefined : [type]
  const allowed = Array.isArray(values) ? values : undefined
  const isOne = (list: readonly unknown[]): ((value: unknown) => boolean) => {
    const texts = new Set(list.map(canonicalJson))
    const isFlat = list.every((one) => typeof one !== 'object' || one === null)
    return (value) =>
      isFlat && typeof value === 'object' && value !== null ? false : texts.has(canonicalJson(value))
  }
  const inEnum = allowed && isOne(allowed)
  const isConstant = constant === undefined ? undefined : isOne([constant])
  return [
    (value, verdict) => {
      // Needed without `type`, too: it throws on what is not JSON.
      const found = typeOf(value)
      const fits = types?.some((one) => one === found || (one === 'integer' && Number.isInteger(value)))
      if (fits === false) fail(verdict, `The type must be ${types?.join(' or ')}, not ${found}`)
      if (inEnum?.(value) === false) fail(verdict, `The value must be one of ${show(allowed ?? [])}`)
      if (isConstant?.(value) === false) fail(verdict, `The value must be ${show([constant])}`)
    },
  ]
}

/** Returns whether a text matches; the caller has checked its length. */
function matcher(pattern: string): (text: string) => boolean {
  let expression: RegExp
  try {
    expression = new RegExp(pattern, 'u')
  } catch {
    expression = new RegExp(pattern)
  }
  return (text) => expression.test(text)
}

export function textLimit(
  { maxLength, contentEncoding }: JsonSchema,
  { maxPatternText, maxTextLength }: TextBounds,
): number {
  // Libraries describe encoded bytes with a linear pattern, and files are long.
  if (typeof contentEncoding === 'string') return maxTextLength
  return typeof maxLength === 'number' ? maxLength : maxPatternText
}

export function sayTooLong(limit: number): string {
  return `The text is too long: at most ${limit} characters are allowed where a pattern applies`
}

function textTests(schema: JsonSchema): Test[] {
  const { minLength, maxLength, pattern, format } = schema
  const matches = typeof pattern === 'string' ? matcher(pattern) : undefined
  const isFormat = typeof format === 'string' ? FORMAT_TESTS.get(format) : undefined
  if ([minLength, maxLength, matches, isFormat].every((one) => one === undefined)) return []
  return [
    (value, verdict, { bounds }) => {
      if (typeof value !== 'string') return
      const length = countCharacters(value)
      if (typeof minLength === 'number' && length < minLength)
        fail(verdict, `The text is too short: ${length} characters, at least ${minLength} are needed`)
      if (typeof maxLength === 'number' && length > maxLength)
        return fail(verdict, `The text is too long: ${length} characters, at most ${maxLength} are allowed`)
      const limit = textLimit(schema, bounds)
      if (matches !== undefined && length > limit) return fail(verdict, sayTooLong(limit))
      if (matches?.(value) === false) fail(verdict, 'The text does not match the pattern')
      if (isFormat?.(value) === false) fail(verdict, `The text does not match the format "${format}"`)
    },
  ]
}

/** The formats that are checked; any other is an annotation. Each check takes linear time. */
const FORMAT_TESTS: ReadonlyMap<string, (text: string) => boolean> = new Map([
  ...Object.entries(FORMATS).map(([name, { test }]): [string, (text: string) => boolean] => [name, test]),
  ['time', (text) => FORMATS['date-time'].test(`2000-01-01T${text}`)],
  ['uuid', (text) => /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text)],
  ['ipv4', isIpv4],
  ['ipv6', (text) => /^[0-9a-f:.]{2,45}$/i.test(text) && URL.canParse(`http://[${text}]/`)],
  ['hostname', (text) => text.length <= 253 && text.split('.').every(isLabel)],
])

function isIpv4(text: string): boolean {
  const parts = text.split('.', 5)
  return parts.length === 4 && parts.every((part) => /^(?:0|[1-9]\d{0,2})$/.test(part) && Number(part) <= 255)
}

/** Whether an internationalized label (`xn--…`) decodes to something is not checked: platforms disagree. */
function isLabel(text: string): boolean {
  return /^[a-z0-9-]{1,63}$/i.test(text) && !text.startsWith('-') && !text.endsWith('-')
}

function numberTests({
  minimum,
  maximum,
  exclusiveMinimum,
  exclusiveMaximum,
  multipleOf,
}: JsonSchema): Test[] {
  const bound = (
    limit: unknown,
    isBroken: (value: number, limit: number) => boolean,
    words: string,
  ): Test[] =>
    typeof limit !== 'number'
      ? []
      : [
          (value, verdict) => {
            if (typeof value === 'number' && isBroken(value, limit))
              fail(verdict, `${value} must be ${words} ${limit}`)
          },
        ]
  return [
    ...bound(minimum, (value, limit) => value < limit, 'at least'),
    ...bound(maximum, (value, limit) => value > limit, 'at most'),
    ...bound(exclusiveMinimum, (value, limit) => value <= limit, 'more than'),
    ...bound(exclusiveMaximum, (value, limit) => value >= limit, 'less than'),
    ...bound(multipleOf, (value, limit) => !isMultiple(value, limit), 'a multiple of'),
  ]
}

/** Compares decimals as they are written: 0.3 is a multiple of 0.1. */
function isMultiple(value: number, of: number): boolean {
  if (!(of > 0) || !Number.isFinite(value)) return false
  const quotient = value / of
  if (!Number.isFinite(quotient)) return value % of === 0
  const tolerance = Math.min(1e-6, Math.abs(quotient) * 2 ** -50)
  return Math.abs(quotient - Math.round(quotient)) <= tolerance
}

function listOf(value: unknown, compile: Compile): SchemaNode[] | undefined {
  return Array.isArray(value) ? value.map(compile) : undefined
}

function inPlaceTests(schema: JsonSchema, compile: Compile): Test[] {
  const tests: Test[] = []
  const { not, if: condition } = schema
  const [all, any, one] = [schema.allOf, schema.anyOf, schema.oneOf].map((list) => listOf(list, compile))
  for (const node of all ?? [])
    tests.push((value, verdict, run) => void addSame(verdict, judge(node, value, run)))
  if (any) tests.push(alternatives(any, (matches) => matches > 0, 'any'))
  if (one) tests.push(alternatives(one, (matches) => matches === 1, 'exactly one'))
  if (not !== undefined) {
    const node = compile(not)
    tests.push((value, verdict, run) => {
      const inner = judge(node, value, run)
      verdict.cost += inner.cost
      if (inner.faults.length === 0) fail(verdict, 'The value matches what the schema excludes with "not"')
    })
  }
  if (condition !== undefined) {
    const node = compile(condition)
    const [then, otherwise] = [compile(schema.then ?? true), compile(schema.else ?? true)]
    tests.push((value, verdict, run) => {
      const inner = judge(node, value, run)
      verdict.cost += inner.cost
      addSame(verdict, judge(addSeen(verdict, inner) ? then : otherwise, value, run))
    })
  }
  return tests
}

function alternatives(
  nodes: readonly SchemaNode[],
  isRight: (matches: number) => boolean,
  words: string,
): Test {
  return (value, verdict, run) => {
    const inner = nodes.map((node) => judge(node, value, run))
    for (const { cost } of inner) verdict.cost += cost
    const matches = inner.filter((one) => addSeen(verdict, one)).length
    if (isRight(matches)) return
    if (matches > 0) return fail(verdict, `The value matches ${matches} alternatives instead of ${words}`)
    if (inner.length === 0) fail(verdict, 'The schema has no alternative that the value could match')
    for (const { faults } of inner) for (const { path, message } of faults) fail(verdict, message, path)
  }
}

export function entriesOf(value: unknown): [string, unknown][] {
  return isRecord(value) ? Object.entries(value) : []
}

/** The schemas of `patternProperties`, each with a function that matches names. */
function namePatterns(
  value: unknown,
  compile: Compile,
): { matches: (name: string) => boolean; node: SchemaNode }[] {
  return entriesOf(value).map(([pattern, schema]) => ({ matches: matcher(pattern), node: compile(schema) }))
}

export function objectTests(schema: JsonSchema, compile: Compile): Test[] {
  const tests: Test[] = []
  const add = (test: (value: Record<string, unknown>, verdict: Verdict, run: Run) => void): void => {
    tests.push((value, verdict, run) => {
      if (isRecord(value)) test(value, verdict, run)
    })
  }
  const { required, minProperties, maxProperties, propertyNames, additionalProperties: others } = schema
  if (Array.isArray(required)) {
    add((value, verdict) => {
      for (const name of required) {
        if (!Object.hasOwn(value, name)) fail(verdict, `Missing required property "${name}"`)
      }
    })
  }
  if (typeof minProperties === 'number' || typeof maxProperties === 'number') {
    add((value, verdict) => {
      const count = Object.keys(value).length
      if (typeof minProperties === 'number' && count < minProperties)
        fail(verdict, `There must be at least ${minProperties} properties, not ${count}`)
      if (typeof maxProperties === 'number' && count > maxProperties)
        fail(verdict, `There must be at most ${maxProperties} properties, not ${count}`)
    })
  }
  if (propertyNames !== undefined) {
    const node = compile(propertyNames)
    add((value, verdict, run) => {
      for (const name of Object.keys(value)) {
        const inner = judge(node, name, run)
        verdict.cost += inner.cost
        for (const { message } of inner.faults)
          fail(verdict, `The name of the property is not valid: ${message}`, [name])
      }
    })
  }
  const properties = new Map(entriesOf(schema.properties).map(([name, inner]) => [name, compile(inner)]))
  const patterns = namePatterns(schema.patternProperties, compile)
  const rest = others === undefined ? undefined : compile(others)
  if (properties.size > 0 || patterns.length > 0 || rest !== undefined) {
    add((value, verdict, run) => {
      for (const [name, inner] of Object.entries(value)) {
        const nodes: (SchemaNode | undefined)[] = [properties.get(name)]
        if (patterns.length > 0 && name.length > run.bounds.maxPatternText) {
          fail(verdict, sayTooLong(run.bounds.maxPatternText), [name])
          continue
        }
        for (const { matches, node } of patterns) if (matches(name)) nodes.push(node)
        const found = nodes.filter((node) => node !== undefined)
        if (found.length === 0 && rest !== undefined) found.push(rest)
        for (const node of found) addPart(verdict, judge(node, inner, run), name)
      }
    })
  }
  for (const [name, needed] of [...entriesOf(schema.dependentRequired), ...entriesOf(schema.dependencies)]) {
    if (!Array.isArray(needed)) continue
    add((value, verdict) => {
      if (!Object.hasOwn(value, name)) return
      for (const other of needed) {
        if (!Object.hasOwn(value, other))
          fail(verdict, `Missing property "${other}", which "${name}" requires`)
      }
    })
  }
  for (const [name, inner] of [...entriesOf(schema.dependentSchemas), ...entriesOf(schema.dependencies)]) {
    if (Array.isArray(inner)) continue
    const node = compile(inner)
    add((value, verdict, run) => {
      if (Object.hasOwn(value, name)) addSame(verdict, judge(node, value, run))
    })
  }
  return tests
}

function arrayTests(schema: JsonSchema, compile: Compile): Test[] {
  const tests: Test[] = []
  const add = (test: (value: readonly unknown[], verdict: Verdict, run: Run) => void): void => {
    tests.push((value, verdict, run) => {
      if (Array.isArray(value)) test(value, verdict, run)
    })
  }
  const { minItems, maxItems, uniqueItems, contains } = schema
  if (typeof minItems === 'number' || typeof maxItems === 'number') {
    add(({ length }, verdict) => {
      if (typeof minItems === 'number' && length < minItems)
        fail(verdict, `There must be at least ${minItems} items, not ${length}`)
      if (typeof maxItems === 'number' && length > maxItems)
        fail(verdict, `There must be at most ${maxItems} items, not ${length}`)
    })
  }
  if (uniqueItems === true) {
    add((value, verdict) => {
      const firsts = new Map<string, number>()
      for (const [i, item] of value.entries()) {
        const text = canonicalJson(item)
        const first = firsts.get(text)
        if (first !== undefined) return fail(verdict, `The items ${first} and ${i} are equal`)
        firsts.set(text, i)
      }
    })
  }
  const { first, rest } = itemNodes(schema, compile)
  if (first.length > 0 || rest !== undefined) {
    add((value, verdict, run) => {
      for (let i = 0; i < value.length; i++) {
        const node = first[i] ?? (i < first.length ? undefined : rest)
        if (node !== undefined) addPart(verdict, judge(node, value[i], run), i)
      }
    })
  }
  if (contains !== undefined) {
    const node = compile(contains)
    const min = typeof schema.minContains === 'number' ? schema.minContains : 1
    const max = typeof schema.maxContains === 'number' ? schema.maxContains : Number.POSITIVE_INFINITY
    add((value, verdict, run) => {
      let count = 0
      for (const [i, item] of value.entries()) {
        const inner = judge(node, item, run)
        verdict.cost += inner.cost
        if (inner.faults.length > 0) continue
        count++
        verdict.seen?.add(i)
      }
      if (count < min) fail(verdict, `At least ${min} items must match "contains", and ${count} do`)
      if (count > max) fail(verdict, `At most ${max} items may match "contains", and ${count} do`)
    })
  }
  return tests
}

/** The schemas of the first items, one each, and the schema of the rest, in the spelling of any draft. */
export function itemNodes(
  { prefixItems, items, additionalItems }: JsonSchema,
  compile: Compile,
): { first: readonly SchemaNode[]; rest: SchemaNode | undefined } {
  const list = Array.isArray(items) ? items : prefixItems
  const rest = Array.isArray(items) ? additionalItems : items
  return { first: listOf(list, compile) ?? [], rest: rest === undefined ? undefined : compile(rest) }
}

function unevaluatedTests({ unevaluatedProperties, unevaluatedItems }: JsonSchema, compile: Compile): Test[] {
  const tests: Test[] = []
  const add = (schema: unknown, isPart: (value: unknown) => boolean): void => {
    if (schema === undefined) return
    const node = compile(schema)
    tests.push((value, verdict, run) => {
      if (!isPart(value)) return
      const parts: [string | number, unknown][] = Array.isArray(value)
        ? [...value.entries()]
        : entriesOf(value)
      for (const [name, inner] of parts) {
        if (!verdict.seen?.has(name)) addPart(verdict, judge(node, inner, run), name)
      }
    })
  }
  add(unevaluatedProperties, isRecord)
  add(unevaluatedItems, Array.isArray)
  return tests
}
