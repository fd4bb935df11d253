/**
 * Tool arguments that are mirrored into `Mcp-Param-…` headers (`x-mcp-header` in a tool's input schema).
 *
 * `scanParamHeaders` finds the annotations and says what is wrong with the first bad one: a tool with a bad annotation
 * is not to be used over HTTP. An annotation belongs on a string, integer or boolean that is reached through
 * `properties` alone, is an HTTP token, and is unique without regard to case. Anywhere else in the schema it is a fault.
 */

import { encodeHeaderValue } from './header-value.ts'

/** One mirrored argument. */
export interface ParamHeader {
  /** The part after `Mcp-Param-`. */
  readonly header: string
  /** Where the argument is in `arguments`. */
  readonly path: readonly string[]
}

export type ParamHeaderScan =
  | { readonly kind: 'good'; readonly headers: readonly ParamHeader[] }
  | { readonly kind: 'bad'; readonly problem: string }

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const TYPES = new Set(['string', 'integer', 'boolean'])
/** Deeper schemas are not looked into: whoever nests that deep has nothing to mirror. */
const MAX_DEPTH = 64

export function scanParamHeaders(inputSchema: unknown): ParamHeaderScan {
  const headers: ParamHeader[] = []
  const problem = visit(inputSchema, [], true, 0, headers)
  if (problem !== undefined) return { kind: 'bad', problem }
  const seen = new Set<string>()
  for (const { header } of headers) {
    const lower = header.toLowerCase()
    if (seen.has(lower)) return { kind: 'bad', problem: `the header "${header}" is declared twice` }
    seen.add(lower)
  }
  return { kind: 'good', headers }
}

/** The headers of one call, by name. Arguments that are absent, null or no primitive have none. */
export function paramHeaderValues(
  headers: readonly ParamHeader[],
  args: Readonly<Record<string, unknown>>,
): Record<string, string> {
  const values: Record<string, string> = {}
  for (const { header, path } of headers) {
    const text = headerText(valueAt(args, path))
    if (text !== undefined) values[`Mcp-Param-${header}`] = encodeHeaderValue(text)
  }
  return values
}

function visit(
  node: unknown,
  path: readonly string[],
  reachable: boolean,
  depth: number,
  found: ParamHeader[],
): string | undefined {
  if (typeof node !== 'object' || node === null) return undefined
  if (depth > MAX_DEPTH) return 'the schema is nested too deep'
  const schema = node as Record<string, unknown>
  if (!Array.isArray(node) && Object.hasOwn(schema, 'x-mcp-header')) {
    const problem = checkAnnotation(schema, path, reachable)
    if (problem !== undefined) return problem
    found.push({ header: String(schema['x-mcp-header']), path })
  }
  for (const [keyword, child] of Object.entries(schema)) {
    // Values, not schemas: an example may well contain the word.
    if (VALUES.has(keyword)) continue
    const problem =
      keyword === 'properties'
        ? visitProperties(child, path, reachable, depth, found)
        : visit(child, [...path, keyword], false, depth + 1, found)
    if (problem !== undefined) return problem
  }
  return undefined
}

const VALUES = new Set(['const', 'enum', 'default', 'examples'])

function visitProperties(
  properties: unknown,
  path: readonly string[],
  reachable: boolean,
  depth: number,
  found: ParamHeader[],
): string | undefined {
  if (typeof properties !== 'object' || properties === null) return undefined
  for (const [name, child] of Object.entries(properties)) {
    const problem = visit(child, [...path, name], reachable, depth + 1, found)
    if (problem !== undefined) return problem
  }
  return undefined
}

function checkAnnotation(
  schema: Readonly<Record<string, unknown>>,
  path: readonly string[],
  reachable: boolean,
): string | undefined {
  const where = `"${path.join('.')}"`
  const header = schema['x-mcp-header']
  if (path.length === 0 || !reachable) return `x-mcp-header at ${where} is not on a plain property`
  if (typeof header !== 'string' || header === '') return `x-mcp-header of ${where} is not a name`
  if (!TOKEN.test(header)) return `x-mcp-header of ${where} has characters that a header name cannot have`
  if (typeof schema.type !== 'string' || !TYPES.has(schema.type)) {
    return `x-mcp-header of ${where} is not on a string, integer or boolean`
  }
  return undefined
}

function valueAt(root: unknown, path: readonly string[]): unknown {
  let node = root
  for (const name of path) {
    if (typeof node !== 'object' || node === null || !Object.hasOwn(node, name)) return undefined
    node = (node as Record<string, unknown>)[name]
  }
  return node
}

function headerText(value: unknown): string | undefined {
  if (typeof value === 'string') return value
  if (typeof value === 'boolean') return String(value)
  return Number.isSafeInteger(value) ? String(value) : undefined
}
