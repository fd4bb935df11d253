/**
 * The requests to an authorization server: those that return tokens, and the registration of the client. Tokens come for
 * the code of a login, a refresh, the client's own credentials. Each request names the resource, so that the token is of use
 * at this server only.
 */

import {
  type ClientAuth as Authenticate,
  type AuthorizationServer,
  allowInsecureRequests,
  authorizationCodeGrantRequest,
  type Client,
  ClientSecretPost,
  calculatePKCECodeChallenge,
  clientCredentialsGrantRequest,
  customFetch,
  type DPoPHandle,
  dynamicClientRegistrationRequest,
  generateRandomCodeVerifier,
  generateRandomState,
  genericTokenEndpointRequest,
  getValidatedIdTokenClaims,
  isDPoPNonceError,
  None,
  PrivateKeyJwt,
  processAuthorizationCodeResponse,
  processClientCredentialsResponse,
  processDynamicClientRegistrationResponse,
  processGenericTokenEndpointResponse,
  processRefreshTokenResponse,
  refreshTokenGrantRequest,
  revocationRequest,
  type TokenEndpointResponse,
  validateAuthResponse,
} from 'oauth4webapi'
import { isRecord } from '../../lib/json.ts'
import { readScopes } from './discovery.ts'
import type { KeyBinding } from './dpop.ts'
import type {
  GivenClient,
  IdentityOptions,
  LoginLink,
  SigningAlgorithm,
  StoredClient,
  StoredTokens,
} from './options.ts'
import { type AuthFetch, checkUrl, explain, unusable } from './safe-fetch.ts'

/** The parts of a token request that all grants share. */
export interface GrantContext {
  readonly as: AuthorizationServer
  readonly server: URL
  readonly client: StoredClient
  readonly given: GivenClient | undefined
  /** Absent at an identity provider, whose tokens are not for a server. */
  readonly resource?: string
  readonly request: AuthFetch
  readonly now: () => number
  /** Binds the tokens to this key. */
  readonly binding?: KeyBinding
}

export interface Granted {
  readonly tokens: StoredTokens
  readonly user?: string
  /** Of a login at an OpenID provider. It is not stored. */
  readonly idToken?: string
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
  const { as, server, resource, binding } = context
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
    ...(resource !== undefined && { resource }),
    // The code is of use to the holder of the key only (RFC 9449, 10).
    ...(binding && { dpop_jkt: binding.thumbprint }),
    ...(scopes.length > 0 && { scope: scopes.join(' ') }),
    // OpenID Connect issues no refresh token for this scope without asking.
    ...(scopes.includes('offline_access') && { prompt: 'consent' }),
  }
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value)
  const returned = await login.visit({ url, server, issuer: as.issuer, scopes, state, signal })
  return explain(as.issuer, 'log in', [verifier, codeIn(returned), context.client.secret], async () => {
    const checked = validateAuthResponse(as, client, new URL(returned), state)
    const method = await authentication(as, context.client, context.given)
    const options = { ...requestOptions(context), additionalParameters: resourceOf(context) }
    return withNonce(async () => {
      const code = await authorizationCodeGrantRequest(
        as,
        client,
        method,
        checked,
        redirectUri,
        verifier,
        options,
      )
      return toGranted(context, await processAuthorizationCodeResponse(as, client, code))
    })
  })
}

function codeIn(returned: URL | string): string | undefined {
  return URL.canParse(returned) ? (new URL(returned).searchParams.get('code') ?? undefined) : undefined
}

/** Exchanges a refresh token. The authorization server may replace it, so the result must be stored before it is used. */
export async function grantByRefresh(context: GrantContext, refreshToken: string): Promise<Granted> {
  const { as } = context
  const client: Client = { client_id: context.client.id }
  return explain(as.issuer, 'refresh the login', [refreshToken, context.client.secret], async () => {
    const method = await authentication(as, context.client, context.given)
    const options = { ...requestOptions(context), additionalParameters: resourceOf(context) }
    const granted = await withNonce(async () => {
      const response = await refreshTokenGrantRequest(as, client, method, refreshToken, options)
      return toGranted(context, await processRefreshTokenResponse(as, client, response))
    })
    return { ...granted, tokens: { refreshToken, ...granted.tokens } }
  })
}

/** Obtains a token for the client itself. */
export async function grantToClient(context: GrantContext, scopes: readonly string[]): Promise<Granted> {
  const { as } = context
  const client: Client = { client_id: context.client.id }
  return explain(as.issuer, 'obtain a token', [context.client.secret], async () => {
    const method = await authentication(as, context.client, context.given)
    const parameters = { ...resourceOf(context), ...scopeOf(scopes) }
    return withNonce(async () => {
      const options = requestOptions(context)
      const response = await clientCredentialsGrantRequest(as, client, method, parameters, options)
      return toGranted(context, await processClientCredentialsResponse(as, client, response))
    })
  })
}

