/** Identity providers and authorization servers that issue something else than they were asked for. */

import { describe, expect, it } from 'vitest'
import { enterprise } from './assertion.ts'
import { exchange } from './exchange.ts'

const IDP = 'https://id.company.example'
const AS = 'https://login.example.com'
const RESOURCE = 'https://tables.example.com/mcp'
const ID_JAG = 'urn:ietf:params:oauth:token-type:id-jag'
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token'

/** A server at `issuer` whose token endpoint responds with `body`. */
function respond(issuer: string, body: object, sent: string[] = []) {
  return async (url: string, init: RequestInit): Promise<Response> => {
    if (url.includes('.well-known'))
      return Response.json({ issuer, token_endpoint: `${issuer}/token`, response_types_supported: ['code'] })
    sent.push(String(init.body))
    return Response.json(body)
  }
}

const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url')
const jwt = (claims: object, typ = 'oauth-id-jag+jwt'): string =>
  `${part({ alg: 'ES256', typ })}.${part(claims)}.c2lnbmVk`

describe('an identity assertion', () => {
  const GOOD = { iss: IDP, aud: AS, client_id: 'desk', resource: RESOURCE, sub: 'alice' }
  const obtain = (access_token: string, changes: object = {}) => {
    const body = { access_token, issued_token_type: ID_JAG, token_type: 'N_A', expires_in: 60, ...changes }
    const grant = enterprise({
      issuer: IDP,
      client: { id: 'desk-at-company' },
      idToken: () => 'an.id.token',
      fetch: respond(IDP, body),
    })
    const signal = new AbortController().signal
    return grant.assertion({
      ...{
        issuer: AS,
        client: 'desk',
        resource: RESOURCE,
        scopes: [],
        signal,
        now: Date.now,
        attended: true,
      },
    })
  }

  it('H7 is used as it was issued', async () => {
    expect(await obtain(jwt(GOOD))).toBe(jwt(GOOD))
  })

  it.each([
    ['who issued it', { ...GOOD, iss: undefined }],
    ['its resource', { ...GOOD, resource: undefined }],
    ['its client', { ...GOOD, client_id: undefined }],
    ['no letter that base64 writes in another way', { ...GOOD, sub: 'ÿ~ÿ?ÿ~ÿ>' }],
  ])('H7 need not say %s', async (_what, claims) => {
    const token = jwt(claims)
    expect(await obtain(token)).toBe(token)
  })

  it('H7 is of use where its alphabet is that of URLs', async () => {
    const tokens = ['ÿ', 'ÿÿ', 'ÿÿÿ', '~~~', '???'].map((sub) => jwt({ ...GOOD, sub }))
    expect(tokens.join()).toMatch(/_/)
    for (const token of tokens) expect(await obtain(token)).toBe(token)
  })

  it.each([
    ['of a list of issuers', jwt({ ...GOOD, iss: [IDP] }), {}, /of another issuer/],
    ['for a number', jwt({ ...GOOD, aud: 1 }), {}, /another authorization server/],
    ['of another type', jwt(GOOD, 'JWT'), {}, /not of the type/],
    ['of another issuer', jwt({ ...GOOD, iss: 'https://evil.example' }), {}, /of another issuer/],
    ['for another resource', jwt({ ...GOOD, resource: 'https://evil.example/mcp' }), {}, /another resource/],
    ['for another resource as well', jwt({ ...GOOD, resource: [RESOURCE, 'x'] }), {}, /another resource/],
    ['for another client', jwt({ ...GOOD, client_id: 'other' }), {}, /another client/],
    [
      'for two servers',
      jwt({ ...GOOD, aud: [AS, 'https://evil.example'] }),
      {},
      /another authorization server/,
    ],
    ['without an audience', jwt({ ...GOOD, aud: undefined }), {}, /another authorization server/],
    [
      'without claims',
      `${part({ typ: 'oauth-id-jag+jwt' })}.bm90IGpzb24.c2lnbmVk`,
      {},
      /another authorization server/,
    ],
    ['that is no JSON Web Token', 'opaque', {}, /not of the type/],
    ['that is called an access token', jwt(GOOD), { issued_token_type: ACCESS_TOKEN }, /another token than/],
    ['that is called a bearer token', jwt(GOOD), { token_type: 'Bearer' }, /another token than/],
  ])('T36 is refused %s, and the reason does not quote it', async (_what, token, changes, reason) => {
    const error = await obtain(token, changes).then(
      () => undefined,
      (thrown: Error) => thrown,
    )
    expect(error?.message).toMatch(reason)
    expect(JSON.stringify(error) + error?.message).not.toContain(token)
  })
})

describe('an exchanged token', () => {
  const subjectToken = () => 'the-token-of-the-caller'
  const call = (body: object, sent: string[] = []) =>
    exchange({
      issuer: AS,
      client: { id: 'gateway', secret: 'the-secret-of-the-gateway' },
      resources: { tables: RESOURCE },
      subjectToken,
      fetch: respond(AS, body, sent),
    })({ subject: 'alice' }, 'tables')
  const ISSUED = { issued_token_type: ACCESS_TOKEN, token_type: 'Bearer', expires_in: 60 }

  it('H8 is what the server gets', async () => {
    const sent: string[] = []
    expect(await call({ ...ISSUED, access_token: 'new' }, sent)).toEqual({ Authorization: 'Bearer new' })
    expect(sent).toHaveLength(1)
  })

  it.each([
    ['is that of the caller', { access_token: subjectToken() }, /returned the token of the caller/],
    ['is no access token', { access_token: 'new', issued_token_type: ID_JAG }, /another token than a bearer/],
  ])('T36 is refused if it %s', async (_what, changes, reason) => {
    await expect(call({ ...ISSUED, ...changes })).rejects.toThrow(reason)
  })
})
