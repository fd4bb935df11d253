/**
 * Changes a state the ways an attacker would. `forgeries` differ in what they say and must all be refused; `respellings` say
 * the same in other characters, which matters where a state must count once. Blanks and a member that nobody reads, added
 * to JSON, are of the second kind: what the state says is what it said.
 */

import type { Readable } from './readable-state.ts'

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

/** What was read, changed a little, and put back without touching what may protect it. */
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
  // Within it: a decoder of hex or base64 may pass over what follows.
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
    ...wordings(readable),
  ])
}

/** The same JSON, written differently. */
function wordings(readable: Readable | undefined): string[] {
  const value = readable?.value
  if (readable === undefined || typeof value !== 'object' || value === null) return []
  const extra = Array.isArray(value) ? value : { ...value, doctor: 1 }
  return [JSON.stringify(value, undefined, 1), JSON.stringify(extra)].map((text) => readable.write(text))
}

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'

/** The top bit of a character in base64 is never spare, so this always changes the bytes. */
function flip(state: string, at: number): string {
  const value = ALPHABET.indexOf(state[at] ?? '')
  const other = value < 0 ? (state[at] === '0' ? '1' : '0') : (ALPHABET[value ^ 32] ?? 'A')
  return state.slice(0, at) + other + state.slice(at + 1)
}

/** The last character of base64 whose length is no multiple of four has bits that mean nothing. */
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
