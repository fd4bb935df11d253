/**
 * A real authorization server (`oidc-provider`) in this process, on loopback: code flow with PKCE, refresh tokens that rotate,
 * resource indicators, dynamic registration, client id metadata documents, client credentials, introspection, and `iss`
 * in the redirect. Whoever visits the authorization page is logged in as `user`, and consents to everything.
 */

import { createHash, randomBytes } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { exportJWK, generateKeyPair, type JWK } from 'jose'
import type { ClientMetadata, Configuration, default as Provider } from 'oidc-provider'

export interface AuthorizationServer {
  readonly issuer: string
  /** The requests so far, as `GET /jwks`. */
  readonly requests: readonly string[]
  /** The person who logs in next. A `login_hint` goes first. */
  user: string
  /** The format of the access tokens that are issued from now on. Default: `jwt`. */
  format: 'jwt' | 'opaque'
  /** The lifetime of access tokens that are issued from now on, in seconds. Default: 600. */
  accessTokenSeconds: number
  /** Documents that are served to the server under their URL: client id metadata documents. */
  readonly documents: Map<string, unknown>
  /** Opens an authorization URL like a browser: logs in, consents, and returns the redirect to the client. */
  visit(url: string | URL): Promise<URL>
  /** The whole code flow. */
  authorize(request: CodeRequest): Promise<Tokens>
  refresh(request: {
    refreshToken: string
    client?: string
    scope?: string
    resource?: string
  }): Promise<Tokens>
  /** Client credentials of the client `robot`. */
  robot(request: { scope: string; resource: string }): Promise<Tokens>
  close(): Promise<void>
}

export interface CodeRequest {
  readonly resource: string
  readonly scope: string
  /** Default: `desk`. */
  readonly client?: string
  /** Default: the server's `user`. */
  readonly user?: string
}

export interface Tokens {
  readonly access_token: string
  readonly refresh_token?: string
  readonly scope?: string
  readonly expires_in?: number
}

export interface AuthorizationServerOptions {
  /** The scopes of every resource, separated by spaces. */
  readonly scopes?: string
  /** Clients besides those of `CLIENTS`. */
  readonly clients?: readonly ClientMetadata[]
  readonly configuration?: Configuration
  /** Features besides those of every server here. */
  readonly features?: Pick<NonNullable<Configuration['features']>, 'dPoP'>
  /** Adds grants to the server before it starts. */
  readonly onProvider?: (provider: Provider) => void
}

/** The redirect URI of the public clients. */
export const REDIRECT_URI = 'http://127.0.0.1:7777/callback'
export const ROBOT_SECRET = 'robot-secret-of-the-tests'

const PUBLIC: ClientMetadata = {
  client_id: '',
  application_type: 'native',
  token_endpoint_auth_method: 'none',
  grant_types: ['authorization_code', 'refresh_token'],
  response_types: ['code'],
  redirect_uris: [REDIRECT_URI],
}

/** `desk` and `phone` are public clients, `robot` has client credentials, and `resource` may introspect. */
const CLIENTS: readonly ClientMetadata[] = [
  { ...PUBLIC, client_id: 'desk' },
  { ...PUBLIC, client_id: 'phone' },
  {
    client_id: 'robot',
    client_secret: ROBOT_SECRET,
    grant_types: ['client_credentials'],
    response_types: [],
    redirect_uris: [],
  },
  {
    client_id: 'resource',
    client_secret: ROBOT_SECRET,
    grant_types: [],
    response_types: [],
    redirect_uris: [],
  },
]

export async function startAuthorizationServer(
  options: AuthorizationServerOptions = {},
): Promise<AuthorizationServer> {
  const requests: string[] = []
  const documents = new Map<string, unknown>()
  let handle: (req: IncomingMessage, res: ServerResponse) => void = () => {}
  const http = createServer((req, res) => {
    requests.push(`${req.method} ${req.url?.split('?')[0]}`)
    handle(req, res)
  })
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  const issuer = `http://127.0.0.1:${(http.address() as AddressInfo).port}`
  const state = { user: 'alice', format: 'jwt' as 'jwt' | 'opaque', accessTokenSeconds: 600 }
  const provider = await createProvider(issuer, options, state, documents)
  options.onProvider?.(provider)
  const serve = provider.callback()
  handle = (req, res) => {
    if (!req.url?.startsWith('/interaction/')) return void serve(req, res)
    consent(provider, req, res, state).catch((error: unknown) => {
      res.writeHead(500)
      res.end(String(error))
    })
  }

  const token = async (body: Record<string, string | undefined>, authorization?: string): Promise<Tokens> => {
    const sent = Object.entries(body).filter((entry): entry is [string, string] => entry[1] !== undefined)
    const response = await fetch(`${issuer}/token`, {
      method: 'POST',
      headers: authorization === undefined ? {} : { authorization },
      body: new URLSearchParams(sent),
    })
    if (!response.ok)
      throw new Error(`The token endpoint responded ${response.status}: ${await response.text()}`)
    return (await response.json()) as Tokens
  }

  return Object.assign(state, {
    issuer,
    requests,
    documents,
    visit: (url: string | URL) => visit(issuer, url),
    async authorize({ resource, scope, client = 'desk', user }: CodeRequest) {
      const verifier = randomBytes(32).toString('base64url')
      const url = new URL(`${issuer}/auth`)
      url.search = new URLSearchParams({
        client_id: client,
        response_type: 'code',
        redirect_uri: REDIRECT_URI,
        scope,
        resource,
        code_challenge: createHash('sha256').update(verifier).digest('base64url'),
        code_challenge_method: 'S256',
        ...(user !== undefined && { login_hint: user }),
      }).toString()
      const redirect = await visit(issuer, url)
      const code = redirect.searchParams.get('code')
      if (code === null) throw new Error(`No code came back: ${redirect.search}`)
      return token({
        grant_type: 'authorization_code',
        client_id: client,
        code,
        redirect_uri: REDIRECT_URI,
        code_verifier: verifier,
        resource,
      })
    },
    refresh: ({
      refreshToken,
      client = 'desk',
      scope,
      resource,
    }: Parameters<AuthorizationServer['refresh']>[0]) =>
      token({ grant_type: 'refresh_token', client_id: client, refresh_token: refreshToken, scope, resource }),
    robot: ({ scope, resource }: { scope: string; resource: string }) =>
      token({ grant_type: 'client_credentials', scope, resource }, basic('robot', ROBOT_SECRET)),
    close: () =>
      new Promise<void>((resolve) => {
        http.close(() => resolve())
        http.closeAllConnections()
      }),
  })
}

