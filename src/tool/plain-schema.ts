/**
 * Checks values against plain JSON Schema, with @cfworker/json-schema as the engine.
 *
 * The engine gets a copy that holds known keywords only, and in which everything that costs more than the length of the
 * value (patterns, formats, uniqueItems) stands behind a limit on that length (T11). References stay within the
 * schema: nothing is ever fetched. The engine is loaded when the first plain schema is compiled; until it is there,
 * checks are asynchronous.
 */

import type { OutputUnit, SchemaDraft, Validator } from '@cfworker/json-schema'
import { misuse } from '../errors.ts'
import type { JsonSchema } from '../protocol/wire.ts'
import { formatPath, MAX_PROBLEMS, type Problem, type Result } from './problem.ts'
import { isObject, listSubschemas, mapKeyword } from './subschemas.ts'

/** Texts longer than this are refused before a pattern or a format sees them, unless the schema has a maxLength. */
const PATTERN_TEXT_LIMIT = 4_096
/** Lists longer than this are refused before uniqueItems compares all pairs. */
const UNIQUE_ITEMS_LIMIT = 1_000

const DIALECTS: ReadonlyMap<unknown, SchemaDraft> = new Map([
  [undefined, '2020-12'],
  ['https://json-schema.org/draft/2020-12/schema', '2020-12'],
  ['https://json-schema.org/draft/2019-09/schema', '2019-09'],
  ['http://json-schema.org/draft-07/schema', '7'],
])

/** Keywords that the engine knows and that are handed to it as they are, or with the schemas in them rewritten. */
const KEYWORDS = new Set(
  `$anchor $defs $ref additionalItems additionalProperties allOf anyOf const contains definitions dependencies
  dependentRequired dependentSchemas else enum exclusiveMaximum exclusiveMinimum if items maxContains maxItems maxLength
  maxProperties maximum minContains minItems minLength minProperties minimum multipleOf not oneOf patternProperties
  prefixItems properties propertyNames required then type unevaluatedItems unevaluatedProperties`.split(
    /\s+/,
  ),
)

type Engine = typeof import('@cfworker/json-schema')
let engine: Engine | undefined

async function loadEngine(): Promise<Engine> {
  engine ??= await import('@cfworker/json-schema')
  return engine
}

/** `what` begins the messages of the TypeErrors. */
export function compilePlainSchema(
  json: JsonSchema,
  what: string,
): (value: unknown) => Result | Promise<Result> {
  const dialect = typeof json.$schema === 'string' ? json.$schema.replace(/#$/, '') : json.$schema
  const draft = DIALECTS.get(dialect)
  if (draft === undefined) {
    const known = [...DIALECTS.keys()].filter(Boolean).join(', ')
    throw misuse(`${what} is in the dialect ${String(json.$schema)}; known are ${known}`)
  }
  const schema = rewrite(json)
  assertReferences(json, schema, what)
  loadEngine().catch(() => undefined)

  let validator: Validator | undefined
  const check = ({ Validator }: Engine, value: unknown): Result => {
    validator ??= new Validator(schema, draft, false)
    return run(validator, value)
  }
  return (value) =>
    engine === undefined ? loadEngine().then((loaded) => check(loaded, value)) : check(engine, value)
}

/** The engine's copy. Its own `allOf` holds the costly keywords, each behind the limit that makes it cheap. */
function rewrite(schema: JsonSchema): JsonSchema {
  const copy: Record<string, unknown> = {}
  for (const [keyword, value] of Object.entries(schema)) {
    if (KEYWORDS.has(keyword)) copy[keyword] = mapKeyword(keyword, value, rewrite)
  }
  const guards: JsonSchema[] = []
  const { pattern, format, maxLength, uniqueItems } = schema
  if (typeof pattern === 'string' || typeof format === 'string') {
    const limit = typeof maxLength === 'number' ? maxLength : PATTERN_TEXT_LIMIT
    // The engine's expression for the format "url", which no draft has, takes exponential time.
    const costly = format === 'url' ? { pattern } : { pattern, format }
    guards.push({ maxLength: limit, if: { minLength: limit + 1 }, else: costly })
  }
  if (uniqueItems === true) {
    guards.push({
      maxItems: UNIQUE_ITEMS_LIMIT,
      if: { minItems: UNIQUE_ITEMS_LIMIT + 1 },
      else: { uniqueItems },
    })
  }
  if (guards.length > 0) copy.allOf = [...(Array.isArray(copy.allOf) ? copy.allOf : []), ...guards]
  return copy
}

function assertReferences(json: JsonSchema, root: JsonSchema, what: string): void {
  const all = listSubschemas(root)
  const anchors = new Set(all.map((schema) => schema.$anchor).filter((anchor) => typeof anchor === 'string'))
  for (const schema of listSubschemas(json)) {
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
    if (!anchors.has($ref.slice(1)) && !isSchema(resolve(root, $ref))) {
      throw misuse(`${what} refers to ${$ref}, where there is no schema`)
    }
  }
}

function isSchema(value: unknown): boolean {
  return typeof value === 'boolean' || isObject(value)
}

function resolve(root: JsonSchema, pointer: string): unknown {
  const names = pointer.split('/').slice(1)
  if (names.length === 0) return pointer === '#' ? root : undefined
  return names.reduce<unknown>((place, name) => {
    const key = unescapeName(name)
    if (typeof place !== 'object' || place === null || !Object.hasOwn(place, key)) return undefined
    return (place as Record<string, unknown>)[key]
  }, root)
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

function run(validator: Validator, value: unknown): Result {
  try {
    return judge(validator, value)
  } catch {
    // There is undefined in it, say: what a handler returns is judged as it would be sent.
  }
  try {
    return judge(validator, JSON.parse(JSON.stringify(value)))
  } catch {
    // A lone surrogate in a key, a cycle, or a reference in the schema that refers only to itself.
    return { ok: false, problems: [{ path: '', message: 'The value cannot be checked: is it plain JSON?' }] }
  }
}

function judge(validator: Validator, value: unknown): Result {
  const outcome = validator.validate(value)
  return outcome.valid ? { ok: true, value } : { ok: false, problems: toProblems(outcome.errors) }
}

/** Keywords that only say that something inside did not fit. */
const WRAPPERS = new Set(
  `$ref additionalItems additionalProperties allOf anyOf dependentSchemas if items oneOf patternProperties prefixItems
  properties propertyNames unevaluatedItems unevaluatedProperties`.split(/\s+/),
)

function toProblems(errors: readonly OutputUnit[]): Problem[] {
  const inner = errors.filter((error) => !WRAPPERS.has(error.keyword))
  const problems = new Map<string, Problem>()
  for (const error of inner.length > 0 ? inner : errors) {
    const path = formatPath(error.instanceLocation.split('/').slice(1).map(unescapeName))
    const message = toMessage(error)
    problems.set(`${path} ${message}`, { path, message })
    if (problems.size === MAX_PROBLEMS) break
  }
  return [...problems.values()]
}

function unescapeName(name: string): string {
  return decode(name).replaceAll('~1', '/').replaceAll('~0', '~')
}

function toMessage(error: OutputUnit): string {
  if (error.keyword === 'false') return 'This is not allowed here'
  return error.error
    .replace(/^Instance does not have required property/, 'Required is the property')
    .replace(/^Instance type/, 'The type')
    .replace(/^Instance/, 'The value')
    .replace(/\.$/, '')
}
