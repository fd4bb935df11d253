import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  AUDIENCE,
  claims,
  expectedFor,
  NOW,
  ringOf,
  sampleClaims,
} from '../../../../test/support/seal-fixtures.ts'
import type { Principal } from '../protocol/call.ts'
import { sealEnvelope } from './envelope.ts'
import type { KeyRing } from './key-ring.ts'
import {
  type Claims,
  type Expected,
  openState,
  principalTag,
  refusalError,
  requestDigest,
  STATE_LIMITS,
  type StateRefusal,
  sealState,
} from './state.ts'

const ring = ringOf('a')
const expected = expectedFor(sampleClaims)

function seal(sealed: Claims = sampleClaims, by: KeyRing = ring): string {
  const state = sealState(by, AUDIENCE, sealed)
  if (state.kind !== 'sealed') throw new Error(`not sealed: ${state.kind}`)
  return state.token
}

function reasonOf(token: unknown, asked: Expected = expected): StateRefusal | 'open' {
  const opened = openState(ring, AUDIENCE, token, asked)
  return opened.kind === 'open' ? 'open' : opened.reason
}

/** A genuine envelope around something else than claims. */
function around(plaintext: string): string {
  return sealEnvelope(ring, AUDIENCE, plaintext).token
}

/** A square in which only the diagonal opens. */
function diagonal(size: number, reason: StateRefusal): (StateRefusal | 'open')[][] {
  return Array.from({ length: size }, (_, row) =>
    Array.from({ length: size }, (_, column) => (row === column ? 'open' : reason)),
  )
}

