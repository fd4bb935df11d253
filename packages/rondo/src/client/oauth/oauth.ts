/**
 * OAuth for a client: finds the authorization server of a server that refuses a request, obtains a token, keeps it fresh.
 *
 * oauth 1: A token is sent only to the server for which it was issued, and a refresh token or secret only to the
 *   authorization server that issued it.
 * oauth 2: One piece of work at a time per server: requests that are refused meanwhile wait for it. A refresh is never
 *   aborted, since the authorization server may have replaced the refresh token already.
 * oauth 3: Nothing is asked for twice in vain: a token that was issued just now and is refused, or scopes that were
 *   requested already, end the request with an error.
 */

import type { AuthorizationServer } from 'oauth4webapi'
import { RondoError } from '../../errors.ts'
import { isLoopback } from '../../lib/address.ts'
import { orAbort } from '../../lib/clock.ts'
import {
  callable,
  clock,
  defineOptions,
  flag,
  number,
  type OptionsOf,
  text,
  unchecked,
} from '../../options.ts'
import type { AuthorizedRequest, Credential, Refusal, RequestAuth } from '../auth.ts'
import { parseChallenges } from '../transport/response-reader.ts'
import { restoreGrant } from './assertion.ts'
import { checkLogin, type Protection, readIssuer, readProtection, readScopes } from './discovery.ts'
import { createBinding, type KeyBinding } from './dpop.ts'
import {
  type GrantContext,
  type Granted,
  givenClient,
  grantByAssertion,
  grantByCode,
  grantByRefresh,
  grantToClient,
  identify,
  isSame,
  revoke,
} from './grant.ts'
import {
  type AssertionGrant,
  canonical,
  type LoginLink,
  memoryTokenStore,
  type OAuth,
  type OAuthOptions,
  type StoredClient,
  type StoredLogin,
  type StoredTokens,
  type TokenStore,
} from './options.ts'
import { type AuthFetch, createSafeFetch, oauthCode, unusable } from './safe-fetch.ts'

/** A token is replaced this long before it expires. */
const EARLY_MS = 10_000

const OPTIONS = defineOptions('oauth', {
  login: callable(),
  grant: unchecked<NonNullable<OAuthOptions['grant']>>('authorization_code'),
  client: unchecked(),
  clientMetadataUrl: text(),
  clientName: text('Rondo'),
  scopes: unchecked<readonly string[]>([]),
  offlineAccess: flag(true),
  issuer: text(),
  resource: text(),
  dpop: unchecked(),
  store: unchecked(),
  fetch: callable(),
  timeoutMs: number(20_000),
  loginTimeoutMs: number(600_000),
  now: clock,
} satisfies OptionsOf<OAuthOptions>)

/**
 * Authorises requests with OAuth: pass it to `connect` as `auth`.
 *
 * @example
 * ```ts
 * const auth = oauth({ login: loopback({ onLink: ({ url }) => console.log(url.href) }) })
 * const client = await connect('https://tables.example.com/mcp', { auth })
 * ```
 */
export function oauth(options: OAuthOptions = {}): OAuth {
  const open = openLogins(options)
  return {
    open,
    login: (server, { signal = new AbortController().signal } = {}) => open(new URL(server)).login(signal),
    logout: (server) => open(new URL(server)).logout(),
  }
}

/** Returns the login of each server, always the same one. */
export function openLogins(given: OAuthOptions): (server: URL) => ServerLogin {
  const options = OPTIONS.read(given)
  checkOptions(options)
  const store = options.store ?? memoryTokenStore()
  const opened = new Map<string, ServerLogin>()
  return (server) => {
    const key = canonical(server)
    const known = opened.get(key) ?? createServerLogin(checkServer(server), key, { ...options, store })
    opened.set(key, known)
    return known
  }
}

const GRANTS: readonly unknown[] = ['authorization_code', 'client_credentials']

function isAssertion(grant: OAuthOptions['grant']): grant is AssertionGrant {
  return typeof grant === 'object' && grant.kind === 'jwt-bearer' && typeof grant.assertion === 'function'
}