const JWT_BEARER = 'urn:ietf:params:oauth:grant-type:jwt-bearer'

/** Exchanges an assertion of somebody whom the authorization server trusts. A refusal is final: nothing else is tried. */
export async function grantByAssertion(
  context: GrantContext,
  assertion: string,
  scopes: readonly string[],
): Promise<Granted> {
  const { as } = context
  const client: Client = { client_id: context.client.id }
  return explain(
    as.issuer,
    'obtain a token for the assertion',
    [assertion, context.client.secret],
    async () => {
      const method = await authentication(as, context.client, context.given)
      const parameters = { assertion, ...resourceOf(context), ...scopeOf(scopes) }
      return withNonce(async () => {
        const options = requestOptions(context)
        const response = await genericTokenEndpointRequest(
          as,
          client,
          method,
          JWT_BEARER,
          parameters,
          options,
        )
        return toGranted(context, await processGenericTokenEndpointResponse(as, client, response))
      })
    },
  )
}

function resourceOf({ resource }: GrantContext): { resource: string } | Record<string, never> {
  return resource === undefined ? {} : { resource }
}

function scopeOf(scopes: readonly string[]): { scope: string } | Record<string, never> {
  return scopes.length > 0 ? { scope: scopes.join(' ') } : {}
}

/** Sends a request again whose proof lacked a nonce; the library has kept the nonce of the refusal. */
async function withNonce<T>(send: () => Promise<T>): Promise<T> {
  try {
    return await send()
  } catch (error) {
    if (isDPoPNonceError(error)) return send()
    throw error
  }
}

/**
 * Ends the tokens at the authorization server, if it lets clients do that; returns whether it did. The refresh token decides, if there is
 * one: many servers cannot end an access token (RFC 7009, 2.2.1), which is of use for a short time only.
 */
export async function revoke(
  context: GrantContext,
  { refreshToken, accessToken }: StoredTokens,
): Promise<boolean> {
  const { as } = context
  if (as.revocation_endpoint === undefined) return false
  const client: Client = { client_id: context.client.id }
  let isEnded: boolean | undefined
  for (const token of [refreshToken, accessToken]) {
    if (token === undefined) continue
    const response = await explain(
      as.issuer,
      'revoke the login',
      [token, context.client.secret],
      async () => {
        const method = await authentication(as, context.client, context.given)
        return revocationRequest(as, client, method, token, requestOptions(context))
      },
    )
    isEnded ??= response.ok
  }
  return isEnded === true
}

interface RequestOptions {
  readonly [customFetch]: AuthFetch
  readonly [allowInsecureRequests]: true
  readonly DPoP?: DPoPHandle
}

/** `request` decides which URLs may be requested, even where they are http. */
export function requestOptions({
  request,
  binding,
}: Pick<GrantContext, 'request' | 'binding'>): RequestOptions {
  return {
    [customFetch]: request,
    [allowInsecureRequests]: true,
    ...(binding && { DPoP: binding.handle }),
  }
}

const VISIBLE = /^[\x21-\x7e]{1,65536}$/

function toGranted({ as, now, binding }: GrantContext, response: TokenEndpointResponse): Granted {
  const { access_token: accessToken, refresh_token: refreshToken, expires_in: seconds, scope } = response
  const wanted = binding ? 'DPoP' : 'Bearer'
  if (response.token_type !== wanted.toLowerCase()) {
    throw unusable(`${as.issuer} issued a token of another type than ${wanted}, which was requested`)
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
      ...(binding && { keyThumbprint: binding.thumbprint }),
    },
    ...(user !== undefined && { user }),
    ...(response.id_token !== undefined && { idToken: response.id_token }),
  }
}

// The identity of this client at an authorization server: a client that was registered by hand, the URL of a client id metadata
// document, or one that registers itself now. The specification prescribes this order.

interface Registration {
  readonly request: AuthFetch
  readonly redirectUri: string
  /** The client of an earlier login at this authorization server. */
  readonly known?: StoredClient
  readonly now: number
  readonly signal?: AbortSignal
}

/** Returns the client to use at this authorization server, and registers it if necessary. */
export async function identify(
  as: AuthorizationServer,
  { client, clientMetadataUrl, clientName }: IdentityOptions & { readonly clientName: string },
  registration: Registration,
): Promise<StoredClient> {
  if (client !== undefined) return givenClient(as, client)
  if (clientMetadataUrl !== undefined && as.client_id_metadata_document_supported === true) {
    return { id: clientMetadataUrl, method: 'none' }
  }
  const { known, redirectUri, now } = registration
  const fits = known?.redirectUri === redirectUri && (known.expiresAt ?? Number.POSITIVE_INFINITY) > now
  if (fits) return known
  if (as.registration_endpoint === undefined) {
    throw unusable(
      `${as.issuer} does not let clients register themselves. Register one there and pass it as \`client\``,
    )
  }
  return register(as, clientName, registration)
}

