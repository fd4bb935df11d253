/**
 * Who this client is at an authorization server: a client that was registered by hand, the URL of a client id metadata
 * document, or one that registers itself now. The specification gives this order.
 */

import {
  type ClientAuth as Authenticate,
  type AuthorizationServer,
  allowInsecureRequests,
  ClientSecretPost,
  customFetch,
  dynamicClientRegistrationRequest,
  None,
  PrivateKeyJwt,
  processDynamicClientRegistrationResponse,
} from 'oauth4webapi'
import { isRecord } from '../../lib/json.ts'
import type { StoredClient } from './login-store.ts'
import type { GivenClient, IdentityOptions, SigningAlgorithm } from './options.ts'
import { type AuthFetch, explain, unusable } from './safe-fetch.ts'

interface Registration {
  readonly request: AuthFetch
  readonly redirectUri: string
  /** What is known from an earlier login at this authorization server. */
  readonly known?: StoredClient
  readonly now: number
  readonly signal?: AbortSignal
}

/** Returns the client to use at this authorization server, and registers it if necessary. */
export async function identify(
  as: AuthorizationServer,
  { client, clientMetadataUrl, clientName = 'Rondo' }: IdentityOptions,
  registration: Registration,
): Promise<StoredClient> {
  if (client !== undefined) return givenClient(as, client)
  if (clientMetadataUrl !== undefined && as.client_id_metadata_document_supported === true) {
    return { id: clientMetadataUrl, method: 'none' }
  }
  const { known, redirectUri, now } = registration
  const fits =
    known?.redirectUri === redirectUri && !(known.expiresAt !== undefined && known.expiresAt <= now)
  if (known !== undefined && fits) return known
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
  const supported = as.token_endpoint_auth_methods_supported ?? ['none']
  return (
    ['none', 'client_secret_basic', 'client_secret_post'].find((one) => supported.includes(one)) ?? 'none'
  )
}

/** How the client authenticates at the token endpoint. */
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
