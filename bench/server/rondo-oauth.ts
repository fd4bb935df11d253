/** Rondo behind `oauthResource`: with a token for all requests, which is verified once a minute and otherwise remembered. */

import { calculateJwkThumbprint, exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose'
import { introspection, type OAuthResourceOptions, oauthResource } from 'rondo/oauth'
import type { Credential } from '../load/credential.ts'
import { startBeside } from './rondo.ts'
import type { Started, StartServer } from './start.ts'

const ISSUER = 'https://id.example.com'
const RESOURCE = 'https://bench.example.com/mcp'
const SCOPE = 'bench:read'

/** With a signed token. */
export const startSigned: StartServer = async (tools, plainFirst) => {
  const { token, issuers } = await issue({})
  return startProtected(tools, plainFirst, { issuers }, { token })
}

/** With an opaque token, about which the issuer is asked. */
export const startIntrospecting: StartServer = async (tools, plainFirst) => {
  const exp = Math.floor(Date.now() / 1000) + 7_200
  const claims = { active: true, aud: RESOURCE, sub: 'load', client_id: 'load', scope: SCOPE, exp }
  const tokens = introspection({ client: { id: 'bench', secret: 'bench' }, endpoint: `${ISSUER}/introspect` })
  const options = { issuers: [ISSUER], tokens, fetch: async () => Response.json(claims) }
  return startProtected(tools, plainFirst, options, { token: 'opaque-token-of-the-bench' })
}

/** With a token that is bound to a key, and a proof in every request. */
export const startBound: StartServer = async (tools, plainFirst) => {
  const { privateKey } = await generateKeyPair('ES256', { extractable: true })
  const key = await exportJWK(privateKey)
  const { token, issuers } = await issue({ cnf: { jkt: await calculateJwkThumbprint(key) } })
  return startProtected(tools, plainFirst, { issuers, dpop: true }, { token, proof: { key, url: RESOURCE } })
}

async function startProtected(
  tools: number,
  plainFirst: boolean | undefined,
  options: Pick<OAuthResourceOptions, 'issuers' | 'tokens' | 'fetch' | 'dpop'>,
  credential: Credential,
): Promise<Started> {
  const authenticate = oauthResource({ resource: RESOURCE, scopes: [SCOPE], ...options })
  return { ...(await startBeside(tools, { authenticate }, plainFirst)), credential }
}

/** A token, and the issuer with the key that it is signed with. */
async function issue(claims: JWTPayload) {
  const { publicKey, privateKey } = await generateKeyPair('RS256')
  const jwks = { keys: [{ ...(await exportJWK(publicKey)), kid: 'bench' }] }
  const token = await new SignJWT({ client_id: 'load', scope: SCOPE, ...claims })
    .setProtectedHeader({ alg: 'RS256', typ: 'at+jwt', kid: 'bench' })
    .setIssuer(ISSUER)
    .setAudience(RESOURCE)
    .setSubject('load')
    .setIssuedAt()
    .setExpirationTime('2h')
    .sign(privateKey)
  return { token, issuers: [{ issuer: ISSUER, jwks }] }
}
