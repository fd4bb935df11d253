/**
 * The requests that return tokens: the code of a login, a refresh, the client's own credentials. Each names the resource,
 * so that the token is of use at this server only.
 */

import {
  type AuthorizationServer,
  allowInsecureRequests,
  authorizationCodeGrantRequest,
  type Client,
  calculatePKCECodeChallenge,
  clientCredentialsGrantRequest,
  customFetch,
  generateRandomCodeVerifier,
  generateRandomState,
  getValidatedIdTokenClaims,
  processAuthorizationCodeResponse,
  processClientCredentialsResponse,
  processRefreshTokenResponse,
  refreshTokenGrantRequest,
  revocationRequest,
  type TokenEndpointResponse,
  validateAuthResponse,
} from 'oauth4webapi'
import { authentication } from './client-identity.ts'
import { readScopes } from './discovery.ts'
import type { StoredClient, StoredTokens } from './login-store.ts'
import type { GivenClient, LoginLink } from './options.ts'
import { type AuthFetch, checkUrl, explain, unusable } from './safe-fetch.ts'

/** Everything a token request needs besides what it exchanges. */
export interface GrantContext {
  readonly as: AuthorizationServer
  readonly server: URL
  readonly client: StoredClient
  readonly given: GivenClient | undefined
  readonly resource: string
  readonly request: AuthFetch
  readonly now: () => number
}

export interface Granted {
  readonly tokens: StoredTokens
  readonly user?: string
}

/** Sends a person to the authorization server and exchanges the code that comes back. */
export async function grantByCode(
  context: GrantContext,
  login: {
    readonly redirectUri: string
    readonly scopes: readonly string[]
    readonly signal: AbortSignal
    visit(link: LoginLink): Promise<URL | string>
  },
): Promise<Granted> {
  const { as, server, resource } = context
  const { redirectUri, scopes, signal } = login
  const client: Client = { client_id: context.client.id }
  const [state, verifier] = [generateRandomState(), generateRandomCodeVerifier()]
  const url = checkUrl(as.authorization_endpoint ?? '', { server, trusted: as.issuer })
  const parameters = {
    response_type: 'code',
    client_id: client.client_id,
    redirect_uri: redirectUri,
    state,
    code_challenge: await calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
    resource,
    ...(scopes.length > 0 && { scope: scopes.join(' ') }),
    // OpenID Connect gives no refresh token for this scope without asking.
    ...(scopes.includes('offline_access') && { prompt: 'consent' }),
  }
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value)
  const returned = await login.visit({ url, server, issuer: as.issuer, scopes, state, signal })
  return explain(as.issuer, 'log in', [verifier, codeIn(returned)], async () => {
    const checked = validateAuthResponse(as, client, new URL(returned), state)
    const method = await authentication(as, context.client, context.given)
    const response = await authorizationCodeGrantRequest(as, client, method, checked, redirectUri, verifier, {
      ...requestOptions(context),
      additionalParameters: { resource },
    })
    return toGranted(context, await processAuthorizationCodeResponse(as, client, response))
  })
}

function codeIn(returned: URL | string): string | undefined {
  return URL.canParse(returned) ? (new URL(returned).searchParams.get('code') ?? undefined) : undefined
}

/** Exchanges a refresh token. The authorization server may replace it, so the result must be stored before it is used. */
export async function grantByRefresh(context: GrantContext, refreshToken: string): Promise<Granted> {
  const { as, resource } = context
  const client: Client = { client_id: context.client.id }
  return explain(as.issuer, 'refresh the login', [refreshToken, context.client.secret], async () => {
    const method = await authentication(as, context.client, context.given)
    const response = await refreshTokenGrantRequest(as, client, method, refreshToken, {
      ...requestOptions(context),
      additionalParameters: { resource },
    })
    const granted = toGranted(context, await processRefreshTokenResponse(as, client, response))
    return { ...granted, tokens: { refreshToken, ...granted.tokens } }
  })
}

/** Obtains a token for the client itself. */
export async function grantToClient(context: GrantContext, scopes: readonly string[]): Promise<Granted> {
  const { as, resource } = context
  const client: Client = { client_id: context.client.id }
  return explain(as.issuer, 'obtain a token', [context.client.secret], async () => {
    const method = await authentication(as, context.client, context.given)
    const parameters = { resource, ...(scopes.length > 0 && { scope: scopes.join(' ') }) }
    const response = await clientCredentialsGrantRequest(
      as,
      client,
      method,
      parameters,
      requestOptions(context),
    )
    return toGranted(context, await processClientCredentialsResponse(as, client, response))
  })
}

/** Ends the tokens at the authorization server, if it lets clients do that. */
export async function revoke(
  context: GrantContext,
  { refreshToken, accessToken }: StoredTokens,
): Promise<boolean> {
  const { as } = context
  if (as.revocation_endpoint === undefined) return false
  const client: Client = { client_id: context.client.id }
  for (const token of [refreshToken, accessToken]) {
    if (token === undefined) continue
    await explain(as.issuer, 'revoke the login', [token, context.client.secret], async () => {
      const method = await authentication(as, context.client, context.given)
      return revocationRequest(as, client, method, token, requestOptions(context))
    })
  }
  return true
}

/** Which URLs may be requested is decided by `request`, also where they are http. */
function requestOptions({ request }: GrantContext) {
  return { [customFetch]: request, [allowInsecureRequests]: true }
}

const VISIBLE = /^[\x21-\x7e]{1,65536}$/

function toGranted({ as, now }: GrantContext, response: TokenEndpointResponse): Granted {
  const { access_token: accessToken, refresh_token: refreshToken, expires_in: seconds, scope } = response
  if (response.token_type !== 'bearer') {
    throw unusable(`${as.issuer} issued a token of a type that is not supported; only Bearer is`)
  }
  if (!VISIBLE.test(accessToken))
    throw unusable(`${as.issuer} issued a token that cannot be sent in a header`)
  const claims = getValidatedIdTokenClaims(response)
  const user = [claims?.email, claims?.preferred_username, claims?.name, claims?.sub].find(
    (one) => typeof one === 'string',
  ) as string | undefined
  return {
    tokens: {
      accessToken,
      ...(refreshToken !== undefined && { refreshToken }),
      ...(seconds !== undefined && { expiresAt: now() + seconds * 1_000 }),
      ...(scope !== undefined && { granted: readScopes(scope) }),
    },
    ...(user !== undefined && { user }),
  }
}
