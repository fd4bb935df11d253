import { describe, expect, it } from 'vitest'
import { AUDIENCE, ringOf } from '../../test/support/seal-fixtures.ts'
import { sealEnvelope } from './envelope.ts'
import { isSealedSession, openSession, sealSession } from './session-id.ts'

const ring = ringOf('a')
const facts = {
  protocolVersion: '2025-11-25',
  capabilities: { elicitation: { form: {} } },
  clientInfo: { name: 'c', version: '1' },
}

describe('a session that is sealed into its id', () => {
  const id = sealSession(ring, AUDIENCE, 'alice', facts)

  it('F5 opens on every instance that has the key, for its principal', () => {
    expect(isSealedSession(id)).toBe(true)
    expect(openSession(ring, AUDIENCE, 'alice', id)).toEqual(facts)
    expect(openSession(ringOf('b', 'a'), AUDIENCE, 'alice', id)).toEqual(facts)
  })

  it.each([
    ['another principal', ring, AUDIENCE, 'bob', id],
    ['another service', ring, 'other', 'alice', id],
    ['another key', ringOf('b'), AUDIENCE, 'alice', id],
    ['no prefix', ring, AUDIENCE, 'alice', id.slice(2)],
    ['a tail more', ring, AUDIENCE, 'alice', `${id}A`],
    ['nothing', ring, AUDIENCE, 'alice', ''],
    [
      'what was sealed for something else',
      ring,
      AUDIENCE,
      'alice',
      `t.${sealEnvelope(ring, AUDIENCE, JSON.stringify({ principal: 'alice', facts })).token}`,
    ],
  ])('T2 does not open with %s', (_what, by, audience, principal, given) => {
    expect(openSession(by, audience, principal, given)).toBeUndefined()
  })
})
