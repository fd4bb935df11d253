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
  it('gives the principal, at once where the hook answers at once', () => {
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
      answer: {
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
    ['gives a subject that is no string', async () => ({ subject: 7 })],
  ])('refuses with 401 and no details when the hook %s', async (_, authenticate) => {
    const { who, faults } = await outcome(authenticate)
    expect(who).toMatchObject({ kind: 'refused', answer: { status: 401 } })
    expect(JSON.stringify(who)).not.toContain('canary')
    expect(faults).toHaveLength(1)
  })
})