function checkOptions({ client, grant, clientMetadataUrl, issuer }: OAuthOptions): void {
  if (!isAssertion(grant) && !GRANTS.includes(grant)) {
    throw new TypeError(`oauth: grant must be ${GRANTS.join(', ')}, workload({ … }) or enterprise({ … })`)
  }
  if (isAssertion(grant) && client === undefined) {
    throw new TypeError('A grant with an assertion needs a client: { id, issuer }')
  }
  const secret = client?.secret !== undefined || client?.privateKey !== undefined || isAssertion(grant)
  if (secret && client?.issuer === undefined && issuer === undefined) {
    throw new TypeError(
      'client.issuer must name the authorization server that knows the client. Without it any server could have the secret or the assertion sent elsewhere',
    )
  }
  if (grant === 'client_credentials' && !secret) {
    throw new TypeError('The grant client_credentials needs a client with a secret or a privateKey')
  }
  if (clientMetadataUrl !== undefined && !/^https:\/\/[^/]+\/./.test(clientMetadataUrl)) {
    throw new TypeError('clientMetadataUrl must be an https URL with a path')
  }
}

function checkServer(server: URL): URL {
  if (server.protocol === 'https:' || isLoopback(server.hostname)) return server
  throw new TypeError(`A token may be sent over https only, not to ${server.origin}`)
}

/** Gets a token that the server should refuse: for another resource, or with the least scope. It is not stored. */
export type DoctorTokens = (other: {
  readonly resource?: string
  readonly scope?: 'least'
}) => Promise<string>

interface ServerLogin extends RequestAuth {
  tokenFor: DoctorTokens
  login(signal: AbortSignal): Promise<StoredLogin>
  logout(): Promise<boolean>
}

type Setup = ReturnType<typeof OPTIONS.read> & { readonly store: TokenStore }