describe('sealState and openState', () => {
  it('P1 opens to the claims that were sealed, whatever JSON they hold', () => {
    fc.assert(
      fc.property(claims, (sealed) => {
        const state = sealState(ring, AUDIENCE, sealed, { ...STATE_LIMITS, maxBytes: 1_000_000 })
        if (state.kind !== 'sealed') throw new Error(state.kind)
        expect(state.bytes).toBe(state.token.length)
        const opened = openState(ring, AUDIENCE, state.token, expectedFor(sealed), {
          ...STATE_LIMITS,
          maxBytes: state.bytes,
        })
        expect(opened).toEqual({ kind: 'open', claims: sealed, keyId: 'a' })
      }),
    )
  })

  it('P6 R1 refuses when any one binding differs, each with its own reason', () => {
    const flips: [Partial<Expected>, StateRefusal][] = [
      [{ now: sampleClaims.issuedAt - STATE_LIMITS.clockSkewMs - 1 }, 'early'],
      [{ now: sampleClaims.roundExpires }, 'expired'],
      [{ now: sampleClaims.flowExpires }, 'flow-expired'],
      [{ now: Number.NaN }, 'early'],
      [{ principal: 'anonymous' }, 'principal'],
      [{ method: 'prompts/get' }, 'method'],
      [{ request: 'other' }, 'request'],
      [{ protocolVersion: '2025-11-25' }, 'protocol'],
    ]
    const token = seal()
    expect(reasonOf(token)).toBe('open')
    for (const [flip, reason] of flips) expect(reasonOf(token, { ...expected, ...flip })).toBe(reason)
  })

  it('B5 T1 opens for the principal it was sealed for and for no other, with or without a subject', () => {
    const callers: (Principal | undefined)[] = [
      undefined,
      { subject: 'alice', issuer: 'https://id.example', client: 'desktop' },
      { subject: 'bob', issuer: 'https://id.example', client: 'desktop' },
      { subject: 'alice', issuer: 'https://other.example', client: 'desktop' },
      { subject: 'alice' },
    ]
    const table = callers.map((owner) => {
      const token = seal({ ...sampleClaims, principal: principalTag(owner) })
      return callers.map((caller) => reasonOf(token, { ...expected, principal: principalTag(caller) }))
    })
    expect(table).toEqual(diagonal(callers.length, 'principal'))
  })

  it('B7 T2 opens for the request it was sealed for and for no other', () => {
    const requests: [string, string, Record<string, unknown> | undefined][] = [
      ['tools/call', 'pay', { amount: 10 }],
      ['tools/call', 'pay', { amount: 1000 }],
      ['tools/call', 'pay', undefined],
      ['tools/call', 'refund', { amount: 10 }],
    ]
    const table = requests.map((asked) => {
      const token = seal({ ...sampleClaims, request: requestDigest(...asked) })
      return requests.map((given) => reasonOf(token, { ...expected, request: requestDigest(...given) }))
    })
    expect(table).toEqual(diagonal(requests.length, 'request'))
  })

  it('P6 T2 refuses a state sealed for another audience', () => {
    const opened = openState(ring, `${AUDIENCE}/`, seal(), expected)
    expect(opened).toEqual({ kind: 'refused', reason: 'commitment', keyId: 'a' })
  })

  it('P6 refuses any other text in any binding', () => {
    const member = fc.constantFrom('principal', 'method', 'request', 'protocolVersion' as const)
    fc.assert(
      fc.property(claims, member, fc.string({ unit: 'binary' }), (sealed, flipped, other) => {
        const asked = expectedFor(sealed)
        fc.pre(asked[flipped] !== other)
        expect(reasonOf(seal(sealed), { ...asked, [flipped]: other })).not.toBe('open')
      }),
    )
  })

  it('B6 opens until the round expires and never after, even for a clock that is five minutes off', () => {
    const token = seal()
    expect(reasonOf(token, { ...expected, now: sampleClaims.roundExpires - 1 })).toBe('open')
    expect(reasonOf(token, { ...expected, now: sampleClaims.roundExpires })).toBe('expired')
    expect(reasonOf(token, { ...expected, now: NOW - STATE_LIMITS.clockSkewMs })).toBe('open')
  })

  it('B6 refuses a flow past its absolute expiry, however long the round would last', () => {
    const token = seal({ ...sampleClaims, roundExpires: sampleClaims.flowExpires + 1_000_000 })
    expect(reasonOf(token, { ...expected, now: sampleClaims.flowExpires - 1 })).toBe('open')
    expect(reasonOf(token, { ...expected, now: sampleClaims.flowExpires })).toBe('flow-expired')
  })

  it('B4 refuses a state sealed by an unknown key', () => {
    expect(reasonOf(seal(sampleClaims, ringOf('b')))).toBe('key')
  })

  it('B9 P7 opens in every phase of a rotation what that phase or the one before minted', () => {
    const phases = [ringOf('old'), ringOf('old', 'new'), ringOf('new', 'old'), ringOf('new')]
    const opens = (by: KeyRing, at: KeyRing) =>
      openState(at, AUDIENCE, seal(sampleClaims, by), expected).kind === 'open'
    const table = phases.map((by) => phases.map((at) => opens(by, at)))
    expect(table).toEqual([
      [true, true, true, false],
      [true, true, true, false],
      [false, true, true, true],
      [false, true, true, true],
    ])
  })

  it.each([
    ['no JSON', 'x'],
    ['an array', '[]'],
    ['null', 'null'],
    ['nothing', ''],
    ['a member that is not known', JSON.stringify({ ...sampleClaims, audience: 'x' })],
    ['a member that is missing', JSON.stringify({ ...sampleClaims, principal: undefined })],
    ['a time that is a text', JSON.stringify({ ...sampleClaims, roundExpires: '9' })],
    ['a time that is null', JSON.stringify({ ...sampleClaims, flowExpires: Number.NaN })],
    ['a round that is no count', JSON.stringify({ ...sampleClaims, round: -1 })],
    ['asked that is a list', JSON.stringify({ ...sampleClaims, asked: [] })],
    ['asked with a number', JSON.stringify({ ...sampleClaims, asked: { a: 1 } })],
    ['a tool version that is a number', JSON.stringify({ ...sampleClaims, toolVersion: 1 })],
    ['no journal', JSON.stringify({ ...sampleClaims, journal: null })],
  ])('refuses a genuine envelope that holds %s', (_name, plaintext) => {
    expect(reasonOf(around(plaintext))).toBe('shape')
  })

  it.each(Object.keys(sampleClaims))('refuses a genuine envelope with an array as %s', (member) => {
    expect(reasonOf(around(JSON.stringify({ ...sampleClaims, [member]: [] })))).toBe('shape')
  })

  it('P2 never throws, and opens nothing that was not sealed', () => {
    const anything = fc.oneof(fc.anything(), fc.string({ unit: 'binary' }), fc.base64String())
    fc.assert(
      fc.property(anything, (token) => {
        expect(reasonOf(token)).not.toBe('open')
        expect(reasonOf(typeof token === 'string' ? `r1.${token}` : token)).not.toBe('open')
      }),
    )
  })

  it('T9 returns maps without a prototype, so that no key finds an inherited value', () => {
    const asked = JSON.parse('{"__proto__":"d","constructor":"e"}')
    const opened = openState(ring, AUDIENCE, seal({ ...sampleClaims, asked }), expected)
    if (opened.kind !== 'open') throw new Error(opened.reason)
    expect(Object.getPrototypeOf(opened.claims.asked)).toBeNull()
    expect(Object.getPrototypeOf(opened.claims.journal.reasks)).toBeNull()
    expect(Object.entries(opened.claims.asked)).toEqual([
      ['__proto__', 'd'],
      ['constructor', 'e'],
    ])
    expect(opened.claims.asked.toString).toBeUndefined()
  })

  it('P14 never returns a shorter token for a longer journal, nor one longer than the limit', () => {
    fc.assert(
      fc.property(fc.nat(60_000), fc.nat(3_000), (length, more) => {
        const sizes = [length, length + more].map((size) => {
          const journal = { ...sampleClaims.journal, manual: 'x'.repeat(size) }
          return sealState(ring, AUDIENCE, { ...sampleClaims, journal })
        })
        const [short, long] = sizes
        expect(long?.bytes).toBeGreaterThanOrEqual(short?.bytes ?? Number.NaN)
        for (const state of sizes) {
          if (state.kind === 'sealed') expect(state.token.length).toBeLessThanOrEqual(STATE_LIMITS.maxBytes)
          else expect(state.bytes).toBeGreaterThan(STATE_LIMITS.maxBytes)
        }
      }),
    )
  })

  it('B4 seals a state of exactly the limit, and reports the size of a larger one', () => {
    const { length: maxBytes } = seal()
    const limited = (limit: number) =>
      sealState(ring, AUDIENCE, sampleClaims, { ...STATE_LIMITS, maxBytes: limit })
    expect(limited(maxBytes)).toMatchObject({ kind: 'sealed', bytes: maxBytes, keyId: 'a' })
    expect(limited(maxBytes - 1)).toEqual({ kind: 'too-large', bytes: maxBytes })
  })

  it('B4 allows 64 KiB, warns from 8 KiB on, and bears clocks that differ by 5 minutes', () => {
    expect(STATE_LIMITS).toEqual({ maxBytes: 65_536, warnBytes: 8_192, clockSkewMs: 300_000 })
  })

  it('names the call and the round of a state that it refuses, if the state is one of this service', () => {
    const { flow, round } = sampleClaims
    const opened = openState(ring, AUDIENCE, seal(), { ...expected, method: 'prompts/get' })
    expect(opened).toEqual({ kind: 'refused', reason: 'method', keyId: 'a', flow, round })
    expect(openState(ring, AUDIENCE, around('{}'), expected)).toEqual({
      kind: 'refused',
      reason: 'shape',
      keyId: 'a',
    })
  })

  it('names no key in the log if none was found', () => {
    const { message } = refusalError({ kind: 'refused', reason: 'key' })
    expect(message).toBe('[STATE_INVALID] requestState refused: key')
  })

  it('P17 returns the same bytes for every refusal, and keeps the reason for the log', () => {
    const reasons: StateRefusal[] = [
      'size',
      'encoding',
      'key',
      'commitment',
      'tag',
      'shape',
      'early',
      'expired',
      'flow-expired',
      'principal',
      'method',
      'request',
      'protocol',
    ]
    const errors = reasons.map((reason) => refusalError({ kind: 'refused', reason, keyId: 'a' }))
    const sent = errors.map(({ rpc, http, sentence, data }) => JSON.stringify({ rpc, http, sentence, data }))
    expect(new Set(sent)).toEqual(
      new Set([JSON.stringify({ rpc: -32602, http: 200, sentence: 'Invalid or expired requestState' })]),
    )
    for (const [index, reason] of reasons.entries()) {
      expect(errors[index]?.message).toBe(`[STATE_INVALID] requestState refused: ${reason}, key a`)
    }
  })
})