export function basic(client: string, secret: string): string {
  return `Basic ${Buffer.from(`${client}:${secret}`).toString('base64')}`
}

interface State {
  user: string
  format: 'jwt' | 'opaque'
  accessTokenSeconds: number
}

async function createProvider(
  issuer: string,
  {
    scopes = 'tickets:read tickets:write',
    clients = [],
    configuration = {},
    features = {},
  }: AuthorizationServerOptions,
  state: State,
  documents: ReadonlyMap<string, unknown>,
): Promise<Provider> {
  const keys = { keys: [await signingKey('RS256'), await signingKey('ES256')] }
  const { warn, info } = console
  // It prints what should be different in production.
  console.warn = console.info = () => {}
  try {
    const oidc = await import('oidc-provider')
    return new oidc.default(issuer, {
      clients: [...CLIENTS, ...clients],
      jwks: keys as Configuration['jwks'],
      cookies: { keys: ['cookies-of-the-tests'] },
      pkce: { required: () => true },
      findAccount: (_ctx, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
      interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
      issueRefreshToken: (_ctx, client) => client.grantTypeAllowed('refresh_token'),
      rotateRefreshToken: true,
      expiresWithSession: () => false,
      clientBasedCORS: () => true,
      ttl: {
        AccessToken: () => state.accessTokenSeconds,
        ClientCredentials: () => state.accessTokenSeconds,
        Interaction: 600,
        Session: 3_600,
        Grant: 3_600,
        RefreshToken: 3_600,
      },
      fetch: async (url) => {
        const document = documents.get(String(url))
        return document === undefined ? new Response('', { status: 404 }) : Response.json(document)
      },
      features: {
        devInteractions: { enabled: false },
        clientCredentials: { enabled: true },
        introspection: { enabled: true, allowedPolicy: () => true },
        revocation: { enabled: true },
        registration: { enabled: true },
        clientIdMetadataDocument: { enabled: true, ack: 'draft-02' },
        resourceIndicators: {
          enabled: true,
          useGrantedResource: () => true,
          getResourceServerInfo: (_ctx, resource) => ({
            scope: scopes,
            audience: resource,
            accessTokenFormat: state.format,
            accessTokenTTL: state.accessTokenSeconds,
            jwt: { sign: { alg: 'ES256' } },
          }),
        },
        ...features,
      },
      ...configuration,
    })
  } finally {
    Object.assign(console, { warn, info })
  }
}

async function signingKey(alg: string): Promise<JWK> {
  const { privateKey } = await generateKeyPair(alg, { extractable: true })
  return { ...(await exportJWK(privateKey)), alg, use: 'sig', kid: `key-${alg}` }
}

/** Logs in, and grants every scope that was asked for. */
async function consent(
  provider: Provider,
  req: IncomingMessage,
  res: ServerResponse,
  state: State,
): Promise<void> {
  const { prompt, params, session, grantId } = await provider.interactionDetails(req, res)
  if (prompt.name === 'login') {
    const accountId = typeof params.login_hint === 'string' ? params.login_hint : state.user
    return provider.interactionFinished(req, res, { login: { accountId } })
  }
  const clientId = String(params.client_id)
  const existing = grantId === undefined ? undefined : await provider.Grant.find(grantId)
  const grant = existing ?? new provider.Grant({ accountId: session?.accountId, clientId })
  const { missingOIDCScope, missingOIDCClaims, missingResourceScopes } = prompt.details as {
    missingOIDCScope?: string[]
    missingOIDCClaims?: string[]
    missingResourceScopes?: Record<string, string[]>
  }
  if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(' '))
  if (missingOIDCClaims) grant.addOIDCClaims(missingOIDCClaims)
  for (const [resource, scopes] of Object.entries(missingResourceScopes ?? {}))
    grant.addResourceScope(resource, scopes.join(' '))
  const consented = { consent: { grantId: await grant.save() } }
  return provider.interactionFinished(req, res, consented, { mergeWithLastSubmission: true })
}

/** Follows redirects with cookies until one leads away from the authorization server. */
async function visit(issuer: string, start: string | URL): Promise<URL> {
  const cookies = new Map<string, string>()
  let url = new URL(start)
  for (let hop = 0; hop < 12; hop += 1) {
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    const response = await fetch(url, { redirect: 'manual', headers: { cookie } })
    for (const set of response.headers.getSetCookie()) {
      const [pair = ''] = set.split(';')
      const at = pair.indexOf('=')
      cookies.set(pair.slice(0, at), pair.slice(at + 1))
    }
    const location = response.headers.get('location')
    if (location === null)
      throw new Error(`The authorization page responded ${response.status}: ${await response.text()}`)
    url = new URL(location, url)
    if (url.origin !== issuer) return url
  }
  throw new Error('The authorization server redirects without end')
}
