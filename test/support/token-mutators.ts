/** Ways to turn a genuine token into another string, from crude to subtle. */

import type { SeededRandom } from '../../packages/store-kit/src/harness.ts'

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
const INTRUDERS = ['=', '+', '/', ' ', '\n', '\r\n', '\t', '\0', '.', ',', '%', '\ufeff', '\u200b', '\ud800']
const PREFIXES = [
  '',
  'r1',
  'R1.',
  'r2.',
  'r0.',
  'r1..',
  'r01.',
  ' r1.',
  '\uff521.',
  'r1,',
  'r1.r1.',
  'r\u00b9.',
]
const LOOK_ALIKES: Readonly<Record<string, string>> = {
  A: '\u0410',
  K: '\u212a',
  S: '\u017f',
  a: '\u0430',
  e: '\u0435',
  o: '\u043e',
  '-': '\u2010',
  _: '\uff3f',
  1: '\uff11',
}

export interface MutationInput {
  /** The token to change. */
  readonly token: string
  /** Another genuine token to take pieces from. */
  readonly other: string
  readonly random: SeededRandom
}

type Mutator = (input: MutationInput) => string

/** Header, salt, nonce, commitment: the borders inside the bytes. */
const BORDERS = [0, 1, 2, 6, 22, 34, 66]

export const tokenMutators: Readonly<Record<string, Mutator>> = {
  'flip bits': ({ token, random }) => {
    const raw = bytesOf(token)
    for (let flips = 1 + random.below(4); flips > 0; flips--) {
      const at = random.below(raw.length)
      raw[at] = (raw[at] ?? 0) ^ (1 << random.below(8))
    }
    return textOf(raw)
  },
  'replace a character': ({ token, random }) =>
    splice(token, random.below(token.length), 1, random.pick([...ALPHABET])),
  'change case': ({ token, random }) => {
    const at = random.below(token.length)
    const letter = token.charAt(at)
    return splice(token, at, 1, letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase())
  },
  'spare bits of the last character': ({ token, random }) =>
    splice(token, token.length - 1, 1, random.pick([...ALPHABET])),
  'cut off': ({ token, random }) =>
    random.below(4) === 0 ? token.slice(random.below(40)) : token.slice(0, random.below(token.length)),
  'cut bytes out': ({ token, random }) => {
    const raw = bytesOf(token)
    const at = random.below(raw.length)
    return textOf(Buffer.concat([raw.subarray(0, at), raw.subarray(at + random.pick([1, 3, 16, 256]))]))
  },
  'put characters after': ({ token, random }) =>
    token + Array.from({ length: 1 + random.below(8) }, () => random.pick([...ALPHABET])).join(''),
  'put bytes in': ({ token, random }) => {
    const raw = bytesOf(token)
    const at = random.pick([0, 22, 66, raw.length - 16, raw.length, random.below(raw.length)])
    const more = Buffer.alloc(random.pick([1, 16, 256]), random.below(2))
    return textOf(Buffer.concat([raw.subarray(0, at), more, raw.subarray(at)]))
  },
  'swap segments': ({ token, random }) => {
    const raw = bytesOf(token)
    const size = random.pick([1, 4, 16, 32])
    const from = random.below(raw.length - size)
    const to = random.below(raw.length - size)
    const piece = Buffer.from(raw.subarray(from, from + size))
    raw.copyWithin(from, to, to + size)
    raw.set(piece, to)
    return textOf(raw)
  },
  'join two tokens': ({ token, other, random }) => {
    const raw = bytesOf(token)
    const border = random.pick([...BORDERS, raw.length - 16])
    return textOf(Buffer.concat([bytesOf(other).subarray(0, border), raw.subarray(border)]))
  },
  'put a piece of another token in': ({ token, other, random }) => {
    const raw = bytesOf(token)
    const [start, end] = random.pick([
      [2, 6],
      [6, 66],
      [6, 22],
      [22, 34],
      [34, 66],
      [66, 82],
    ])
    bytesOf(other).copy(raw, start, start, end)
    return textOf(raw)
  },
  'another suite': ({ token, random }) => {
    const raw = bytesOf(token)
    raw[1] = (raw[1] ?? 0) ^ (1 + random.below(255))
    return textOf(raw)
  },
  'let an intruder in': ({ token, random }) =>
    splice(token, random.below(token.length + 1), 0, random.pick(INTRUDERS)),
  'replace by an intruder': ({ token, random }) =>
    splice(token, random.below(token.length), 1, random.pick(INTRUDERS)),
  'pad at the end': ({ token, random }) => token + random.pick(['=', '==', '===', ' ', '\n', '.', '\0']),
  'the other alphabet': ({ token, random }) =>
    random.below(2) === 0
      ? token.replaceAll('-', '+').replaceAll('_', '/')
      : token.replace(/[-_]/, swapAlphabet),
  'a look-alike': ({ token, random }) => {
    const spots = [...token].flatMap((character, at) => (character in LOOK_ALIKES ? [at] : []))
    const at = random.pick(spots)
    return splice(token, at, 1, LOOK_ALIKES[token.charAt(at)] ?? '')
  },
  'a character whose low byte is right': ({ token, random }) => {
    const at = random.below(token.length)
    const high = 0x100 * (1 + random.below(255))
    return splice(token, at, 1, String.fromCharCode(token.charCodeAt(at) + high))
  },
  'percent encoding': ({ token, random }) => {
    const at = random.below(token.length)
    return splice(token, at, 1, `%${token.charCodeAt(at).toString(16)}`)
  },
  'another prefix': ({ token, random }) => random.pick(PREFIXES) + token.slice(3),
}

function bytesOf(token: string): Buffer {
  return Buffer.from(token.slice(3), 'base64url')
}

function textOf(raw: Buffer): string {
  return `r1.${raw.toString('base64url')}`
}

function splice(text: string, at: number, remove: number, insert: string): string {
  return text.slice(0, at) + insert + text.slice(at + remove)
}

function swapAlphabet(character: string): string {
  return character === '-' ? '+' : '/'
}
