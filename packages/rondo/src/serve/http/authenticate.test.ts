import { describe, expect, it } from 'vitest'
import { type Authenticate, createIdentify, identify } from './authenticate.ts'

const request = {
  method: 'POST',
  headers: (name: string) => (name === 'authorization' ? 'Bearer x' : undefined),
}

async function outcome(authenticate: unknown) {
  const faults: unknown[] = []
  const who = await identify(authenticate as Authenticate, request, (error) => faults.push(error))
  return { who, faults }
}

describe('identify', () => {
  it('returns the principal of a hook that is synchronous, or that waits', async () => {
    const known = { kind: 'known', principal: { subject: 'a' } }
    expect((await outcome(() => ({ subject: 'a' }))).who).toEqual(known)
    expect((await outcome(async () => ({ subject: 'a' }))).who).toEqual(known)
  })

  it.each([undefined, null])('treats %s as an anonymous caller', async (nobody) => {
    expect((await outcome(() => nobody)).who).toEqual({ kind: 'known', principal: undefined })
    expect((await outcome(async () => nobody)).who).toEqual({ kind: 'known', principal: undefined })
  })

  it('sends a refusal as the hook wrote it', async () => {
    const { who } = await outcome(() => ({
      status: 403,
      headers: { 'WWW-Authenticate': 'Bearer error="insufficient_scope"' },
      body: '{"error":"insufficient_scope"}',
    }))
    expect(who).toMatchObject({
      kind: 'refused',
      response: {
        status: 403,
        headers: { 'WWW-Authenticate': 'Bearer error="insufficient_scope"' },
        body: '{"error":"insufficient_scope"}',
      },
    })
  })

  it.each([
    [
      'throws',
      () => {
        throw new Error('canary')
      },
    ],
    ['rejects', () => Promise.reject(new Error('canary'))],
    ['returns a number', () => 1],
    ['returns true', async () => true],
    ['returns an object that is neither', () => ({ user: 'canary' })],
    ['returns another status', () => ({ status: 200 })],
    ['returns an empty subject', () => ({ subject: '' })],
    ['returns an issuer that is not a string', () => ({ subject: 'a', issuer: ['canary'] })],
    ['returns a subject that is not a string', async () => ({ subject: 7 })],
  ])('refuses with 401 and no details when the hook %s', async (_, authenticate) => {
    const { who, faults } = await outcome(authenticate)
    expect(who).toMatchObject({ kind: 'refused', response: { status: 401 } })
    expect(JSON.stringify(who)).not.toContain('canary')
    expect(faults).toHaveLength(1)
  })

  it.each([
    ['two lines', 'Bearer realm="canary\r\nSet-Cookie: a=b"'],
    ['not Latin-1', 'Bearer realm="canary ✓"'],
    ['not a string', ['Bearer', 'canary']],
  ])('drops a header whose value is %s, reports that, and still refuses', async (_, value) => {
    const headers = { 'WWW-Authenticate': value, 'X-Kept': 'yes' }
    const { who, faults } = await outcome(() => ({ status: 401, headers }))
    expect(who).toMatchObject({ kind: 'refused', response: { status: 401, headers: { 'X-Kept': 'yes' } } })
    expect(JSON.stringify(who)).not.toContain('canary')
    expect(String(faults[0])).toContain('WWW-Authenticate')
    expect(String(faults[0])).not.toContain('canary')
  })

  it.each([
    ['an invalid header name', { headers: { 'a b': 'c' } }],
    ['a Content-Length', { headers: { 'content-length': '3' } }],
    ['headers that are not an object', { headers: 'X: y' }],
    ['a body that is not a string', { body: { error: 'invalid_token' } }],
  ])('drops from a refusal %s', async (_, given) => {
    const { who, faults } = await outcome(() => ({ status: 403, ...given }))
    expect(who).toMatchObject({
      kind: 'refused',
      response: { status: 403, body: expect.stringContaining('-32000') },
    })
    expect(faults).toHaveLength(1)
  })

  it('refuses when the hook never settles', async () => {
    const faults: unknown[] = []
    const never = () => new Promise<undefined>(() => {})
    const who = await identify(never, request, (error) => faults.push(error), 10)
    expect(who).toMatchObject({ kind: 'refused', response: { status: 401 } })
    expect(String(faults[0])).toContain('did not settle')
  })
})

describe('createIdentify', () => {
  it.each([
    ['at once', () => ({ status: 401, reason: 'no' }) as const],
    ['later', async () => ({ status: 401, reason: 'no' }) as const],
  ])('R11 refuses a caller %s although the report of it fails', async (_, authenticate) => {
    const faults: unknown[] = []
    const broken = new Error('The clock is broken')
    const identified = createIdentify(
      authenticate,
      (error) => faults.push(error),
      () => {
        throw broken
      },
    )
    expect(await identified({ headers: {}, method: 'POST' })).toMatchObject({ kind: 'refused' })
    expect(faults).toEqual([broken])
  })
})