describe('a state whose request does not come back with it', () => {
  const extension = { request: 'sealed with the state' }
  const { now, principal, protocolVersion } = expected
  const open = (sealed: Claims, accepts: (given: unknown) => boolean, flip: Partial<Expected> = {}) => {
    const opened = openState(ring, AUDIENCE, seal(sealed), {
      now,
      principal,
      protocolVersion,
      ...flip,
      accepts,
    })
    return opened.kind === 'open' ? opened.claims : opened.reason
  }

  it('R1 opens if its extension is accepted', () => {
    const seen: unknown[] = []
    const opened = open({ ...sampleClaims, extension }, (given) => seen.push(given) > 0)
    expect(opened).toEqual({ ...sampleClaims, extension })
    expect(seen).toEqual([extension])
  })

  it('R1 is refused if its extension is not accepted, or if it has none', () => {
    expect(open({ ...sampleClaims, extension }, () => false)).toBe('turn')
    expect(open(sampleClaims, () => true)).toBe('turn')
  })

  it('R1 is refused with a request that came back', () => {
    expect(reasonOf(seal({ ...sampleClaims, extension }))).toBe('turn')
  })

  it('R1 is refused for another principal or protocol version', () => {
    const sealed = { ...sampleClaims, extension }
    expect(open(sealed, () => true, { principal: 'anonymous' })).toBe('principal')
    expect(open(sealed, () => true, { protocolVersion: '2025-11-25' })).toBe('protocol')
  })
})
