/**
 * A token with any change at all is refused. The same search against two decoders with one check removed finds mutants
 * that they accept, so a zero here means something.
 */

import { createDecipheriv, createHash, createHmac, hkdfSync } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { openEnvelope, sealEnvelope } from '../../packages/rondo/src/seal/envelope.ts'
import { seededRandom, testSeed } from '../../packages/store-kit/src/harness.ts'
import { AUDIENCE, ringOf } from '../support/seal-fixtures.ts'
import { tokenMutators } from '../support/token-mutators.ts'

const MUTANTS = process.env.RONDO_LONG ? 1_000_000 : 20_000
const MAX_BYTES = 64 * 1024

const ring = ringOf('a', 'b')

const genuine = [0, 10, 250, 251, 700, 4_500].flatMap((size) =>
  [ring, ringOf('b')].map((by) => sealEnvelope(by, AUDIENCE, Buffer.alloc(size, size)).token),
)

type Opener = (token: string) => boolean

const opens: Opener = (token) => openEnvelope(ring, AUDIENCE, token, MAX_BYTES).kind === 'open'

/** Decodes like `Buffer`, without comparing the encoding. */
const opensLeniently: Opener = (token) => {
  const raw = Buffer.from(token.slice(3), 'base64url')
  return opens(`r1.${raw.toString('base64url')}`)
}

/** Decrypts and never checks the tag. */
function opensWithoutTag(token: string): boolean {
  const raw = Buffer.from(token.slice(3), 'base64url')
  const key = raw.length >= 338 && raw[1] === 2 ? ring.find(raw.readUInt32BE(2)) : undefined
  if (key === undefined || token !== `r1.${raw.toString('base64url')}`) return false
  const label = Buffer.from('rondo seal\0')
  const info = Buffer.concat([label, raw.subarray(0, 6)])
  const okm = Buffer.from(hkdfSync('sha256', key.secret, raw.subarray(6, 22), info, 64))
  const audience = createHash('sha256').update(JSON.stringify(AUDIENCE)).digest()
  const context = Buffer.concat([label, audience, raw.subarray(0, 6)])
  const commitment = createHmac('sha256', okm.subarray(32)).update(context).digest()
  if (!commitment.equals(raw.subarray(34, 66))) return false
  const decipher = createDecipheriv('aes-256-gcm', okm.subarray(0, 32), raw.subarray(22, 34))
  const padded = decipher.update(raw.subarray(66, -16))
  return padded.readUInt32BE(0) <= padded.length
}

interface Hunt {
  readonly tried: Readonly<Record<string, number>>
  /** Mutants that opened, each with the mutation that made it. */
  readonly accepted: readonly string[]
}

function hunt(open: Opener, mutants: number, seed: number): Hunt {
  const random = seededRandom(seed)
  const originals = new Set(genuine)
  const ways = Object.keys(tokenMutators)
  const tried: Record<string, number> = Object.fromEntries(ways.map((way) => [way, 0]))
  const accepted: string[] = []
  for (let count = 0; count < mutants; count++) {
    const way = random.pick(ways)
    const mutant = tokenMutators[way]?.({ token: random.pick(genuine), other: random.pick(genuine), random })
    if (mutant === undefined || originals.has(mutant)) continue
    tried[way] = (tried[way] ?? 0) + 1
    if (open(mutant)) accepted.push(`${way}: ${mutant}`)
  }
  return { tried, accepted }
}

describe('mutated tokens', () => {
  const seed = testSeed()
  const note = `seed ${seed}: run again with RONDO_SEED=${seed}`

  it('control: every genuine token opens', () => {
    expect(genuine.filter(opens)).toEqual(genuine)
  })

  it(`P2 P3 B4 accepts none of ${MUTANTS} mutants`, () => {
    const { tried, accepted } = hunt(opens, MUTANTS, seed)
    expect(accepted, note).toEqual([])
    const fewest = Math.min(...Object.values(tried))
    expect(fewest, `${note}: ${JSON.stringify(tried)}`).toBeGreaterThan(MUTANTS / 100)
  })

  it('B4 control: finds mutants that a lenient decoder accepts', () => {
    expect(hunt(opensLeniently, 2_000, seed).accepted.length, note).toBeGreaterThan(50)
  })

  it('B4 control: finds mutants that are accepted without the tag check', () => {
    expect(hunt(opensWithoutTag, 4_000, seed).accepted.length, note).toBeGreaterThan(50)
  })
})
