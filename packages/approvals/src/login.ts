/**
 * Who visits a page. Either a function of the operator tells, for those behind a proxy that logs people in, or OpenID Connect:
 * the authorization code flow with PKCE, and a session in a sealed cookie.
 *
 * login 1: What a cookie says counts only if this service sealed it, and only until it expires.
 * login 2: A callback counts only in the browser that began the login, once begun, and within ten minutes.
 * login 3: After a login the browser is sent to a page of ours, whatever the address said.
 */

import * as oauth from 'oauth4webapi'
import type { ExtensionHost } from 'rondo/extension'
import { askOperator, type Identity, PeopleUnavailable } from './people.ts'

/** A person as a login names them. */
type LoggedIn = Omit<Identity, 'kind'> & { readonly kind?: 'login' }

/** Returns who sent a request; undefined if nobody is logged in. */
export type LoginFunction = (request: Request) => LoggedIn | undefined | Promise<LoggedIn | undefined>

export interface OidcOptions {
  /** The address of the identity provider, as its metadata says it. */
  issuer: string
  /** The id of the approvals as a client of the provider. */
  clientId: string
  /** The secret of that client. Default: none, for a public client. */
  clientSecret?: string
  /** The scopes to ask for. Default: `openid profile email`. */
  scope?: string
  /** How long a login lasts. Default: 8 hours. */
  sessionMs?: number
  /** Allows plain HTTP, for a provider on this machine. Default: false. */
  allowInsecure?: boolean
}

/** A login by OpenID Connect: the result of `oidc`. */
export interface OidcLogin extends OidcOptions {
  readonly kind: 'oidc'
}

/**
 * Logs approvers in with OpenID Connect. Register `<url>/callback` as the redirect address.
 *
 * @example
 * ```ts
 * const login = oidc({
 *   issuer: 'https://login.example',
 *   clientId: 'approvals',
 *   clientSecret: process.env.CLIENT_SECRET,
 * })
 * ```
 */
export function oidc(options: OidcOptions): OidcLogin {
  const { issuer, clientId } = options ?? {}
  if (!URL.canParse(issuer ?? ''))
    throw new TypeError('oidc needs the address of the issuer: oidc({ issuer, clientId })')
  if (typeof clientId !== 'string' || clientId === '')
    throw new TypeError('oidc needs a clientId: oidc({ issuer, clientId })')
  if (new URL(issuer).protocol !== 'https:' && !options.allowInsecure)
    throw new TypeError(
      'The issuer of oidc must have an https address; allowInsecure permits one on this machine',
    )
  return { ...options, kind: 'oidc' }
}

export interface Visitor {
  readonly identity: Identity
  /** Whether there is a session that can be ended here. */
  readonly hasSession: boolean
}

export interface Login {
  visitor(request: Request): Promise<Visitor | undefined>
  /** The response for somebody who is not logged in and wants this page. */
  begin(request: Request): Promise<Response>
  finish(request: Request): Promise<Response>
  /** A header that ends the session. */
  readonly end?: string
}

const SESSION_MS = 8 * 3_600_000
const BEGIN_MS = 600_000
const MAX_COOKIE = 8_192

interface Begun {
  readonly state: string
  readonly nonce: string
  readonly verifier: string
  readonly to: string
  readonly expires: number
}

interface Session {
  readonly identity: Identity
  readonly expires: number
}

export interface LoginPlace {
  readonly host: ExtensionHost
  /** The address of the inbox. */
  readonly url: URL
}

/** Those whom the operator's function does not know are refused: the proxy logs them in. */
export function functionLogin(login: LoginFunction): Login {
  const refused = async (): Promise<Response> => new Response('Log in first.', { status: 401 })
  return {
    async visitor(request) {
      const identity = await askOperator('login', () => login(request))
      if (identity === undefined || identity === null) return undefined
      if (typeof identity.subject !== 'string' || identity.subject === '')
        throw new PeopleUnavailable('login must return { subject, issuer } or undefined')
      return { identity: { ...identity, kind: 'login' }, hasSession: false }
    },
    begin: refused,
    finish: refused,
  }
}

