/** Proofs of a key: what each is for, and which nonce it has. */

import { createHash } from 'node:crypto'
import { generateKeyPair } from 'oauth4webapi'
import { describe, expect, it } from 'vitest'
import type { Credential } from '../auth.ts'
import { createBinding } from './dpop.ts'

const SERVER = 'https://mcp.example.com/mcp'
const LOCAL = 'http://localhost:3000/mcp'

const claimsOf = ({ headers }: Credential) =>
  JSON.parse(Buffer.from(headers.DPoP?.split('.')[1] ?? '', 'base64url').toString())

describe('a proof', () => {
  it.each([SERVER, LOCAL])('H5 is for one request to %s and one token', async (url) => {
    const binding = await createBinding()
    const credential = await binding.present('the-token', { method: 'POST', url })
    expect(credential).toMatchObject({ token: 'the-token', headers: { Authorization: 'DPoP the-token' } })
    const claims = claimsOf(credential)
    expect(claims).toMatchObject({
      htm: 'POST',
      htu: url,
      ath: createHash('sha256').update('the-token').digest('base64url'),
    })
    const next = claimsOf(await binding.present('the-token', { method: 'GET', url }))
    expect(next.htm).toBe('GET')
    expect(next.jti).not.toBe(claims.jti)
  })

  it('H5 has the nonce that the origin named last, and none where it named none', async () => {
    const binding = await createBinding()
    const nonceAt = async (url: string) =>
      claimsOf(await binding.present('the-token', { method: 'POST', url })).nonce
    await binding.remember(undefined, SERVER)
    expect(await nonceAt(SERVER)).toBeUndefined()
    await binding.remember('first', SERVER)
    await binding.remember('second', SERVER)
    await binding.remember(undefined, SERVER)
    await binding.remember('local', LOCAL)
    expect([await nonceAt(SERVER), await nonceAt(LOCAL)]).toEqual(['second', 'local'])
    expect(await nonceAt('https://other.example.com/mcp')).toBeUndefined()
  })

  it('H5 is signed with the key of the caller, or with one that nobody else has', async () => {
    const pair = await generateKeyPair('ES256')
    const [one, same, other] = [await createBinding(pair), await createBinding(pair), await createBinding()]
    expect(one.thumbprint).toBe(same.thumbprint)
    expect(one.thumbprint).not.toBe(other.thumbprint)
    expect(other.thumbprint).not.toBe((await createBinding()).thumbprint)
  })
})
