/**
 * The parts that HTTP adds to a message: its status, and the headers that mirror the body. They must agree with it, so that a gateway
 * that routes on the header and a server that acts on the body see the same request (threat T13). A header is refused if
 * it is missing, differs from the body, names an absent argument, or is malformed. A null argument needs no header.
 *
 * In a value (`Mcp-Name`, `Mcp-Param-…`) visible ASCII goes as it is. Text that a header would change or forbid, and text
 * that looks like the encoded form, goes as `=?base64?` + standard base64 of the UTF-8 bytes + `?=`.
 *
 * value 1: decode(encode(text)) = text for every well-formed string.
 * value 2: A text has one encoded form: loose base64 and bytes that are not UTF-8 decode to undefined.
 */

import { RondoError } from '../../errors.ts'
import type { Reply } from '../reply.ts'

/** The headers of a request, by their lower-case names. */
export type RequestHeaders = Readonly<Record<string, string | undefined>>

const CARRIED = /^[\t -~]*$/
const DECIMAL = /^-?\d+(?:\.\d+)?$/

/** The version header, trimmed. */
export function versionHeader(headers: RequestHeaders): string | undefined {
  return headers['mcp-protocol-version']?.trim()
}

export function checkMethodHeader(headers: RequestHeaders, method: string): void {
  const value = headers['mcp-method']
  if (value === method) return
  if (value === undefined) throw new RondoError('PEER_HEADER', 'The Mcp-Method header is missing')
  if (value.trim() !== method) throw new RondoError('PEER_HEADER', 'Mcp-Method does not match the method')
}

export function checkNameHeader(headers: RequestHeaders, name: string): void {
  const value = headers['mcp-name']
  if (value === undefined) throw new RondoError('PEER_HEADER', 'The Mcp-Name header is missing')
  if (value === name && PLAIN.test(value) && !isEncoded(value)) return
  if (read('Mcp-Name', value) !== name) {
    throw new RondoError('PEER_HEADER', 'Mcp-Name does not match the body')
  }
}

export function checkParamHeaders(
  headers: RequestHeaders,
  mirrored: readonly ParamHeader[],
  args: Readonly<Record<string, unknown>>,
): void {
  for (const { header, path } of mirrored) {
    const name = `Mcp-Param-${header}`
    const sent = headers[name.toLowerCase()]
    const text = sent === undefined ? undefined : read(name, sent)
    const value = valueAt(args, path)
    if (value === undefined || value === null) {
      if (text !== undefined) throw new RondoError('PEER_HEADER', `${name} names an argument that is absent`)
    } else if (isPrimitive(value)) {
      if (text === undefined) throw new RondoError('PEER_HEADER', `The ${name} header is missing`)
      if (!stands(text, value)) throw new RondoError('PEER_HEADER', `${name} does not match the argument`)
    }
  }
}

function read(name: string, value: string): string {
  const text = CARRIED.test(value) ? decodeHeaderValue(value) : undefined
  if (text === undefined) throw new RondoError('PEER_HEADER', `${name} is not a valid header value`)
  return text
}

function stands(text: string, value: string | number | boolean): boolean {
  if (text === String(value)) return true
  // 42.0 and 42 are the same integer; beyond the safe range, two integers may compare as equal.
  return Number.isSafeInteger(value) && DECIMAL.test(text) && Number(text) === value
}

function isPrimitive(value: unknown): value is string | number | boolean {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'
}

function valueAt(root: unknown, path: readonly string[]): unknown {
  let node = root
  for (const key of path) {
    if (typeof node !== 'object' || node === null || !Object.hasOwn(node, key)) return undefined
    node = (node as Record<string, unknown>)[key]
  }
  return node
}

/** The HTTP status of a reply that is sent as one JSON body. */
export function statusOf(reply: Reply): number {
  return reply.kind === 'error' ? reply.error.http : 200
}

const PREFIX = '=?base64?'
const SUFFIX = '?='

const PLAIN = /^(?:[!-~](?:[ -~]*[!-~])?)?$/
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

export function encodeHeaderValue(text: string): string {
  return PLAIN.test(text) && !isEncoded(text) ? text : PREFIX + toBase64(text) + SUFFIX
}

/** The text of a header value; undefined if the encoded form is malformed. Blanks around a plain value are ignored. */
export function decodeHeaderValue(value: string): string | undefined {
  const trimmed = value.replace(/^[ \t]+|[ \t]+$/g, '')
  if (!isEncoded(trimmed)) return trimmed
  return fromBase64(trimmed.slice(PREFIX.length, -SUFFIX.length))
}

function isEncoded(text: string): boolean {
  return text.length >= PREFIX.length + SUFFIX.length && text.startsWith(PREFIX) && text.endsWith(SUFFIX)
}

function toBase64(text: string): string {
  let binary = ''
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte)
  return btoa(binary)
}

function fromBase64(encoded: string): string | undefined {
  if (!BASE64.test(encoded)) return undefined
  const binary = atob(encoded)
  if (btoa(binary) !== encoded) return undefined
  const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0))
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return undefined
  }
}

/** A tool argument that is mirrored into a `Mcp-Param-…` header. */
export interface ParamHeader {
  /** The part after `Mcp-Param-`. */
  readonly header: string
  /** The path of the argument in `arguments`. */
  readonly path: readonly string[]
}

export type ParamHeaderScan =
  | { readonly kind: 'good'; readonly headers: readonly ParamHeader[] }
  | { readonly kind: 'bad'; readonly problem: string }

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const TYPES = new Set(['string', 'integer', 'boolean'])
/** Deeper schemas are refused. */
const MAX_DEPTH = 64

/**
 * Finds the `x-mcp-header` annotations of an input schema, and the first problem: a tool with one must not be used over
 * HTTP. An annotation belongs on a string, integer or boolean that is reached through `properties` alone, is an HTTP
 * token, and is unique regardless of case.
 */
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

/** The headers of one call, by name. Arguments that are absent, null or not primitive have none. */
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
    // These hold values, not schemas: an example may contain the word.
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

function headerText(value: unknown): string | undefined {
  if (typeof value === 'string') return value
  if (typeof value === 'boolean') return String(value)
  return Number.isSafeInteger(value) ? String(value) : undefined
}