function createServerLogin(server: URL, place: string, setup: Setup): ServerLogin {
  const { store, now, loginTimeoutMs: limitMs, client: given } = setup
  /** The issuer that the caller named. */
  const named = setup.issuer ?? given?.issuer
  const reach = {
    server,
    fetch: setup.fetch,
    timeoutMs: setup.timeoutMs,
    /** The issuer that the caller named, or at which somebody has logged in before. */
    get trusted(): string | undefined {
      return named ?? current?.issuer
    },
  }
  const request = createSafeFetch(reach)
  const lookup = Object.assign(reach, { request, resource: setup.resource })
  const single = createSingleRun()
  const exclusively = <T>(work: () => Promise<T>): Promise<T> => store.exclusively?.(place, work) ?? work()
  let current: StoredLogin | undefined
  let loaded = false
  /** The store does not have `current` yet. */
  let unsaved = false
  /** Issued in this process for a login, and not accepted yet. */
  let unproven: string | undefined
  /** Issued for a refresh token, and not accepted yet. */
  let refreshed: string | undefined
  let known: AuthorizationServer | undefined
  let key: Promise<KeyBinding> | undefined
  /** The key of this process, created when it is first needed. */
  const keyOf = (): Promise<KeyBinding> =>
    (key ??= createBinding(typeof setup.dpop === 'object' ? setup.dpop : undefined))
  /** Whether a token is of use here: one of another issuer than the caller named is not, nor a bound one without its key. */
  const isUsable = async ({ issuer, tokens }: StoredLogin): Promise<boolean> => {
    if (named !== undefined && !isSame(issuer, named)) return false
    if (tokens?.keyThumbprint !== undefined) return tokens.keyThumbprint === (await keyOf()).thumbprint
    return setup.dpop === undefined || setup.dpop === false
  }

  const load = async (): Promise<StoredLogin | undefined> => {
    if (unsaved) return current
    const found = await store.load(place)
    current = found?.server === place ? found : undefined
    if (current !== undefined && !(await isUsable(current))) current = { ...current, tokens: undefined }
    loaded = true
    return current
  }
  const held = async () => (loaded ? current : load())
  const save = async (login: StoredLogin): Promise<StoredLogin> => {
    current = login
    loaded = true
    // A new refresh token must not be lost because the store fails: the old one is of no use any more.
    unsaved = true
    await store.save(place, login)
    unsaved = false
    return login
  }
  const forget = async (): Promise<void> => {
    current = undefined
    loaded = true
    unsaved = false
    await store.remove(place)
  }
  const issuerOf = async (issuer: string, undescribed?: boolean): Promise<AuthorizationServer> => {
    if (known === undefined || !isSame(known.issuer, issuer))
      known = await readIssuer(lookup, issuer, undescribed ?? issuer === server.origin)
    return known
  }
  const contextOf = async (
    as: AuthorizationServer,
    client: StoredClient,
    resource: string,
    isBound: boolean,
  ): Promise<GrantContext> => ({
    ...{ as, server, client, given, resource, request, now },
    ...(isBound && { binding: await bindingAt(as) }),
  })
  const bindingAt = (as: AuthorizationServer): Promise<KeyBinding> => {
    if (as.dpop_signing_alg_values_supported !== undefined) return keyOf()
    throw unusable(`${as.issuer} does not bind tokens to keys (dpop_signing_alg_values_supported)`)
  }

  /** Exchanges the refresh token, or obtains another token without one. False if neither is possible: then somebody has to log in. */
  const refresh = (refused: string | undefined, signal: AbortSignal): Promise<boolean> =>
    exclusively(async () => {
      const login = await load()
      const tokens = login?.tokens
      if (login === undefined || tokens === undefined) return false
      // Another process, or an earlier request, has refreshed it meanwhile.
      if (tokens.accessToken !== refused && !isStale(tokens, now())) return true
      const { refreshToken } = tokens
      const isBound = tokens.keyThumbprint !== undefined
      if (refreshToken === undefined) return renew(login, isBound, signal)
      try {
        const context = await contextOf(await issuerOf(login.issuer), login.client, login.resource, isBound)
        const granted = await twice(() => grantByRefresh(context, refreshToken))
        await save(toLogin(login, granted))
        refreshed = granted.tokens.accessToken
        return true
      } catch (error) {
        const code = oauthCode(error) ?? ''
        if (!ENDED.has(code)) throw error
        const { tokens: _, ...rest } = login
        // Without a client that the authorization server knows, the next login registers one.
        await (code === 'invalid_grant' ? save(rest) : forget())
        return false
      }
    })

  /** Replaces a token that came without a refresh token, in the same way as it was obtained. */
  const renew = async (login: StoredLogin, isBound: boolean, signal: AbortSignal): Promise<boolean> => {
    const { resource, scopes } = login
    const as = await issuerOf(login.issuer)
    try {
      const found = await obtain({ as, resource, scopes, isBound, earlier: login, signal, attended: false })
      if (found === undefined) return false
      await save({ ...toLogin(login, found), grant: found.grant })
      unproven = found.tokens.accessToken
      return true
    } catch (error) {
      if (isLoginRequired(error)) return false
      throw error
    }
  }

  /** Obtains a token for the client itself, or for an assertion. Returns undefined if the login is of neither kind. */
  const obtain = async ({ as, resource, isBound, earlier, attended, ...asked }: Wanted) => {
    const { scopes } = asked
    const itself = ownClient(as, setup, earlier)
    if (itself !== undefined) {
      const granted = await grantToClient(await contextOf(as, itself, resource, isBound), scopes)
      return { ...granted, client: itself, grant: 'client_credentials' as const }
    }
    const stored = typeof earlier?.grant === 'object' ? earlier.grant : undefined
    const restored = setup.login === undefined && stored ? restoreGrant(stored, setup) : undefined
    const vouching = isAssertion(setup.grant) ? setup.grant : restored
    const client = given ? givenClient(as, given) : earlier?.client
    if (vouching === undefined || client === undefined) return undefined
    const { issuer } = as
    try {
      const about = { issuer, client: client.id, resource, now, attended, stored, ...asked }
      const assertion = await vouching.assertion(about)
      const granted = await grantByAssertion(
        await contextOf(as, client, resource, isBound),
        assertion,
        scopes,
      )
      return { ...granted, client, grant: vouching.stored?.() }
    } catch (error) {
      // The identity provider may have replaced its refresh token, which must not be lost.
      const grant = vouching.stored?.()
      if (earlier !== undefined && grant !== undefined) await save({ ...earlier, grant })
      throw error
    }
  }

  /** Obtains a token without a person if possible, since only that excludes other processes. */
  const obtainFirst = async (wanted: Omit<Wanted, 'attended'>) => {
    // A person logs in, who must not wait for the refresh of another process.
    const isByCode = setup.grant !== 'client_credentials' && !isAssertion(setup.grant)
    if (setup.login !== undefined && isByCode) return undefined
    try {
      return await exclusively(() => obtain({ ...wanted, attended: false }))
    } catch (error) {
      if (!isLoginRequired(error)) throw error
      return obtain({ ...wanted, attended: true })
    }
  }

  /** Obtains the first token, or one with other scopes. */
  const authorize = async (
    protection: Protection,
    challenged: readonly string[],
    signal: AbortSignal,
  ): Promise<StoredLogin> => {
    const before = await held()
    const issuer = chooseIssuer(protection, setup, before, server)
    const as = await issuerOf(issuer, protection.undescribed)
    const isBound = (setup.dpop ?? false) !== false || protection.bound === true
    const earlier = before !== undefined && isSame(before.issuer, as.issuer) ? before : undefined
    const scopes = chooseScopes(as, protection, setup, challenged, earlier)
    const finish = (
      client: StoredClient,
      { tokens, user }: Granted,
      grant?: StoredLogin['grant'],
    ): Promise<StoredLogin> => {
      unproven = tokens.accessToken
      const login: StoredLogin = {
        version: 1,
        server: place,
        resource: protection.resource,
        issuer: as.issuer,
        client,
        ...(grant && { grant }),
        scopes,
        tokens,
        ...(user && { user }),
      }
      // A refresh of the former login, in any process, must not end after this and replace it.
      return exclusively(() => save(login))
    }
    const { resource } = protection
    const obtained = await obtainFirst({ as, resource, scopes, isBound, earlier, signal })
    if (obtained !== undefined) return finish(obtained.client, obtained, obtained.grant)
    if (setup.login === undefined) throw loginRequired(server, challenged, before)
    checkLogin(as)
    const attempt = await setup.login()
    try {
      const { redirectUri } = attempt
      const registration = { request, redirectUri, known: earlier?.client, now: now(), signal }
      const client = await identify(as, setup, registration)
      const context = await contextOf(as, client, resource, isBound)
      const time = AbortSignal.timeout(limitMs)
      const within = AbortSignal.any([signal, time])
      const visit = (link: LoginLink) =>
        orAbort(attempt.visit(link), within).catch((error) => {
          throw time.aborted ? new RondoError('PEER_LOGIN', `Nobody logged in within ${limitMs} ms`) : error
        })
      return await finish(client, await grantByCode(context, { redirectUri, scopes, signal: within, visit }))
    } catch (error) {
      if (oauthCode(error) === 'invalid_client') await forget()
      throw error
    } finally {
      await attempt.close?.()
    }
  }

  const present = async (
    { accessToken, keyThumbprint }: StoredTokens,
    request: AuthorizedRequest,
  ): Promise<Credential> =>
    keyThumbprint === undefined
      ? { token: accessToken, headers: { Authorization: `Bearer ${accessToken}` } }
      : (await keyOf()).present(accessToken, request)

  return {
    async credential(request, signal) {
      let login = await held()
      if (login?.tokens !== undefined && isStale(login.tokens, now())) {
        const { accessToken, refreshToken } = login.tokens
        const isRenewable =
          refreshToken !== undefined || login.grant !== undefined || isAssertion(setup.grant)
        if (isRenewable) await single((waiting) => refresh(accessToken, waiting), signal)
        login = await held()
      }
      return login?.tokens && present(login.tokens, request)
    },
    accepted({ token }, nonce) {
      if (token === unproven) unproven = undefined
      if (token === refreshed) refreshed = undefined
      key?.then((known) => known.remember(nonce, server.href)).catch(() => {})
    },
    async refused(refusal, signal) {
      const sent = refusal.sent?.token
      if (key !== undefined && refusal.sent !== undefined && wantsNonce(refusal)) {
        await (await key).remember(refusal.nonce, server.href)
        return true
      }
      const wanted = scopesOf(refusal)
      if (wanted === undefined) return false
      await single(async (waiting) => {
        const login = await held()
        // Another request has obtained a token since this one was sent.
        if (login?.tokens !== undefined && login.tokens.accessToken !== sent) return
        const protection = await readProtection(lookup, refusal.challenges)
        const same = login !== undefined && protection.issuers.some((one) => isSame(one, login.issuer))
        if (refusal.status === 403) checkStepUp(login, wanted)
        else if (same && sent !== undefined) {
          const isExpired = login.tokens !== undefined && isStale(login.tokens, now())
          if (sent === unproven && !isExpired) throw uselessToken(server, login)
          // One that was refreshed just now does not get better by another refresh: somebody has to log in.
          if (sent !== refreshed && (await refresh(sent, waiting))) return
        }
        await authorize(protection, wanted, waiting)
      }, signal)
      return true
    },
    async login(signal) {
      let login: StoredLogin | undefined
      // A run that was going on already may have been a refresh.
      while (login === undefined) {
        await single(async (waiting) => {
          const challenges = await challengesOf(server, request)
          const scopes = scopesOf({ status: 401, challenges, sent: undefined }) ?? []
          login = await authorize(await readProtection(lookup, challenges), scopes, waiting)
        }, signal)
      }
      return login
    },
    async tokenFor({ resource, scope }) {
      const login = await load()
      // A refresh token is not risked for this: some authorization servers end it even if they refuse.
      if (login?.client.secret === undefined)
        throw new RondoError('PEER_LOGIN', 'only a client with a secret can get one without a person')
      const scopes = scope === undefined ? login.scopes : leastOf(login)
      const as = await issuerOf(login.issuer)
      const context = await contextOf(as, login.client, resource ?? login.resource, false)
      return (await grantToClient(context, scopes)).tokens.accessToken
    },
    async logout() {
      // A refresh in another process would otherwise bring the login back.
      return exclusively(async () => {
        const login = await load()
        await forget()
        if (login?.tokens === undefined) return false
        const context = await contextOf(await issuerOf(login.issuer), login.client, login.resource, false)
        return revoke(context, login.tokens)
      })
    },
  }
}

