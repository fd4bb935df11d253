/**
 * Finds the authorization server of a protected server: the metadata of the server (RFC 9728), then that of the
 * authorization server (RFC 8414 or OpenID Connect).
 *
 * discovery 1: The resource in the metadata must be the identifier for which the metadata was requested (RFC 9728, 3.3): the
 *   URL of the server, or its origin for the document at the root. A caller may name another one.
 * discovery 2: The issuer in the metadata must be the one by which it was found.
 * discovery 3: An authorization server that does not support PKCE with S256 is refused, as the specification demands.
 */

import { type AuthorizationServer, processDiscoveryResponse } from 'oauth4webapi'
import { isRecord } from '../../lib/json.ts'
import type { Challenge } from '../transport/response-reader.ts'
import { canonical } from './options.ts'
import { type AuthFetch, checkUrl, type SafeFetchOptions, unusable } from './safe-fetch.ts'

export interface Protection {
  /** The resource identifier as the server publishes it. */
  readonly resource: string
  readonly issuers: readonly string[]
  readonly scopes?: readonly string[]
  /** The server accepts only tokens that are bound to a key with DPoP. */
  readonly bound?: boolean
  /** The server has no metadata: it is its own authorization server, as in 2025-03-26. */
  readonly undescribed?: boolean
}

interface Lookup extends SafeFetchOptions {
  readonly request: AuthFetch
  readonly signal?: AbortSignal
  /** The identifier of the server, if the caller named it. */
  readonly resource?: string
}

/** Reads the metadata of a protected server. */
export async function readProtection(lookup: Lookup, challenges: readonly Challenge[]): Promise<Protection> {
  const { server } = lookup
  const named = challenges.find(({ params }) => params.resource_metadata !== undefined)?.params
    .resource_metadata
  if (named !== undefined) {
    const metadata = await readJson(lookup, named)
    if (metadata !== undefined) return toProtection(lookup, metadata, canonical(server))
    throw unusable(`The metadata of ${server.host} is not at the place it names`)
  }
  const path = server.pathname === '/' ? '' : server.pathname
  for (const end of new Set([path, ''])) {
    const url = `${server.origin}/.well-known/oauth-protected-resource${end}`
    const metadata = await readJson(lookup, url)
    if (metadata !== undefined)
      return toProtection(lookup, metadata, end === '' ? server.origin : canonical(server))
  }
  // Servers of 2025-03-26 are their own authorization server and publish no metadata about it.
  return { resource: canonical(server), issuers: [server.origin], undescribed: true }
}

function toProtection(
  { server, resource: given }: Lookup,
  metadata: Readonly<Record<string, unknown>>,
  expected: string,
): Protection {
  const { resource, authorization_servers: issuers, scopes_supported: scopes } = metadata
  if (typeof resource !== 'string' || !isIdentical(resource, given ?? expected)) {
    const shown = typeof resource === 'string' ? resource.slice(0, 200) : 'no resource'
    throw unusable(
      `The metadata of ${server.host} is about ${shown}, not about ${given ?? expected}. If you trust it, pass it to oauth as \`resource\``,
    )
  }
  if (!Array.isArray(issuers) || !issuers.every((one) => typeof one === 'string') || issuers.length === 0) {
    throw unusable(`The metadata of ${server.host} names no authorization server`)
  }
  const listed = Array.isArray(scopes) ? scopes.filter((one) => typeof one === 'string').join(' ') : undefined
  return {
    resource,
    issuers,
    ...(listed !== undefined && { scopes: readScopes(listed) }),
    ...(metadata.dpop_bound_access_tokens_required === true && { bound: true }),
  }
}

/** Compares code points, apart from the slash after an origin, which URL parsers add. */
function isIdentical(resource: string, expected: string): boolean {
  return resource === expected || (resource === `${expected}/` && isOrigin(expected))
}

function isOrigin(url: string): boolean {
  return URL.canParse(url) && new URL(url).origin === url
}

/**
 * Reads the metadata of the authorization server, from the first place that has it. An undescribed server that publishes none
 * either has its endpoints where 2025-03-26 places them.
 */
