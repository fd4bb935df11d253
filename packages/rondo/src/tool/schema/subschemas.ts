/**
 * The structure of a JSON Schema: which schemas it has inside, and what its references lead to. One table of keywords serves
 * everything that walks a schema, so that a keyword is known either everywhere or nowhere. References stay within the
 * schema: nothing is ever fetched.
 */

import { misuse } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type { JsonSchema } from '../../protocol/wire.ts'

/** Keywords whose value is a schema. `items` may also be a list (draft 7). */
const ONE = new Set([
  'additionalItems',
  'additionalProperties',
  'contains',
  'else',
  'if',
  'items',
  'not',
  'propertyNames',
  'then',
  'unevaluatedItems',
  'unevaluatedProperties',
])
/** Keywords whose value is a list of schemas. */
const LIST = new Set(['allOf', 'anyOf', 'items', 'oneOf', 'prefixItems'])
/** Keywords whose value is an object of schemas. */
const MAP = new Set([
  '$defs',
  'definitions',
  'dependencies',
  'dependentSchemas',
  'patternProperties',
  'properties',
])

const MAX_SCHEMA_DEPTH = 64

/** The schema itself and every schema inside it. Deeper nesting than the limit is a TypeError. */
export function listSubschemas(schema: JsonSchema, depth = 0): JsonSchema[] {
  if (depth > MAX_SCHEMA_DEPTH) throw misuse(`A schema may nest at most ${MAX_SCHEMA_DEPTH} levels`)
  const inner = Object.entries(schema).flatMap(([keyword, value]) => schemasOf(keyword, value))
  return [schema, ...inner.flatMap((one) => listSubschemas(one, depth + 1))]
}

function schemasOf(keyword: string, value: unknown): JsonSchema[] {
  if (Array.isArray(value)) return LIST.has(keyword) ? value.filter(isRecord) : []
  if (!isRecord(value)) return []
  if (ONE.has(keyword)) return [value]
  return MAP.has(keyword) ? Object.values(value).filter(isRecord) : []
}

/** The schema that a reference names by anchor or JSON pointer; undefined if there is none. */
export function findTarget(root: JsonSchema, $ref: string): unknown {
  const anchored = listSubschemas(root).find(
    ({ $anchor, $dynamicAnchor }) =>
      ($anchor !== undefined && $ref === `#${$anchor}`) ||
      ($dynamicAnchor !== undefined && $ref === `#${$dynamicAnchor}`),
  )
  return anchored ?? resolve(root, $ref)
}

function resolve(root: JsonSchema, pointer: string): unknown {
  if (!pointer.startsWith('#')) return undefined
  const names = pointer.split('/').slice(1)
  if (names.length === 0) return pointer === '#' ? root : undefined
  return names.reduce<unknown>((place, name) => {
    const key = decode(name).replaceAll('~1', '/').replaceAll('~0', '~')
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

/** Refuses references that the validator does not follow. `what` begins the message. */
export function assertReferences(json: JsonSchema, what: string): void {
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

// The regular expressions in a schema. One that does not compile, or is very long, is refused. In development mode one that may
// take exponential time causes a warning, if the package `redos-detector` is installed; at run time the length of the text
// is limited instead (`limits.maxPatternText`).

const MAX_PATTERN = 4_000

/** Milliseconds for one pattern. The detector runs in the event loop of a developer's process. */
const TIMEOUT_MS = 500

/** Refuses patterns that cannot be used. `what` begins the message. */
export function assertPatterns(json: JsonSchema, what: string): void {
  for (const pattern of listPatterns(json)) {
    if (pattern.length > MAX_PATTERN)
      throw misuse(`${what} has a pattern that is longer than ${MAX_PATTERN} characters`)
    if (!compiles(pattern, 'u') && !compiles(pattern, ''))
      throw misuse(`${what} has the pattern ${pattern}, which is not a regular expression`)
  }
}

export async function warnOfPatterns(
  what: string,
  json: JsonSchema,
  warn: (message: string) => void,
  load: () => Promise<typeof import('redos-detector') | undefined> = loadDetector,
): Promise<void> {
  const patterns = listPatterns(json, { own: true })
  if (patterns.length === 0) return
  const detector = await load()
  for (const pattern of detector ? new Set(patterns) : []) {
    if (isSafe(detector, pattern)) continue
    warn(
      `${what} has the pattern ${pattern}, which redos-detector does not consider safe: some text may take it exponential time. Rewrite it, or set a short maxLength.`,
    )
  }
}

/** Bundlers refuse an import of a package that is not installed, unless it stands in a `try`. */
async function loadDetector(): Promise<typeof import('redos-detector') | undefined> {
  try {
    return await import('redos-detector')
  } catch {
    return undefined
  }
}

/** With `own`, without the patterns that a library wrote for a format. */
function listPatterns(json: JsonSchema, { own = false } = {}): string[] {
  return listSubschemas(json).flatMap(({ pattern, patternProperties, format }) => [
    ...(typeof pattern === 'string' && !(own && format !== undefined) ? [pattern] : []),
    ...(isRecord(patternProperties) ? Object.keys(patternProperties) : []),
  ])
}

function compiles(pattern: string, flags: string): boolean {
  try {
    new RegExp(pattern, flags)
    return true
  } catch {
    return false
  }
}

function isSafe(detector: typeof import('redos-detector') | undefined, pattern: string): boolean {
  try {
    return detector?.isSafePattern(pattern, { timeout: TIMEOUT_MS, unicode: true }).safe ?? true
  } catch {
    return true // It reads fewer patterns than the engine does.
  }
}