/** A token that is to be obtained without a code. */
interface Wanted {
  readonly as: AuthorizationServer
  readonly resource: string
  readonly scopes: readonly string[]
  readonly isBound: boolean
  readonly earlier: StoredLogin | undefined
  readonly signal: AbortSignal
  /** Whether a person may be asked to log in. */
  readonly attended: boolean
}

/** The login with other tokens. The ID token is not stored. */
function toLogin(login: StoredLogin, { tokens, user = login.user }: Granted): StoredLogin {
  return { ...login, tokens, ...(user && { user }) }
}

/** True if an assertion cannot be obtained without a person. */
function isLoginRequired(error: unknown): boolean {
  return error instanceof RondoError && error.code === 'PEER_LOGIN'
}

/** The client that acts for itself: the one that was given, or that of an earlier login if nobody can log in. */
function ownClient(
  as: AuthorizationServer,
  { grant, client, login }: OAuthOptions,
  earlier: StoredLogin | undefined,
): StoredClient | undefined {
  if (grant === 'client_credentials' && client !== undefined) return givenClient(as, client)
  if (login !== undefined || earlier?.grant !== 'client_credentials') return undefined
  return earlier.client.secret === undefined ? undefined : earlier.client
}

/** One scope of several. */
function leastOf({ tokens, scopes }: StoredLogin): readonly string[] {
  const granted = tokens?.granted ?? scopes
  if (granted.length < 2) throw new RondoError('PEER_LOGIN', 'the login has only one scope')
  return granted.slice(0, 1)
}

