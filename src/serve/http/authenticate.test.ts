import { describe, expect, it } from 'vitest'
import { type Authenticate, identify } from './authenticate.ts'

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
  it('returns the principal, synchronously if the hook is synchronous', () => {
    const who = identify(
      () => ({ subject: 'a' }),
      request,
      () => {},
    )
    expect(who).toEqual({ kind: 'known', principal: { subject: 'a' } })
  })

  it.each([undefined, null])('takes %s for nobody in particular', async (nobody) => {
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
    ['gives a number', () => 1],
    ['gives true', async () => true],
    ['gives an object that is neither', () => ({ user: 'canary' })],
    ['gives another status', () => ({ status: 200 })],
    ['returns an empty subject', () => ({ subject: '' })],
    ['returns an issuer that is no string', () => ({ subject: 'a', issuer: ['canary'] })],
    ['gives a subject that is no string', async () => ({ subject: 7 })],
  ])('refuses with 401 and no details when the hook %s', async (_, authenticate) => {
    const { who, faults } = await outcome(authenticate)
    expect(who).toMatchObject({ kind: 'refused', response: { status: 401 } })
    expect(JSON.stringify(who)).not.toContain('canary')
    expect(faults).toHaveLength(1)
  })

  it.each([
    ['a line break', 'Bearer realm="canary\r\nSet-Cookie: a=b"'],
    ['a character beyond latin1', 'Bearer realm="canary ✓"'],
    ['no string', ['Bearer', 'canary']],
  ])('leaves out a header with %s, says so, and still refuses', async (_, value) => {
    const headers = { 'WWW-Authenticate': value, 'X-Kept': 'yes' }
    const { who, faults } = await outcome(() => ({ status: 401, headers }))
    expect(who).toMatchObject({ kind: 'refused', response: { status: 401, headers: { 'X-Kept': 'yes' } } })
    expect(JSON.stringify(who)).not.toContain('canary')
    expect(String(faults[0])).toContain('WWW-Authenticate')
    expect(String(faults[0])).not.toContain('canary')
  })

  it.each([
    ['a name that is none', { headers: { 'a b': 'c' } }],
    ['a length of its own', { headers: { 'content-length': '3' } }],
    ['headers that are no object', { headers: 'X: y' }],
    ['a body that is no string', { body: { error: 'invalid_token' } }],
  ])('refuses without %s', async (_, given) => {
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
