/**
 * The headers that mirror the body, compared with it (threat T13: a gateway that routes on the header and a server
 * that acts on the body must see the same request).
 *
 * Header names come in lower case; values are compared after decoding. A header that is missing where the body has
 * the value, differs from it, stands for an argument the body lacks, or holds characters no header may hold is
 * refused. An argument that is null or absent needs no header.
 */

import { RondoError } from '../../errors.ts'
import { decodeHeaderValue } from '../header-value.ts'
import type { ParamHeader } from '../param-header.ts'

/** Gives a header by its lower-case name. */
export type HeaderReader = (name: string) => string | undefined

const CARRIED = /^[\t -~]*$/
const DECIMAL = /^-?\d+(?:\.\d+)?$/

/** The version header, without blanks around it. */
export function versionHeader(headers: HeaderReader): string | undefined {
  return headers('mcp-protocol-version')?.trim()
}

export function checkMethodHeader(headers: HeaderReader, method: string): void {
  const value = headers('mcp-method')
  if (value === method) return
  if (value === undefined) throw new RondoError('PEER_HEADER', 'The Mcp-Method header is missing')
  if (value.trim() !== method) throw new RondoError('PEER_HEADER', 'Mcp-Method does not match the method')
}

export function checkNameHeader(headers: HeaderReader, name: string): void {
  const value = headers('mcp-name')
  if (value === undefined) throw new RondoError('PEER_HEADER', 'The Mcp-Name header is missing')
  if (read('Mcp-Name', value) !== name) {
    throw new RondoError('PEER_HEADER', 'Mcp-Name does not match the body')
  }
}

export function checkParamHeaders(
  headers: HeaderReader,
  mirrored: readonly ParamHeader[],
  args: Readonly<Record<string, unknown>>,
): void {
  for (const { header, path } of mirrored) {
    const name = `Mcp-Param-${header}`
    const sent = headers(name.toLowerCase())
    const text = sent === undefined ? undefined : read(name, sent)
    const value = valueAt(args, path)
    if (value === undefined || value === null) {
      if (text !== undefined) throw new RondoError('PEER_HEADER', `${name} stands for an absent argument`)
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
  // 42.0 and 42 are one integer; past the safe range two integers may look like one.
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
