import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Principal } from '../protocol/call.ts'
import { principalTag, requestDigest } from './state.ts'

const part = fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom('anonymous', '","', 'null', ']'))
const principal: fc.Arbitrary<Principal> = fc.record(
  { subject: part.filter((subject) => subject !== ''), issuer: part, client: part },
  { requiredKeys: ['subject'] },
)

describe('principalTag', () => {
  it('B5 T1 distinguishes subject, issuer and client, and two users behind one client', () => {
    const alice = { subject: 'alice', issuer: 'https://id.example', client: 'desktop' }
    const tags = [
      alice,
      { ...alice, subject: 'bob' },
      { ...alice, issuer: 'https://id.example/' },
      { ...alice, client: 'mobile' },
      { subject: 'alice' },
      { subject: 'alice', issuer: '' },
      { subject: 'alice', client: '' },
      { subject: 'alice', issuer: 'desktop' },
      { subject: 'alice', client: 'desktop' },
      undefined,
      { subject: 'anonymous' },
    ].map(principalTag)
    expect(new Set(tags).size).toBe(tags.length)
  })

  it('B5 returns the same tag exactly when subject, issuer and client are the same', () => {
    fc.assert(
      fc.property(principal, principal, (a, b) => {
        const same = a.subject === b.subject && a.issuer === b.issuer && a.client === b.client
        expect(principalTag(a) === principalTag(b)).toBe(same)
        expect(principalTag({ ...a, claims: { role: 'admin' } })).toBe(principalTag(a))
        expect(principalTag(a)).not.toBe(principalTag(undefined))
      }),
    )
  })

  it.each([
    [{ subject: '' }],
    [{ client: 'desktop' } as unknown as Principal],
    [{ subject: 42 } as unknown as Principal],
    [{ subject: null } as unknown as Principal],
  ])('T1 refuses a principal without a subject rather than share it: %j', (nobody) => {
    expect(() => principalTag(nobody)).toThrow(TypeError)
  })
})

describe('requestDigest', () => {
  it('B9 returns the same in later releases, like principalTag, so that open calls survive them', () => {
    expect(requestDigest('tools/call', 'list', {})).toBe('YWdxkI3WGj-imCm0R63F7YcSifoPZbYxkgc0nrHO_CA')
    expect(principalTag(undefined)).toBe('anonymous')
    expect(principalTag({ subject: 'alice' })).toBe('B-PghPURXTYWet373nDkBJo2SbBShdI7SZtak-qGM4w')
  })

  it('B7 differs for another method, target or argument, but not for another order of keys', () => {
    const digest = requestDigest('tools/call', 'pay', { to: 'bob', amount: 10 })
    expect(requestDigest('tools/call', 'pay', { amount: 10, to: 'bob' })).toBe(digest)
    const others = [
      requestDigest('prompts/get', 'pay', { to: 'bob', amount: 10 }),
      requestDigest('tools/call', 'pay2', { to: 'bob', amount: 10 }),
      requestDigest('tools/call', 'pay', { to: 'bob', amount: 11 }),
      requestDigest('tools/call', 'pay', { to: 'bob', amount: '10' }),
      requestDigest('tools/call', 'pay', { to: 'bob' }),
      requestDigest('tools/call', 'pay', { to: 'bob', amount: 10, memo: null }),
    ]
    expect(new Set([digest, ...others]).size).toBe(others.length + 1)
  })

  it('B7 treats absent arguments as empty', () => {
    expect(requestDigest('tools/call', 'list', undefined)).toBe(requestDigest('tools/call', 'list', {}))
  })

  it('P5 is equal exactly for equal arguments', () => {
    const args = fc.dictionary(fc.string(), fc.jsonValue(), { maxKeys: 4 })
    fc.assert(
      fc.property(args, args, (a, b) => {
        const copy = JSON.parse(JSON.stringify(Object.fromEntries(Object.entries(a).reverse())))
        expect(requestDigest('m', 't', copy)).toBe(requestDigest('m', 't', a))
        expect(requestDigest('m', 't', { a })).not.toBe(requestDigest('m', 't', { b, a }))
      }),
    )
  })
})
