import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { oauthResource } from 'rondo/oauth'
import { startBeside } from './rondo.ts'
import type { StartServer } from './start.ts'

const ISSUER = 'https://id.example.com'
const RESOURCE = 'https://bench.example.com/mcp'

/** Rondo behind `oauthResource`, with a token for all requests: it is verified once a minute and otherwise remembered. */
export const start: StartServer = async (tools, plainFirst) => {
  const { publicKey, privateKey } = await generateKeyPair('RS256')
  const jwks = { keys: [{ ...(await exportJWK(publicKey)), kid: 'bench' }] }
  const authenticate = oauthResource({
    resource: RESOURCE,
    issuers: [{ issuer: ISSUER, jwks }],
    scopes: ['bench:read'],
  })
  const token = await new SignJWT({ client_id: 'load', scope: 'bench:read' })
    .setProtectedHeader({ alg: 'RS256', typ: 'at+jwt', kid: 'bench' })
    .setIssuer(ISSUER)
    .setAudience(RESOURCE)
    .setSubject('load')
    .setIssuedAt()
    .setExpirationTime('2h')
    .sign(privateKey)
  return { ...(await startBeside(tools, { authenticate }, plainFirst)), token }
}
