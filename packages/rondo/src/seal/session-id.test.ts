import { describe, expect, it } from 'vitest'
import { AUDIENCE, ringOf } from '../../../../test/support/seal-fixtures.ts'
import type { PeerFacts } from '../protocol/call.ts'
import { sealEnvelope } from './envelope.ts'
import {
  isSealedSession,
  isStreamName,
  isTurnsSession,
  nameStream,
  openSession,
  sealSession,
} from './session-id.ts'

const ring = ringOf('a')
const alice = { ring, audience: AUDIENCE, principal: 'alice' }
const facts: PeerFacts = {
  protocolVersion: '2025-11-25',
  capabilities: { elicitation: { form: {} } },
  clientInfo: { name: 'c', version: '1' },
}
const session = { facts, until: 2_000, secret: 'only servers know it' }

describe.each(['pushed', 'turns'] as const)('a session that is sealed into its id: %s', (kind) => {
  const { id } = sealSession(kind, alice, session)

  it('J1 F5 opens on every instance that has the key, for its principal', () => {
    expect(isSealedSession(id)).toBe(true)
    expect(isTurnsSession(id)).toBe(kind === 'turns')
    expect(openSession(alice, id, 1_999)).toEqual(session)
    expect(openSession({ ...alice, ring: ringOf('b', 'a') }, id, 0)).toEqual(session)
  })

  it('J1 T26 does not open from its expiry on', () => {
    expect(openSession(alice, id, 2_000)).toBeUndefined()
    expect(openSession(alice, id, Number.NaN)).toBeUndefined()
  })

  it.each([
    ['another principal', { ...alice, principal: 'bob' }, id],
    ['another service', { ...alice, audience: 'other' }, id],
    ['another key', { ...alice, ring: ringOf('b') }, id],
    ['no prefix', alice, id.slice(2)],
    ['the prefix of the other kind', alice, `${kind === 'turns' ? 's' : 't'}${id.slice(1)}`],
    ['a tail more', alice, `${id}A`],
    ['nothing', alice, ''],
    [
      'what was sealed for something else',
      alice,
      `${id.slice(0, 2)}${sealEnvelope(ring, AUDIENCE, JSON.stringify({ principal: 'alice', ...session })).token}`,
    ],
  ])('J1 T2 T26 does not open with %s', (_what, place, given) => {
    expect(openSession(place, given, 0)).toBeUndefined()
  })

  it('J1 T2 T26 does not open with any one bit altered', () => {
    for (let index = 0; index < id.length; index++) {
      for (let bit = 0; bit < 7; bit++) {
        const altered = String.fromCharCode(id.charCodeAt(index) ^ (1 << bit))
        expect(openSession(alice, id.slice(0, index) + altered + id.slice(index + 1), 0)).toBeUndefined()
      }
    }
  })

  it.each([
    ['a long name', { ...facts, clientInfo: { name: 'n'.repeat(128), version: 'v'.repeat(128) } }],
    [
      'capabilities of 2000 characters',
      { ...facts, capabilities: { elicitation: {}, other: { x: 'x'.repeat(2_000) } } },
    ],
    [
      'many experimental capabilities',
      {
        ...facts,
        capabilities: {
          sampling: {},
          experimental: Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`x${i}`, {}])),
        },
      },
    ],
    [
      'a name of four-byte characters',
      { ...facts, clientInfo: { name: '\u{1f600}'.repeat(64), version: '1' } },
    ],
  ])(
    'J1 is printable ASCII of at most 1024 characters with %s, and keeps what can be asked',
    (_what, long) => {
      const sealed = sealSession(kind, alice, { facts: long, until: 2_000 })
      expect(sealed.id).toMatch(/^[\x21-\x7e]{1,1024}$/)
      const opened = openSession(alice, sealed.id, 0)
      expect(opened?.facts).toEqual(JSON.parse(JSON.stringify(sealed.facts)))
      const { elicitation, sampling } = long.capabilities as Record<string, unknown>
      expect(opened?.facts.capabilities).toMatchObject(JSON.parse(JSON.stringify({ elicitation, sampling })))
    },
  )
})

describe('the name of a stream', () => {
  it('J1 I3 is recognised with the secret of its session, and no other name is', () => {
    const name = nameStream('secret', 'c_one')
    expect(isStreamName('secret', name)).toBe(true)
    expect(isStreamName('another', name)).toBe(false)
    for (const made of [
      '',
      'c_one',
      'x'.repeat(16),
      `${name}x`,
      name.slice(1),
      name.replace('c_one', 'c_two'),
    ])
      expect(isStreamName('secret', made)).toBe(false)
    for (let index = 0; index < name.length; index++) {
      const altered = name[index] === 'A' ? 'B' : 'A'
      expect(isStreamName('secret', name.slice(0, index) + altered + name.slice(index + 1))).toBe(false)
    }
  })

  it('J1 opens a session of an earlier release, which has no secret', () => {
    const { id } = sealSession('pushed', alice, { facts, until: 2_000 })
    expect(openSession(alice, id, 0)).toEqual({ facts, until: 2_000 })
  })
})