/** A client that was given, if it belongs to this authorization server. */
export function givenClient(as: AuthorizationServer, { id, secret, issuer }: GivenClient): StoredClient {
  if (issuer !== undefined && !isSame(issuer, as.issuer)) {
    throw unusable(`The client ${id} is registered at ${issuer}, but the server uses ${as.issuer}`)
  }
  return { id, ...(secret !== undefined && { secret }) }
}

/** Differs at most in the slash that URL parsers add to an origin. */
export function isSame(one: string, other: string): boolean {
  return (
    one === other || (URL.canParse(one) && URL.canParse(other) && new URL(one).href === new URL(other).href)
  )
}

async function register(
  as: AuthorizationServer,
  clientName: string,
  { request, redirectUri, signal }: Registration,
): Promise<StoredClient> {
  const local = /^http:|^(?!https:)/.test(redirectUri)
  const metadata = {
    client_name: clientName,
    redirect_uris: [redirectUri],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    application_type: local ? 'native' : 'web',
    token_endpoint_auth_method: preferredMethod(as),
  }
  const registered = await explain(as.issuer, 'register the client', [], async () =>
    processDynamicClientRegistrationResponse(
      await lenient(
        await dynamicClientRegistrationRequest(as, metadata, {
          [customFetch]: request,
          [allowInsecureRequests]: true,
          signal,
        }),
      ),
    ),
  )
  const { client_id: id, client_secret: secret, client_secret_expires_at: expires } = registered
  const method = registered.token_endpoint_auth_method
  return {
    id,
    redirectUri,
    ...(typeof secret === 'string' && { secret }),
    ...(typeof method === 'string' && { method }),
    ...(typeof expires === 'number' && expires > 0 && { expiresAt: expires * 1_000 }),
  }
}

/** Many servers respond with status 200, and do not say that a secret never expires. */
async function lenient(response: Response): Promise<Response> {
  if (!response.ok) return response
  const body: unknown = await response
    .clone()
    .json()
    .catch(() => undefined)
  if (!isRecord(body)) return response
  return Response.json({ client_secret_expires_at: 0, ...body }, { status: 201 })
}

/** A client on a person's machine keeps no secret, so `none` comes first. */
function preferredMethod(as: AuthorizationServer): string {
  const supported = as.token_endpoint_auth_methods_supported
  return (
    ['none', 'client_secret_basic', 'client_secret_post'].find((one) => supported?.includes(one)) ?? 'none'
  )
}

/** Returns the way in which the client authenticates at the token endpoint. */
export async function authentication(
  as: AuthorizationServer,
  client: StoredClient,
  given: GivenClient | undefined,
): Promise<Authenticate> {
  if (given?.privateKey !== undefined) {
    const { key, algorithm = 'ES256', keyId: kid } = given.privateKey
    return PrivateKeyJwt({ key: typeof key === 'string' ? await importKey(key, algorithm) : key, kid })
  }
  if (client.secret === undefined) return None()
  const supported = as.token_endpoint_auth_methods_supported ?? ['client_secret_basic']
  const method =
    client.method ??
    (supported.includes('client_secret_basic') ? 'client_secret_basic' : 'client_secret_post')
  switch (method) {
    case 'none':
      return None()
    case 'client_secret_basic':
      return basic(client.secret)
    case 'client_secret_post':
      return ClientSecretPost(client.secret)
    default:
      throw unusable(`${as.issuer} wants the client to authenticate with ${method}, which is not supported`)
  }
}

/** Encodes as little as RFC 6749 allows: many servers do not decode, and `oauth4webapi` encodes every dash. */
function basic(secret: string): Authenticate {
  const encode = (text: string) => encodeURIComponent(text).replaceAll('%20', '+')
  return (_as, { client_id: id }, _body, headers) => {
    headers.set('authorization', `Basic ${btoa(`${encode(id)}:${encode(secret)}`)}`)
  }
}

const KEY_TYPES = {
  ES256: { name: 'ECDSA', namedCurve: 'P-256' },
  ES384: { name: 'ECDSA', namedCurve: 'P-384' },
  PS256: { name: 'RSA-PSS', hash: 'SHA-256' },
  RS256: { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' },
  Ed25519: { name: 'Ed25519' },
} as const

/** Imports a private key; the error quotes nothing of it. */
async function importKey(pem: string, algorithm: SigningAlgorithm): Promise<CryptoKey> {
  try {
    const body = pem.replace(/-----(?:BEGIN|END) PRIVATE KEY-----|\s/g, '')
    const bytes = Uint8Array.from(atob(body), (one) => one.charCodeAt(0))
    return await crypto.subtle.importKey('pkcs8', bytes, KEY_TYPES[algorithm], false, ['sign'])
  } catch {
    throw new TypeError(`The private key of the client is not a PKCS #8 key for ${algorithm} in PEM form`)
  }
}
