/**
 * What can be refused before a body is read, in this order: host, origin, HTTP method, draining, content type.
 */

import { RondoError } from '../errors.ts'
import type { HeaderReader } from '../protocol/rev-2026-07-28/headers.ts'
import { isSealedSession } from '../seal/session-id.ts'
import type { AllowList, AllowListOptions } from './allow-list.ts'
import type { CrossOrigin } from './cross-origin.ts'
import { type HttpAnswer, refusal } from './http-answer.ts'

export interface AdmissionOptions extends AllowListOptions {
  /** What clients are told to wait, in seconds, while this instance shuts down. */
  retryAfterSeconds?: number
}

/** Gives what is wrong with the request, if anything, or what a browser wants to know before it sends one. */
export type Admission = (method: string | undefined, headers: HeaderReader) => HttpAnswer | undefined

export function createAdmission(
  service: { readonly draining: boolean },
  options: Pick<AdmissionOptions, 'retryAfterSeconds'>,
  allowed: AllowList,
  crossOrigin: CrossOrigin,
  sessions = false,
): Admission {
  const wait = { 'Retry-After': String(options.retryAfterSeconds ?? 1) }
  return (method, headers) => {
    if (!allowed.host(headers('host') ?? headers(':authority'))) return refusal(new RondoError('PEER_HOST'))
    if (!allowed.origin(headers('origin'))) return refusal(new RondoError('PEER_ORIGIN'))
    const asked = method === 'OPTIONS' ? crossOrigin.preflight(headers) : undefined
    if (asked !== undefined) return asked
    if (method !== 'POST' && !(sessions && isOfSession(method, headers))) {
      return refusal(new RondoError('PEER_HTTP_METHOD'), null, { Allow: 'POST' })
    }
    if (method !== 'POST') return undefined
    // Answers to questions that are open still come in; new calls of a session are refused one by one.
    if (service.draining && !(sessions && isOfMemory(headers('mcp-session-id'))))
      return refusal(new RondoError('SERVER_DRAINING'), null, wait)
    if (!isJson(headers('content-type'))) return refusal(new RondoError('PEER_MEDIA_TYPE'))
    return undefined
  }
}

/** A session that lives here and nowhere else; one that is sealed into its id goes on elsewhere. */
function isOfMemory(session: string | undefined): boolean {
  return session !== undefined && !isSealedSession(session)
}

function isOfSession(method: string | undefined, headers: HeaderReader): boolean {
  return (method === 'GET' || method === 'DELETE') && headers('mcp-session-id') !== undefined
}

const JSON_TYPE = /^application\/json[ \t]*(?:;[ \t]*charset="?utf-?8"?[ \t]*)?;?$/i

function isJson(type: string | undefined): boolean {
  return type === 'application/json' || (type !== undefined && JSON_TYPE.test(type.trim()))
}