export async function readIssuer(
  lookup: Lookup,
  issuer: string,
  undescribed = false,
): Promise<AuthorizationServer> {
  const { origin, pathname } = checkUrl(issuer, lookup)
  const path = pathname.replace(/\/$/, '')
  const places = [
    `${origin}/.well-known/oauth-authorization-server${path}`,
    `${origin}/.well-known/openid-configuration${path}`,
    `${origin}${path}/.well-known/openid-configuration`,
  ]
  for (const place of new Set(places)) {
    const metadata = await readJson(lookup, place)
    if (metadata !== undefined) return toServer(lookup, issuer, metadata)
  }
  if (undescribed) return defaultEndpoints(origin)
  throw unusable(`${issuer} publishes no metadata of an authorization server`)
}

function defaultEndpoints(origin: string): AuthorizationServer {
  return {
    issuer: origin,
    authorization_endpoint: `${origin}/authorize`,
    token_endpoint: `${origin}/token`,
    registration_endpoint: `${origin}/register`,
    code_challenge_methods_supported: ['S256'],
  }
}

const ENDPOINTS = [
  'authorization_endpoint',
  'token_endpoint',
  'registration_endpoint',
  'revocation_endpoint',
] as const

const LISTS = new Set([
  'scopes_supported',
  'dpop_signing_alg_values_supported',
  'code_challenge_methods_supported',
  'token_endpoint_auth_methods_supported',
])

/** Drops members that should be lists of text and are not. */
function withoutOddLists(metadata: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const isList = (value: unknown) => Array.isArray(value) && value.every((one) => typeof one === 'string')
  const kept = Object.entries(metadata).filter(([name, value]) => !LISTS.has(name) || isList(value))
  return Object.fromEntries(kept)
}

async function toServer(
  lookup: Lookup,
  issuer: string,
  metadata: Readonly<Record<string, unknown>>,
): Promise<AuthorizationServer> {
  const document = Response.json(withoutOddLists(metadata))
  const as = await processDiscoveryResponse(new URL(issuer), document).catch(() => {
    const shown = typeof metadata.issuer === 'string' ? metadata.issuer.slice(0, 200) : 'nobody'
    throw unusable(`The metadata found for ${issuer} was issued by ${shown}`)
  })
  for (const name of ENDPOINTS) {
    const url: unknown = as[name]
    if (url !== undefined) checkUrl(typeof url === 'string' ? url : JSON.stringify(url), lookup)
  }
  return as
}

/** Throws unless the server supports what a login of a person needs. */
export function checkLogin(as: AuthorizationServer): void {
  const methods: unknown = as.code_challenge_methods_supported
  if (!Array.isArray(methods) || !methods.includes('S256')) {
    throw unusable(`${as.issuer} does not support PKCE with S256 (code_challenge_methods_supported)`)
  }
  if (as.authorization_endpoint === undefined) throw unusable(`${as.issuer} has no authorization endpoint`)
}

/** Undefined if there is no document at the URL. */
async function readJson(
  { request, signal }: Lookup,
  url: string,
): Promise<Readonly<Record<string, unknown>> | undefined> {
  const response = await request(url, { method: 'GET', headers: { Accept: 'application/json' }, signal })
  const { host, pathname } = new URL(url)
  if (response.status >= 400 && response.status < 500) return undefined
  if (response.status !== 200)
    throw unusable(`${host}${pathname} responded with HTTP status ${response.status}`)
  try {
    const value: unknown = JSON.parse(await response.text())
    if (isRecord(value)) return value
  } catch {}
  throw unusable(`${host}${pathname} is not a JSON object`)
}

const SCOPE = /^[\x21\x23-\x5b\x5d-\x7e]{1,256}$/
const MAX_SCOPES = 100

/** The scopes in a list separated by blanks, each once, without what is not a scope. */
export function readScopes(list: string): string[] {
  return [...new Set(list.split(' ').filter((one) => SCOPE.test(one)))].slice(0, MAX_SCOPES)
}
