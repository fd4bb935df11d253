/**
 * One text per JSON value: equal values have equal text, whatever the order of their keys.
 *
 * The form is RFC 8785: no white space, keys sorted by UTF-16 code units, numbers and strings as JSON.stringify writes
 * them. Unlike the RFC, it accepts lone surrogates and writes them as escapes, so every string that JSON can carry has a
 * text, and no two share one. -0 is 0. Members that are undefined are omitted.
 *
 * It uses a stack of its own, so depth costs memory and never overflows. What is not JSON (NaN, a Date, a Map, a
 * function, a cycle) is a TypeError: two different values must not have the same digest by accident.
 */

import { createHmac, hash } from 'node:crypto'

/** Deeper than any guarded input; reached only by a cycle. */
const MAX_DEPTH = 100_000

interface Frame {
  readonly container: readonly unknown[] | Readonly<Record<string, unknown>>
  /** The sorted keys of an object; undefined for an array. */
  readonly keys: readonly string[] | undefined
  next: number
}

export function canonicalJson(value: unknown): string {
  const frames: Frame[] = []
  let text = enter(value, frames)
  for (let frame = frames.at(-1); frame !== undefined; frame = frames.at(-1)) {
    const { container, keys } = frame
    const index = frame.next++
    if (index === (keys ?? (container as readonly unknown[])).length) {
      text += keys === undefined ? ']' : '}'
      frames.pop()
      continue
    }
    if (index > 0) text += ','
    if (keys === undefined) {
      text += enter((container as readonly unknown[])[index], frames)
    } else {
      const key = keys[index] as string
      text += `${quote(key)}:${enter((container as Record<string, unknown>)[key], frames)}`
    }
  }
  return text
}

/** Returns the whole text of a leaf, or the opening bracket of a container, whose frame it pushes. */
function enter(value: unknown, frames: Frame[]): string {
  switch (typeof value) {
    case 'string':
      return quote(value)
    case 'number':
      if (!Number.isFinite(value)) throw new TypeError(`${value} is not JSON`)
      return String(value)
    case 'boolean':
      return String(value)
    case 'object':
      return value === null ? 'null' : enterContainer(value, frames)
    default:
      throw new TypeError(`a value of type ${typeof value} is not JSON`)
  }
}

/** Printable ASCII except the quote and the backslash: what JSON does not escape. */
const PLAIN = /^[ !#-[\]-~]*$/

function quote(text: string): string {
  return PLAIN.test(text) ? `"${text}"` : JSON.stringify(text)
}

function enterContainer(value: object, frames: Frame[]): string {
  if (frames.length === MAX_DEPTH) throw new TypeError('the value contains itself')
  if (Array.isArray(value)) {
    frames.push({ container: value, keys: undefined, next: 0 })
    return '['
  }
  if (!isPlain(value)) throw new TypeError('an instance of a class is not JSON')
  const container = value as Record<string, unknown>
  frames.push({ container, keys: sortedKeys(container), next: 0 })
  return '{'
}

function sortedKeys(members: Readonly<Record<string, unknown>>): readonly string[] {
  const keys = Object.keys(members)
  let isSorted = true
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i] as string
    if (members[key] === undefined) return keys.filter((name) => members[name] !== undefined).sort()
    if (i > 0 && key < (keys[i - 1] as string)) isSorted = false
  }
  return isSorted ? keys : keys.sort()
}

/** True for object literals and null-prototype objects, including those of another realm. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}

/**
 * Returns the SHA-256 of a text as 43 characters of base64url. Use it on the output of `canonicalJson`, which has no lone
 * surrogates: in UTF-8 they would all be the same.
 */
export function digest(text: string): string {
  return hash('sha256', text, 'base64url')
}

/** HMAC-SHA-256 of a label: bytes that depend on the seed and the label alone. */
export function derive(seed: string, label: string): Uint8Array {
  return createHmac('sha256', seed).update(label).digest()
}
