import { decodeJwt, decodeProtectedHeader } from 'jose'
import { afterAll, beforeAll, expect, it } from 'vitest'
import {
  type AuthorizationServer,
  basic,
  REDIRECT_URI,
  ROBOT_SECRET,
  startAuthorizationServer,
} from './authorization-server.ts'

const RESOURCE = 'http://127.0.0.1:1/mcp'
let server: AuthorizationServer
beforeAll(async () => {
  server = await startAuthorizationServer()
})
afterAll(() => server.close())

it('the server issues a token for the resource, and another for its refresh token', async () => {
  const first = await server.authorize({ resource: RESOURCE, scope: 'tickets:read tickets:write' })
  const claims = { iss: server.issuer, aud: RESOURCE, sub: 'alice', client_id: 'desk' }
  expect(decodeJwt(first.access_token)).toMatchObject({ ...claims, scope: 'tickets:read tickets:write' })
  expect(decodeProtectedHeader(first.access_token)).toMatchObject({ typ: 'at+jwt', alg: 'ES256' })
  const refreshToken = first.refresh_token ?? ''
  const second = await server.refresh({ refreshToken, scope: 'tickets:read', resource: RESOURCE })
  expect(decodeJwt(second.access_token)).toMatchObject({ ...claims, scope: 'tickets:read' })
  expect(second.refresh_token).not.toBe(first.refresh_token)
})

it('the server logs in the user who is named', async () => {
  const tokens = await server.authorize({
    resource: RESOURCE,
    scope: 'tickets:read',
    client: 'phone',
    user: 'bob',
  })
  expect(decodeJwt(tokens.access_token)).toMatchObject({ sub: 'bob', client_id: 'phone' })
})

it('the server redirects with the issuer, and refuses a request without PKCE', async () => {
  const url = new URL(`${server.issuer}/auth`)
  const query = {
    client_id: 'desk',
    response_type: 'code',
    redirect_uri: REDIRECT_URI,
    scope: 'tickets:read',
  }
  url.search = new URLSearchParams({ ...query, resource: RESOURCE }).toString()
  const { searchParams } = await server.visit(url)
  expect(searchParams.get('iss')).toBe(server.issuer)
  expect(searchParams.get('error')).toBe('invalid_request')
})

it('the server issues a token to the robot', async () => {
  const tokens = await server.robot({ resource: RESOURCE, scope: 'tickets:read' })
  expect(decodeJwt(tokens.access_token)).toMatchObject({ client_id: 'robot', aud: RESOURCE })
})

it('the server registers a client, and knows one by its metadata document', async () => {
  const registered = await fetch(`${server.issuer}/reg`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      application_type: 'native',
      token_endpoint_auth_method: 'none',
      redirect_uris: [REDIRECT_URI],
      grant_types: ['authorization_code', 'refresh_token'],
    }),
  })
  expect(registered.status).toBe(201)
  const { client_id } = (await registered.json()) as { client_id: string }
  const tokens = await server.authorize({ resource: RESOURCE, scope: 'tickets:read', client: client_id })
  expect(decodeJwt(tokens.access_token)).toMatchObject({ client_id })

  const document = 'https://client.example/metadata.json'
  server.documents.set(document, {
    client_id: document,
    client_name: 'Documented',
    application_type: 'native',
    token_endpoint_auth_method: 'none',
    redirect_uris: [REDIRECT_URI],
  })
  const documented = await server.authorize({ resource: RESOURCE, scope: 'tickets:read', client: document })
  expect(decodeJwt(documented.access_token)).toMatchObject({ client_id: document })
})

it('the server introspects an opaque token', async () => {
  server.format = 'opaque'
  const tokens = await server.authorize({ resource: RESOURCE, scope: 'tickets:read' })
  server.format = 'jwt'
  const response = await fetch(`${server.issuer}/token/introspection`, {
    method: 'POST',
    headers: { authorization: basic('resource', ROBOT_SECRET) },
    body: new URLSearchParams({ token: tokens.access_token }),
  })
  expect(await response.json()).toMatchObject({
    active: true,
    sub: 'alice',
    client_id: 'desk',
    aud: RESOURCE,
  })
})

it('the server publishes RFC 8414 metadata', async () => {
  const response = await fetch(`${server.issuer}/.well-known/oauth-authorization-server`)
  expect(await response.json()).toMatchObject({
    issuer: server.issuer,
    code_challenge_methods_supported: ['S256'],
    authorization_response_iss_parameter_supported: true,
    client_id_metadata_document_supported: true,
  })
})
