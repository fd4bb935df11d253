/**
 * Where a JSON Schema has schemas inside. One table for everything that walks a schema, so that a keyword is either
 * known to all of it or to none.
 */

import { misuse } from '../../errors.ts'
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

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The value of one keyword with every schema in it replaced by what `change` makes of it; anything else stays. */
function mapKeyword(keyword: string, value: unknown, change: (schema: JsonSchema) => unknown): unknown {
  const one = (inner: unknown): unknown => (isObject(inner) ? change(inner) : inner)
  if (Array.isArray(value)) return LIST.has(keyword) ? value.map(one) : value
  if (!isObject(value)) return value
  if (ONE.has(keyword)) return change(value)
  if (!MAP.has(keyword)) return value
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, one(inner)]))
}

/** The schema itself and every schema inside it. Nesting past the limit is a TypeError: nobody writes it by hand. */
export function listSubschemas(schema: JsonSchema, depth = 0): JsonSchema[] {
  if (depth > MAX_SCHEMA_DEPTH) throw misuse(`A schema may nest at most ${MAX_SCHEMA_DEPTH} levels`)
  const found: JsonSchema[] = [schema]
  for (const [keyword, value] of Object.entries(schema)) {
    mapKeyword(keyword, value, (inner) => {
      found.push(...listSubschemas(inner, depth + 1))
      return inner
    })
  }
  return found
}

/* What a check says: the value as the handler sees it, or what is wrong with it. */

/** What is wrong with a value, and where: `items[0].name`, or an empty path for the value as a whole. */
export interface Problem {
  readonly path: string
  readonly message: string
}

export type Result<T = unknown> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly problems: readonly Problem[] }

/** More would help nobody, and a hostile value can have as many as it likes. */
export const MAX_PROBLEMS = 10

/** `['items', 0, 'first name']` as `items[0]["first name"]`. */
export function formatPath(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, part) => {
    const name = String(part).slice(0, 100)
    if (/^[0-9]+$/.test(name)) return `${text}[${name}]`
    if (!/^[\w$-]+$/.test(name)) return `${text}[${JSON.stringify(name)}]`
    return text === '' ? name : `${text}.${name}`
  }, '')
}