/** With these errors the authorization server says that a refresh token is of no more use. */
const ENDED = new Set(['invalid_grant', 'invalid_client', 'unauthorized_client'])

function isStale({ expiresAt }: { readonly expiresAt?: number }, now: number): boolean {
  return expiresAt !== undefined && expiresAt - EARLY_MS <= now
}

/** Sends a refresh again whose response was lost: the authorization server may not have seen it, or allows it once more. */
async function twice<T>(send: () => Promise<T>): Promise<T> {
  try {
    return await send()
  } catch (error) {
    if (error instanceof RondoError && error.code === 'PEER_UNREACHABLE') return send()
    throw error
  }
}

const SCHEMES: readonly string[] = ['bearer', 'dpop']

/** True if the server refused only the proof, because it lacks a nonce. */
function wantsNonce({ challenges, nonce }: Refusal): boolean {
  const isAsked = challenges.some(
    ({ scheme, params }) => scheme.toLowerCase() === 'dpop' && params.error === 'use_dpop_nonce',
  )
  return isAsked && nonce !== undefined
}

/** The scopes in a challenge; undefined if a 403 is about something else. */
function scopesOf({ status, challenges }: Refusal): readonly string[] | undefined {
  const about = challenges.filter(({ scheme }) => SCHEMES.includes(scheme.toLowerCase()))
  const scopes = readScopes(about.map(({ params }) => params.scope ?? '').join(' '))
  if (status === 401) return scopes
  return about.some(({ params }) => params.error === 'insufficient_scope') && scopes.length > 0
    ? scopes
    : undefined
}

