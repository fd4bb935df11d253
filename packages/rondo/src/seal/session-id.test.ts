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

describe('facts that are too long for an id', () => {
  const sealed = (given: PeerFacts) => sealSession('pushed', alice, { facts: given, until: 2_000 }).facts
  const many = (count: number, length: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [`${i}`.padEnd(length, 'x'), {}]))
  const long = { name: 'n'.repeat(500), version: 'v'.repeat(500) }
  const cut = { name: 'n'.repeat(48), version: 'v'.repeat(24) }

  it('J1 keep everything while it fits', () => {
    const given = { ...facts, clientInfo: { name: 'n'.repeat(100), version: 'v'.repeat(100) } }
    expect(sealed(given)).toEqual(given)
  })

  it('J1 first lose the end of the client name and version', () => {
    expect(sealed({ ...facts, clientInfo: long })).toEqual({ ...facts, clientInfo: cut })
  })

  it('J1 then lose the whole name', () => {
    const capabilities = { elicitation: { form: {} }, other: { x: 'x'.repeat(340) } }
    expect(sealed({ ...facts, capabilities, clientInfo: long })).toEqual({
      ...facts,
      capabilities,
      clientInfo: undefined,
    })
  })

  it('J1 then lose the capabilities that no question depends on, and up to 8 experimental ones stay', () => {
    const other = { x: 'x'.repeat(600) }
    const given = (experimental: object) => ({ elicitation: { form: {} }, experimental, other })
    const least = (experimental: object) => ({ elicitation: { form: {} }, experimental })
    expect(sealed({ ...facts, capabilities: given(many(8, 4)), clientInfo: long })).toEqual({
      ...facts,
      capabilities: least(many(8, 4)),
      clientInfo: cut,
    })
    expect(sealed({ ...facts, capabilities: given(many(9, 4)), clientInfo: long })).toEqual({
      ...facts,
      capabilities: least({}),
      clientInfo: cut,
    })
  })

  it('J1 at last lose name and experimental capabilities', () => {
    const capabilities = { elicitation: { form: {} }, experimental: many(8, 80) }
    expect(sealed({ ...facts, capabilities })).toEqual({
      ...facts,
      capabilities: { elicitation: { form: {} }, experimental: {} },
      clientInfo: undefined,
    })
  })
})

describe.each([
  ['s.', 'pushed session'],
  ['t.', 'session'],
])('a genuine envelope that holds no session: %s', (prefix, label) => {
  const contents = { principal: 'alice', facts, until: 2_000, secret: 'only servers know it' }
  const idOf = (value: unknown) =>
    prefix + sealEnvelope(ring, JSON.stringify([label, AUDIENCE]), JSON.stringify(value)).token

  it('J1 control: the same envelope opens with one', () => {
    expect(openSession(alice, idOf(contents), 0)).toEqual(session)
    const { secret, ...rest } = session
    expect(openSession(alice, idOf({ ...contents, secret: 5 }), 0)).toEqual(rest)
  })

  it.each([
    ['null', null],
    ['no facts', { ...contents, facts: undefined }],
    ['no protocol version', { ...contents, facts: { ...facts, protocolVersion: 5 } }],
    ['no capabilities', { ...contents, facts: { ...facts, capabilities: [] } }],
    ['no expiry', { ...contents, until: '2000' }],
    ['too much', { ...contents, secret: 'x'.repeat(700) }],
  ])('J1 does not open: %s', (_what, value) => {
    expect(openSession(alice, idOf(value), 0)).toBeUndefined()
  })
})

describe('an id', () => {
  it.each([undefined, '', 'r1.x', 'x'])('J1 is not one of a sealed session: %j', (id) => {
    expect(isSealedSession(id)).toBe(false)
    expect(isTurnsSession(id)).toBe(false)
  })

  it('J1 does not open if even the least of its facts is too long', () => {
    const place = { ...alice, principal: 'p'.repeat(2_000) }
    const sealed = sealSession('pushed', place, session)
    expect(sealed.facts.clientInfo).toBeUndefined()
    expect(openSession(place, sealed.id, 0)).toBeUndefined()
  })
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
