/**
 * Changes a state as an attacker would. `forgeries` have other content and must all be refused. `respellings` have the same
 * content in another encoding, which matters if a state must be accepted only once; spaces and an unknown member added to
 * JSON are of this kind. Also reads states, and varies the arguments of a call.
 */

import type { JsonSchema } from 'rondo/client'
import { isRecord } from 'rondo/internal'

const MAX_LEAVES = 6

export function forgeries(state: string, readable: Readable | undefined): string[] {
  const middle = Math.floor(state.length / 2)
  return unique(state, [
    ...(readable === undefined ? [] : edits(readable)),
    flip(state, middle),
    flip(state, Math.floor(state.length / 8)),
    state.slice(0, -4),
    `${state}-TAMPERED`,
    'garbage',
  ])
}

/** The readable content with small changes, without touching a signature. */
function edits(readable: Readable): string[] {
  const { value } = readable
  if (typeof value !== 'object' || value === null) return [readable.write(`${String(value)}1`)]
  return leavesOf(value)
    .slice(0, MAX_LEAVES)
    .map((path) => readable.write(JSON.stringify(change(value, path))))
}

type Path = readonly (string | number)[]

function leavesOf(value: unknown, path: Path = []): Path[] {
  if (typeof value !== 'object' || value === null) return [path]
  return path.length >= 4
    ? []
    : Object.entries(value).flatMap(([name, child]) => leavesOf(child, [...path, name]))
}

function change(value: unknown, path: Path): unknown {
  const [name, ...below] = path
  if (name === undefined) return changeLeaf(value)
  const copy = structuredClone(value) as Record<string | number, unknown>
  copy[name] = change(copy[name], below)
  return copy
}

function changeLeaf(leaf: unknown): unknown {
  if (typeof leaf === 'number') return leaf + 1
  if (typeof leaf === 'boolean') return !leaf
  if (typeof leaf !== 'string') return 1
  // In the middle: a decoder of hex or base64 may ignore what follows the end.
  return leaf === '' ? 'A' : flip(leaf, Math.floor((leaf.length - 1) / 2))
}

export function respellings(state: string, readable: Readable | undefined): string[] {
  const parts = state.split('.')
  const spare = parts.map((part, i) =>
    parts.map((one, j) => (i === j ? otherSpareBits(part) : one)).join('.'),
  )
  return unique(state, [
    `${state}=`,
    `${state} `,
    ` ${state}`,
    ...spare,
    swapAlphabet(state),
    ...rewrites(readable),
  ])
}

/** Returns other spellings of the same JSON. */
function rewrites(readable: Readable | undefined): string[] {
  const value = readable?.value
  if (readable === undefined || typeof value !== 'object' || value === null) return []
  const extra = Array.isArray(value) ? value : { ...value, doctor: 1 }
  return [JSON.stringify(value, undefined, 1), JSON.stringify(extra)].map((text) => readable.write(text))
}

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'

/** The top bit of a base64 character is always significant, so this always changes the bytes. */
function flip(state: string, at: number): string {
  const value = ALPHABET.indexOf(state[at] ?? '')
  const other = value < 0 ? (state[at] === '0' ? '1' : '0') : (ALPHABET[value ^ 32] ?? 'A')
  return state.slice(0, at) + other + state.slice(at + 1)
}

/** If the length of base64 is not a multiple of four, its last character has unused bits; flips one of them. */
function otherSpareBits(part: string): string {
  const value = ALPHABET.indexOf(part.at(-1) ?? '')
  return part.length % 4 < 2 || value < 0 ? part : part.slice(0, -1) + (ALPHABET[value ^ 1] ?? '')
}

function swapAlphabet(state: string): string {
  const swapped: Record<string, string> = { '-': '+', _: '/', '+': '-', '/': '_' }
  return state.replace(/[-_+/]/g, (char) => swapped[char] ?? char)
}

function unique(state: string, others: readonly string[]): string[] {
  return [...new Set(others)].filter((one) => one !== state)
}