function chooseIssuer(
  { issuers }: Protection,
  { issuer, client }: OAuthOptions,
  before: StoredLogin | undefined,
  server: URL,
): string {
  const wanted = issuer ?? client?.issuer
  if (wanted !== undefined) {
    const found = issuers.find((one) => isSame(one, wanted))
    if (found !== undefined) return found
    throw unusable(
      `${server.host} does not accept tokens of ${wanted}; it names ${issuers.join(', ').slice(0, 500)}`,
    )
  }
  return issuers.find((one) => before !== undefined && isSame(one, before.issuer)) ?? (issuers[0] as string)
}

/** The scopes of the challenge, or else all that the server supports; with those of an earlier login. */
function chooseScopes(
  as: AuthorizationServer,
  protection: Protection,
  { scopes, offlineAccess, grant }: Setup,
  challenged: readonly string[],
  earlier: StoredLogin | undefined,
): readonly string[] {
  const named = challenged.length > 0 || scopes.length > 0 ? challenged : (protection.scopes ?? [])
  const offline =
    offlineAccess && grant === 'authorization_code' && as.scopes_supported?.includes('offline_access')
  return [
    ...new Set([...(earlier?.scopes ?? []), ...named, ...scopes, ...(offline ? ['offline_access'] : [])]),
  ]
}

function checkStepUp(login: StoredLogin | undefined, wanted: readonly string[]): void {
  if (login === undefined || !wanted.every((one) => login.scopes.includes(one))) return
  throw new RondoError(
    'PEER_LOGIN',
    `The server requires the scope ${wanted.join(' ')}, which was requested already and not granted`,
    { data: { scopes: wanted } },
  )
}

function loginRequired(server: URL, scopes: readonly string[], before: StoredLogin | undefined): RondoError {
  const what = scopes.length > 0 ? ` with the scope ${scopes.join(' ')}` : ''
  const ended = before !== undefined && before.tokens === undefined ? 'The login has ended: ' : ''
  return new RondoError('PEER_LOGIN', `${ended}${canonical(server)} requires a login${what}`, {
    data: { server: canonical(server), scopes },
  })
}

function uselessToken(server: URL, { issuer, resource }: StoredLogin): RondoError {
  return unusable(
    `${server.host} refuses the token that ${issuer} has just issued for ${resource}; its audience may be another one`,
  )
}

/** Asks the server without a token, for the challenge. */
async function challengesOf(server: URL, request: AuthFetch): Promise<Refusal['challenges']> {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'server/discover', params: {} })
  const headers = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream' }
  const response = await request(server.href, { method: 'POST', headers, body })
  return parseChallenges(response.headers.get('www-authenticate') ?? '')
}

type SingleRun = (work: (waiting: AbortSignal) => Promise<unknown>, signal: AbortSignal) => Promise<void>

/**
 * Runs one piece of work at a time. Calls during a run wait for it instead, and fail if it fails. `waiting` is aborted when nobody
 * waits any more.
 */
function createSingleRun(): SingleRun {
  let running:
    | { readonly work: Promise<unknown>; readonly stop: AbortController; waiters: number }
    | undefined
  return async (work, signal) => {
    if (running === undefined) {
      const stop = new AbortController()
      const run = { work: work(stop.signal), stop, waiters: 0 }
      const over = () => {
        running = undefined
      }
      run.work.then(over, over)
      running = run
    }
    const run = running
    run.waiters += 1
    try {
      await orAbort(run.work, signal)
    } finally {
      run.waiters -= 1
      if (run.waiters === 0)
        run.stop.abort(new RondoError('PEER_LOGIN', 'Nobody waits for the login any more'))
    }
  }
}
