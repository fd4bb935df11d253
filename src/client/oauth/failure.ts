/**
 * Turns what an authorization server refuses into one sentence. Errors of `oauth4webapi` hold the response, and so tokens;
 * none of them leaves this file, and text of the authorization server only without the secrets that were sent.
 */

import { AuthorizationResponseError, ResponseBodyError, WWWAuthenticateChallengeError } from 'oauth4webapi'
import { RondoError } from '../../errors.ts'
import { cleanText } from '../../form/clean-text.ts'
import { isRecord } from '../../lib/json.ts'
import { unusable } from './safe-fetch.ts'

/** Runs a request to an authorization server. `what` completes "could not …". */
export async function explain<T>(
  issuer: string,
  what: string,
  secrets: readonly (string | undefined)[],
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof RondoError || !(error instanceof Error) || error.name === 'AbortError') throw error
    const { code, reason } = reasonOf(error)
    const text = secrets.reduce<string>((now, one) => (one ? now.replaceAll(one, '…') : now), reason)
    throw unusable(`Could not ${what} at ${issuer}: ${cleanText(text, 500)}`, code && { error: code, issuer })
  }
}

function reasonOf(error: Error): { readonly code?: string; readonly reason: string } {
  if (error instanceof ResponseBodyError || error instanceof AuthorizationResponseError) {
    const { error: code, error_description: description } = error
    return { code: cleanText(code, 100), reason: description ? `${code}: ${description}` : code }
  }
  // A 401 at the token endpoint is about the client.
  if (error instanceof WWWAuthenticateChallengeError) {
    return { code: 'invalid_client', reason: `the client was refused (HTTP status ${error.status})` }
  }
  return { reason: error.message }
}

/** The `error` of OAuth with which an authorization server refused. */
export function oauthCode(error: unknown): string | undefined {
  if (!(error instanceof RondoError) || error.code !== 'PEER_AUTHORIZATION' || !isRecord(error.data))
    return undefined
  return typeof error.data.error === 'string' ? error.data.error : undefined
}
