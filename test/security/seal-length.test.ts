/**
 * The length of a token says nothing about a secret inside it, even to someone who chooses what is sealed beside it.
 *
 * The attack is the one on compressed TLS: guess the next character of the secret, have the guess sealed in the same
 * token, and see which guess makes it shortest, because a compressor encodes a right guess as a repetition. Buckets alone
 * would not help: the amount of filler that still fits into the bucket reveals the length to the byte.
 */

import { deflateRawSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { sealEnvelope } from '../../packages/rondo/src/seal/envelope.ts'
import { type Claims, encodeClaims, sealState } from '../../packages/rondo/src/seal/state.ts'
import { seededRandom, testSeed } from '../../packages/store-kit/src/harness.ts'
import { AUDIENCE, NOW, ringOf, sampleClaims } from '../support/seal-fixtures.ts'

const GUESSES = [...'0123456789abcdef']
const BUCKET = 256
const FILLER_CHARACTERS = [...'ABCDEFGHIJKLMNOPQRSTUVWXYZghijklmnopqrstuvwxyz-_']
const ring = ringOf('a')

/** The length of the token that holds this text. */
type Oracle = (chosen: string) => number

/** The content that the server seals: its own secret, and an answer that the client chose. */
function claimsWith(secret: string, chosen: string): Claims {
  return {
    ...sampleClaims,
    journal: {
      ...sampleClaims.journal,
      entries: [
        { kind: 'step', key: 'login', at: NOW, value: `apiKey=${secret};` },
        {
          kind: 'form',
          key: 'note',
          at: NOW,
          question: 'q',
          answer: { action: 'accept', content: { chosen } },
        },
      ],
    },
  }
}

function lengthOracle(secret: string): Oracle {
  return (chosen) => sealState(ring, AUDIENCE, claimsWith(secret, chosen)).bytes
}

function deflatingOracle(secret: string): Oracle {
  return (chosen) => {
    const plaintext = deflateRawSync(encodeClaims(claimsWith(secret, chosen)))
    return sealEnvelope(ring, AUDIENCE, plaintext).token.length
  }
}

/** The number of characters of the filler that fit after the text before the token grows. */
function roomAfter(oracle: Oracle, chosen: string, filler: string): number {
  const start = oracle(chosen)
  let [fits, grows] = [0, filler.length]
  while (grows - fits > 1) {
    const middle = (fits + grows) >> 1
    if (oracle(chosen + filler.slice(0, middle)) > start) grows = middle
    else fits = middle
  }
  return fits
}

/** For each guess at the next character, the room that it leaves, summed over the fillers. */
function weigh(oracle: Oracle, known: string, fillers: readonly string[]): Map<string, number> {
  return new Map(
    GUESSES.map((guess) => {
      const rooms = fillers.map((filler) => roomAfter(oracle, `apiKey=${known}${guess}~`, filler))
      return [guess, rooms.reduce((sum, room) => sum + room)]
    }),
  )
}

/** The guess that leaves more room than all others, if there is one. */
function best(weights: Map<string, number>): string | undefined {
  const [first, second] = [...weights].sort(([, a], [, b]) => b - a)
  return first !== undefined && second !== undefined && first[1] > second[1] ? first[0] : undefined
}

describe('the length of a token', () => {
  const seed = testSeed()
  const note = `seed ${seed}: run again with RONDO_SEED=${seed}`
  const random = seededRandom(seed)
  const draw = (length: number, from: readonly string[]) =>
    Array.from({ length }, () => random.pick(from)).join('')
  const fillers = Array.from({ length: 12 }, () => draw(2 * BUCKET, FILLER_CHARACTERS))
  const secret = draw(8, GUESSES)

  it('T21 B3 is the same for every guess at a secret', () => {
    for (let position = 0; position < secret.length; position++) {
      const weights = weigh(lengthOracle(secret), secret.slice(0, position), fillers.slice(0, 2))
      expect(Math.min(...weights.values()), note).toBeGreaterThan(0)
      expect(new Set(weights.values()).size, note).toBe(1)
      expect(best(weights), note).toBeUndefined()
    }
  })

  it('T21 control: reveals the secret if tokens are compressed', () => {
    const found = [...secret].filter((character, position) => {
      const weights = weigh(deflatingOracle(secret), secret.slice(0, position), fillers)
      return best(weights) === character
    })
    expect(found.length, note).toBeGreaterThanOrEqual(4)
  })

  it('T21 depends only on the number of plaintext bytes', () => {
    const lengths = Array.from({ length: 200 }, () =>
      lengthOracle(draw(64, GUESSES))(draw(300, FILLER_CHARACTERS)),
    )
    expect(new Set(lengths).size, note).toBe(1)
  })
})
