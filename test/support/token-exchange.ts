/** Grants for the authorization server of the tests: token exchange (RFC 8693) for a client `gateway`, and assertions (RFC 7523). */

import { randomUUID } from 'node:crypto'
import { createRemoteJWKSet, jwtVerify } from 'jose'
import type { KoaContextWithOIDC, default as Provider } from 'oidc-provider'
import { type AuthorizationServer, ROBOT_SECRET, startAuthorizationServer } from './authorization-server.ts'

const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token'
const TOKEN_EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange'

export const JWT_BEARER = 'urn:ietf:params:oauth:grant-type:jwt-bearer'

export interface ExchangingServer extends AuthorizationServer {
  /** The exchanges so far: the subject, the scope of its token, and the resource. */
  readonly exchanged: string[]
  /** The tokens that were presented. */
  readonly presented: string[]
  /** The subjects for whom nothing is exchanged. */
  readonly refused: Set<string>
}

export async function startExchangingServer(): Promise<ExchangingServer> {
  const exchanged: string[] = []
  const presented: string[] = []
  const refused = new Set<string>()
  const as = await startAuthorizationServer({
    clients: [
      {
        client_id: 'gateway',
        client_secret: ROBOT_SECRET,
        grant_types: [TOKEN_EXCHANGE],
        response_types: [],
        redirect_uris: [],
      } as never,
    ],
    onProvider(provider) {
      const exchange = async (ctx: KoaContextWithOIDC): Promise<void> => {
        const { params = {}, client } = ctx.oidc
        presented.push(String(params.subject_token))
        const { payload } = await jwtVerify(
          String(params.subject_token),
          createRemoteJWKSet(new URL(`${as.issuer}/jwks`)),
          { issuer: as.issuer },
        )
        if (refused.has(String(payload.sub))) {
          ctx.status = 400
          ctx.body = { error: 'invalid_grant' }
          return
        }
        exchanged.push(`${payload.sub} ${payload.scope} ${params.resource}`)
        ctx.body = {
          access_token: await issue(provider, String(params.resource), {
            accountId: payload.sub,
            client,
            grantId: randomUUID(),
            gty: 'exchange',
            // The new token has the scope of the one that it was exchanged for.
            scope: String(payload.scope),
          }),
          issued_token_type: ACCESS_TOKEN,
          token_type: 'Bearer',
          expires_in: 300,
        }
      }
      const parameters = ['subject_token', 'subject_token_type', 'requested_token_type', 'resource', 'scope']
      provider.registerGrantType(TOKEN_EXCHANGE, exchange, parameters, ['resource'])
    },
  })
  return Object.assign(as, { exchanged, presented, refused })
}

/** `scope` and what else the provider keeps with a token. */
type TokenParts = Readonly<Record<string, unknown>> & { readonly scope: string }

function issue(provider: Provider, resource: string, { scope, ...of }: TokenParts): Promise<string> {
  const AccessToken = provider.AccessToken as unknown as new (
    of: object,
  ) => { save(): Promise<string>; resourceServer: unknown; scope: string }
  const token = new AccessToken(of)
  const info = { scope, accessTokenFormat: 'jwt', audience: resource }
  token.resourceServer = new provider.ResourceServer(resource, info as never)
  token.scope = scope
  return token.save()
}

/** Adds a grant to the provider that issues access tokens for the subject of an assertion. */
export function acceptAssertions(
  provider: Provider,
  verify: (jwt: string) => Promise<{ sub: string; resource?: string }>,
): void {
  const grant = async (ctx: KoaContextWithOIDC): Promise<void> => {
    const { params = {}, client } = ctx.oidc
    const { sub, resource = String(params.resource) } = await verify(String(params.assertion))
    const of = { accountId: sub, client, grantId: randomUUID(), gty: 'jwt_bearer', scope: 'tickets:read' }
    ctx.body = {
      access_token: await issue(provider, resource, of),
      token_type: 'Bearer',
      expires_in: 300,
      scope: 'tickets:read',
    }
  }
  provider.registerGrantType(JWT_BEARER, grant, ['assertion', 'resource', 'scope'], ['resource'])
}