/**
 * The content of a `requestState` that its holder can read: JSON, JSON in base64, JSON in one of several parts separated by dots
 * (perhaps signed), or plain text. Other readable encodings are not detected.
 */
export interface Readable {
  readonly how: 'json' | 'base64' | 'part' | 'text'
  readonly value: unknown
  /** The state with other bytes in place of those read; the rest of it stays. */
  write(text: string): string
}

export function readState(state: string): Readable | undefined {
  const plain = parse(state)
  if (plain !== undefined) return { how: 'json', value: plain, write: (text) => text }
  const whole = decode(state)
  if (whole !== undefined) return { how: 'base64', value: whole, write: (text) => encodeLike(state, text) }
  const parts = state.split('.')
  for (const [index, part] of parts.entries()) {
    const value = parts.length > 1 ? decode(part) : undefined
    // The header of a JWT has no content of interest; what follows has.
    if (value === undefined || (isJwtHeader(value) && parts.length > index + 1)) continue
    const write = (text: string) =>
      parts.map((one, i) => (i === index ? encodeLike(one, text) : one)).join('.')
    return { how: 'part', value, write }
  }
  return looksLikeText(state) ? { how: 'text', value: state, write: (text) => text } : undefined
}

function decode(text: string): unknown {
  if (text.length < 4 || !/^[A-Za-z0-9+/_-]+={0,2}$/.test(text)) return undefined
  const value = parse(Buffer.from(text, 'base64').toString('utf8'))
  return typeof value === 'object' ? value : undefined
}

function encodeLike(original: string, text: string): string {
  const bytes = Buffer.from(text)
  if (original.endsWith('=') || /[+/]/.test(original)) return bytes.toString('base64')
  return bytes.toString('base64url')
}

function isJwtHeader(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'alg' in value
}

/** True for short words with separators between them. */
function looksLikeText(state: string): boolean {
  if (!/^[\x20-\x7e]+$/.test(state) || !/[ ,;&=:|]/.test(state.replace(/=+$/, ''))) return false
  return state.split(/[ ,;&=:|]/).every((word) => word.length <= 24)
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) ?? undefined
  } catch {
    return undefined
  }
}

/** The expiry time in a readable state, in ms since the epoch; undefined if there is none. */
export function expiryOf(value: unknown): number | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  for (const [name, time] of Object.entries(value)) {
    if (!/^(exp|expires|expiry|expires_?at|expiration|valid_?until)$/i.test(name)) continue
    const at = typeof time === 'string' ? Date.parse(time) : time
    if (typeof at !== 'number' || !Number.isFinite(at)) continue
    return at < 1e11 ? at * 1000 : at
  }
  return undefined
}

type Args = Readonly<Record<string, unknown>>

const MAX_VARIANTS = 4

/** Other arguments for the same tool that are likely to be valid: each variant changes one value, according to the schema. */
export function varyArguments(args: Args, schema: JsonSchema): Args[] {
  const { properties } = schema
  if (!isRecord(properties)) return []
  const variants = Object.entries(properties).flatMap(([name, part]) => {
    const other = isRecord(part) ? otherValue(args[name], part) : undefined
    return other === undefined ? [] : [{ ...args, [name]: other }]
  })
  return variants.slice(0, MAX_VARIANTS)
}

function otherValue(value: unknown, schema: JsonSchema): unknown {
  const { type, enum: options, minimum, maximum, format } = schema
  if (Array.isArray(options)) return options.find((option) => option !== value)
  switch (type) {
    case 'boolean':
      return value !== true
    case 'integer':
    case 'number': {
      const now = typeof value === 'number' ? value : typeof minimum === 'number' ? minimum : 0
      return typeof maximum === 'number' && now + 1 > maximum ? now - 1 : now + 1
    }
    case 'string':
      return format === undefined && typeof schema.pattern !== 'string'
        ? `${String(value ?? '')}1`
        : undefined
  }
  return undefined
}
