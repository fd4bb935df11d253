/**
 * What lets a page of another origin read our answers (CORS): only for the origins that `allowedOrigins` names. Cookies are
 * no part of it, so a page brings its own token or none. A page that is refused gets no such headers, and its browser
 * shows it nothing.
 */

import type { HeaderReader } from '../protocol/rev-2026-07-28/headers.ts'
import type { HttpAnswer, HttpHeaders } from './http-answer.ts'

export interface CrossOrigin {
  /** What every answer to this page carries. */
  headers(origin: string | undefined): HttpHeaders | undefined
  /** The answer to a browser that asks before it sends. */
  preflight(headers: HeaderReader): HttpAnswer | undefined
}

const METHODS = 'POST, GET, DELETE'
/** What a client of any revision has to read of an answer. */
const EXPOSED = 'Mcp-Session-Id, WWW-Authenticate, Retry-After'
const PREFLIGHT_SECONDS = '600'
const HEADER_NAMES = /^[\w-]+(?:[ \t]*,[ \t]*[\w-]+)*$/

export function createCrossOrigin(names: (origin: string) => boolean): CrossOrigin {
  const headers = (origin: string | undefined): HttpHeaders | undefined => {
    if (origin === undefined || !names(origin)) return undefined
    return { 'Access-Control-Allow-Origin': origin, 'Access-Control-Expose-Headers': EXPOSED, Vary: 'Origin' }
  }
  return {
    headers,
    preflight(read) {
      if (read('access-control-request-method') === undefined) return undefined
      const shared = headers(read('origin'))
      if (shared === undefined) return undefined
      const wanted = read('access-control-request-headers') ?? ''
      return {
        status: 204,
        headers: {
          'Access-Control-Allow-Methods': METHODS,
          ...(HEADER_NAMES.test(wanted) && { 'Access-Control-Allow-Headers': wanted }),
          'Access-Control-Max-Age': PREFLIGHT_SECONDS,
        },
        body: '',
      }
    },
  }
}