export function oidcLogin(options: OidcLogin, { host, url }: LoginPlace): Login {
  const isSecure = url.protocol === 'https:'
  const prefix = isSecure ? '__Host-' : ''
  const names = { session: `${prefix}rondo-approvals`, begun: `${prefix}rondo-approvals-login` }
  const cookie = (name: string, value: string, seconds: number): string =>
    `${name}=${value}; Path=/; HttpOnly; SameSite=Lax; Max-Age=${seconds}${isSecure ? '; Secure' : ''}`
  const read = async <T extends { expires: number }>(
    request: Request,
    name: string,
  ): Promise<T | undefined> => {
    const sealed = cookieOf(request, name)
    if (sealed === undefined || sealed.length > MAX_COOKIE) return undefined
    const opened = await host.open(name, sealed)
    const value = opened && (JSON.parse(new TextDecoder().decode(opened)) as T)
    return value && value.expires > host.now() ? value : undefined
  }
  const redirectUri = `${url.href.replace(/\/$/, '')}/callback`
  const client: oauth.Client = { client_id: options.clientId }
  const authenticate =
    options.clientSecret === undefined ? oauth.None() : oauth.ClientSecretPost(options.clientSecret)
  const settings = {
    [oauth.allowInsecureRequests]: options.allowInsecure === true,
    signal: () => AbortSignal.timeout(10_000),
  }
  const discover = async (): Promise<oauth.AuthorizationServer> => {
    const issuer = new URL(options.issuer)
    return oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer, settings))
  }
  const fetchIdentity = async (request: Request, begun: Begun): Promise<Identity> => {
    const server = await discover()
    const params = oauth.validateAuthResponse(server, client, new URL(request.url).searchParams, begun.state)
    const response = await oauth.authorizationCodeGrantRequest(
      server,
      client,
      authenticate,
      params,
      redirectUri,
      begun.verifier,
      settings,
    )
    const result = await oauth.processAuthorizationCodeResponse(server, client, response, {
      expectedNonce: begun.nonce,
      requireIdToken: true,
    })
    await oauth.validateApplicationLevelSignature(server, response, settings)
    const claims = oauth.getValidatedIdTokenClaims(result)
    if (claims === undefined) throw new Error('The provider returned no ID token')
    const text = (value: unknown): string | undefined =>
      typeof value === 'string' ? value.slice(0, 200) : undefined
    const { iss: issuer, sub: subject } = claims
    return { kind: 'login', issuer, subject, name: text(claims.name) ?? subject, email: text(claims.email) }
  }
  return {
    end: cookie(names.session, '', 0),
    async visitor(request) {
      const session = await read<Session>(request, names.session)
      return session && { identity: session.identity, hasSession: true }
    },
    async begin(request) {
      const server = await discover()
      if (!server.authorization_endpoint) throw new Error('The provider has no authorization endpoint')
      const { pathname, search } = new URL(request.url)
      const [state, nonce, verifier] = [
        oauth.generateRandomState(),
        oauth.generateRandomNonce(),
        oauth.generateRandomCodeVerifier(),
      ]
      const begun: Begun = { state, nonce, verifier, to: pathname + search, expires: host.now() + BEGIN_MS }
      const to = new URL(server.authorization_endpoint)
      const params = {
        client_id: options.clientId,
        redirect_uri: redirectUri,
        response_type: 'code',
        scope: options.scope ?? 'openid profile email',
        code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
        code_challenge_method: 'S256',
        state,
        nonce,
      }
      for (const [name, value] of Object.entries(params)) to.searchParams.set(name, value)
      const sealed = await host.seal(names.begun, JSON.stringify(begun))
      return redirect(to.href, [cookie(names.begun, sealed, BEGIN_MS / 1000)])
    },
    async finish(request) {
      const begun = await read<Begun>(request, names.begun)
      if (!begun) return new Response('This login has expired. Open the page again.', { status: 400 })
      const identity = await fetchIdentity(request, begun)
      const sessionMs = options.sessionMs ?? SESSION_MS
      const session: Session = { identity, expires: host.now() + sessionMs }
      const sealed = await host.seal(names.session, JSON.stringify(session))
      const to = new URL(begun.to, url)
      const page =
        to.origin === url.origin && to.pathname.startsWith(url.pathname)
          ? to.pathname + to.search
          : url.pathname
      return redirect(page, [
        cookie(names.session, sealed, Math.floor(sessionMs / 1000)),
        cookie(names.begun, '', 0),
      ])
    },
  }
}

export function redirect(location: string, cookies: readonly string[] = []): Response {
  const headers = new Headers({ location, 'cache-control': 'no-store' })
  for (const one of cookies) headers.append('set-cookie', one)
  return new Response(null, { status: 303, headers })
}

function cookieOf(request: Request, name: string): string | undefined {
  const pairs = (request.headers.get('cookie') ?? '').split(';')
  const found = pairs.map((pair) => pair.trim()).find((pair) => pair.startsWith(`${name}=`))
  return found?.slice(name.length + 1)
}
