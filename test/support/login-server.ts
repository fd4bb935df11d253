/**
 * A server of ours that only lets in tokens of an authorization server: it verifies them, publishes its metadata, and asks
 * for `tickets:write` where the tool `refund` is called.
 */

import { serve } from '@hono/node-server'
import { createRemoteJWKSet, decodeJwt, jwtVerify } from 'jose'
import { createServer, generateKey } from 'rondo'
import { z } from 'zod'
import type { AuthorizationServer } from './authorization-server.ts'

export interface ProtectedServer {
  readonly url: string
  /** The tokens that arrived, in order, each once. */
  readonly tokens: readonly string[]
  close(): Promise<void>
}

export async function startProtected(as: Pick<AuthorizationServer, 'issuer'>): Promise<ProtectedServer> {
  const tokens: string[] = []
  const keys = createRemoteJWKSet(new URL(`${as.issuer}/jwks`))
  let url = ''
  const challenge = (...more: string[]): string =>
    ['Bearer', [`resource_metadata="${metadataUrl()}"`, ...more].join(', ')].join(' ')
  const metadataUrl = (): string => url.replace('/mcp', '/.well-known/oauth-protected-resource/mcp')
  const server = createServer({
    name: 'protected',
    version: '1.0.0',
    keys: generateKey(),
    log: () => {},
    async authenticate({ headers }) {
      const token = headers('authorization')?.replace(/^Bearer /, '')
      const scope = 'scope="tickets:read"'
      if (token === undefined) return { status: 401, headers: { 'WWW-Authenticate': challenge(scope) } }
      if (!tokens.includes(token)) tokens.push(token)
      try {
        const { payload } = await jwtVerify(token, keys, { issuer: as.issuer, audience: url })
        return { issuer: as.issuer, subject: String(payload.sub), client: String(payload.client_id) }
      } catch {
        return { status: 401, headers: { 'WWW-Authenticate': challenge(scope, 'error="invalid_token"') } }
      }
    },
  })
  server.tool('greet', { description: 'Greets', input: z.object({}) }, async (_, ctx) => {
    const { name } = await ctx.ask('name', { message: 'Your name?', schema: z.object({ name: z.string() }) })
    return `Hello ${name}, ${ctx.principal?.subject} of ${ctx.principal?.client}`
  })
  server.tool('whoami', { description: 'Says who calls', input: z.object({}) }, async (_, ctx) =>
    String(ctx.principal?.subject),
  )
  server.tool('refund', { description: 'Refunds', input: z.object({}) }, async () => 'refunded')
  const fetch = async (request: Request): Promise<Response> => {
    if (new URL(request.url).pathname.startsWith('/.well-known/oauth-protected-resource')) {
      return Response.json({
        resource: url,
        authorization_servers: [as.issuer],
        scopes_supported: ['tickets:read'],
      })
    }
    const token = request.headers.get('authorization')?.replace(/^Bearer /, '')
    const body = request.method === 'POST' ? await request.clone().text() : ''
    const scopes = token === undefined ? undefined : scopesIn(token)
    if (body.includes('"name":"refund"') && scopes !== undefined && !scopes.includes('tickets:write')) {
      const headers = { 'WWW-Authenticate': challenge('error="insufficient_scope"', 'scope="tickets:write"') }
      return new Response('', { status: 403, headers })
    }
    return server.fetch(request)
  }
  return new Promise((done) => {
    const http = serve({ fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) => {
      url = `http://127.0.0.1:${port}/mcp`
      const close = () =>
        new Promise<void>((resolve) => {
          http.close(() => resolve())
          if ('closeAllConnections' in http) http.closeAllConnections()
        })
      done({ url, tokens, close })
    })
  })
}

function scopesIn(token: string): string[] {
  try {
    return String(decodeJwt(token).scope).split(' ')
  } catch {
    return []
  }
}
