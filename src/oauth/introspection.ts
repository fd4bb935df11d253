/**
 * Access tokens that only their issuer can read (RFC 7662): each is sent to the introspection endpoint, with the server's own
 * credentials. Whoever sends made-up tokens causes such requests, so their number at a time is limited.
 */

import { type ClaimCheck, findProblem } from './claims.ts'
import type { JwtSetup, Verified } from './jwt.ts'
import { addressProblem, discover, fetchJson, RemoteFault, type RemoteLimits } from './remote.ts'

export interface IntrospectionOptions {
  /** This server's credentials at the authorization server. */
  client: { readonly id: string; readonly secret: string }
  /** The introspection endpoint. Default: that of the issuer's metadata. */
  endpoint?: string
  /** Tokens that are introspected at the same time; beyond that, unknown tokens are refused. Default: 64. */
  maxConcurrent?: number
}

export function createIntrospection(
  { client, endpoint, maxConcurrent = 64 }: IntrospectionOptions,
  { issuers: [issuer], rules, fetch, now }: JwtSetup,
  checks: readonly ClaimCheck[],
  limits?: RemoteLimits,
): (token: string) => Promise<Verified> {
  const iss = issuer?.issuer ?? ''
  const authorization = `Basic ${Buffer.from(`${encode(client.id)}:${encode(client.secret)}`).toString('base64')}`
  let address = endpoint
  let running = 0

  const ask = async (token: string): Promise<Record<string, unknown>> => {
    address ??= await findEndpoint(fetch, iss, limits)
    return fetchJson(fetch, address, limits, {
      method: 'POST',
      headers: { authorization, 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams({ token, token_type_hint: 'access_token' }).toString(),
    })
  }

  return async (token) => {
    if (running >= maxConcurrent) {
      return refused('Too many tokens are being introspected (introspection({ maxConcurrent })).')
    }
    running += 1
    try {
      const response = await ask(token)
      if (response.active !== true) {
        return refused('The issuer says that the token is not active: unknown, expired or revoked.')
      }
      const type = response.token_type
      if (typeof type !== 'string' ? type !== undefined : type.toLowerCase() !== 'bearer') {
        return refused('The issuer says that the token is no bearer token (token_type).')
      }
      const { active: _active, ...rest } = response
      const claims = { iss, ...rest }
      const problem = findProblem(checks, claims, rules, now() / 1000)
      return problem === undefined ? { kind: 'claims', claims } : refused(problem)
    } catch (error) {
      if (!(error instanceof RemoteFault)) throw error
      return refused(`The token cannot be introspected: ${error.message}.`)
    } finally {
      running -= 1
    }
  }
}

async function findEndpoint(
  fetch: JwtSetup['fetch'],
  issuer: string,
  limits: RemoteLimits | undefined,
): Promise<string> {
  const { introspection_endpoint: address } = await discover(fetch, issuer, limits)
  const problem = addressProblem(issuer, address, 'introspection_endpoint')
  if (problem !== undefined) throw new RemoteFault(problem)
  return address as string
}

/** RFC 6749, 2.3.1: both parts are form-encoded. */
function encode(text: string): string {
  return new URLSearchParams([['', text]]).toString().slice(1)
}

function refused(problem: string): Verified {
  return { kind: 'refused', problem }
}
