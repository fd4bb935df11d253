import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { createServer } from 'rondo'
import { oauthResource } from 'rondo/oauth'
import { expect, it } from 'vitest'
import { call, request } from '../test/support/protected-server.ts'
import { createProtected } from './serve-protected.ts'

const ISSUER = 'https://id.example.com'

it('H1 the protected server describes itself, and asks for a token', async () => {
  const server = createProtected(ISSUER, { log: 'off' })
  const path = '/.well-known/oauth-protected-resource/mcp'
  const metadata = await server.fetch(new Request(`http://127.0.0.1${path}`))
  expect(await metadata.json()).toMatchObject({ authorization_servers: [ISSUER] })
  expect(await request(server, undefined, 'tools/call', call('tickets'))).toMatchObject({
    status: 401,
    challenge: `Bearer scope="tickets:read", resource_metadata="https://mcp.example.com${path}"`,
  })
})

it('the protected server accepts tokens of an issuer without metadata, whose keys are configured', async () => {
  const { privateKey, publicKey } = await generateKeyPair('ES256')
  // #region own
  const authenticate = oauthResource({
    resource: 'https://mcp.example.com/mcp',
    issuers: [{ issuer: ISSUER, jwks: { keys: [{ ...(await exportJWK(publicKey)), kid: '2026-07' }] } }],
  })
  // #endregion
  // #region token
  const token = await new SignJWT({ client_id: 'desk-app', scope: 'tickets:read' })
    .setProtectedHeader({ alg: 'ES256', typ: 'at+jwt', kid: '2026-07' })
    .setIssuer('https://id.example.com')
    .setAudience('https://mcp.example.com/mcp')
    .setSubject('user-17')
    .setIssuedAt()
    .setExpirationTime('10m')
    .sign(privateKey)
  // #endregion
  const server = createServer({ name: 'own', version: '1.0.0', authenticate, log: 'off' })
  server.tool('who', {}, (_args, { principal }) => principal?.subject ?? 'nobody')
  const { result } = await request(server, token, 'tools/call', call('who'))
  expect(result).toMatchObject({ content: [{ text: 'user-17' }] })
})
