import { describe, expect, it } from 'vitest'
import { parseChallenges } from './response-reader.ts'

describe('the challenges of a server', () => {
  it.each([
    ['Bearer', [{ scheme: 'Bearer', params: {} }]],
    [
      'Bearer error="invalid_token", resource_metadata="https://a.example/x?a=1,2"',
      [
        {
          scheme: 'Bearer',
          params: { error: 'invalid_token', resource_metadata: 'https://a.example/x?a=1,2' },
        },
      ],
    ],
    [
      'Basic realm="a \\"b\\"", Bearer Scope=read , , error = x',
      [
        { scheme: 'Basic', params: { realm: 'a "b"' } },
        { scheme: 'Bearer', params: { scope: 'read', error: 'x' } },
      ],
    ],
    [
      'Negotiate YWJj==, DPoP algs="ES256"',
      [
        { scheme: 'Negotiate', params: {} },
        { scheme: 'DPoP', params: { algs: 'ES256' } },
      ],
    ],
    ['', []],
    ['=, "x', []],
    ['Bearer __proto__="x"', [{ scheme: 'Bearer', params: JSON.parse('{"__proto__":"x"}') }]],
  ])('are read from %j', (header, challenges) => {
    expect(parseChallenges(header)).toEqual(challenges)
  })

  it('are parsed in time proportional to their length', () => {
    for (const piece of ['a=', '"', 'a="', '\\', ',', ' ', 'a ', '"\\']) parseChallenges(piece.repeat(20_000))
  })
})
