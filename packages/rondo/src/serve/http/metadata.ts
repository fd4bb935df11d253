/** Serves the metadata of a protected server (RFC 9728), beside the MCP endpoint. */

import { RondoError } from '../../errors.ts'
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import type { HttpResponse } from '../port.ts'
import type { ProtectedResource } from './authenticate.ts'
import { refusal } from './line.ts'

const METADATA_HEADERS = {
  'Content-Type': 'application/json',
  'Cache-Control': 'public, max-age=3600',
  'Access-Control-Allow-Origin': '*',
} as const

/**
 * The response to a request for the server's metadata (RFC 9728): public, the same for everybody, and readable by pages of
 * any origin, because a client in a browser reads it before it has a token. Undefined for every other request.
 */
export function metadataResponse(
  { paths, document }: ProtectedResource,
  method: string,
  url: string | undefined,
  headers: RequestHeaders,
): HttpResponse | undefined {
  const path = pathOf(url ?? '')
  if (!paths.includes(path)) return undefined
  if (method === 'GET' || method === 'HEAD') return { status: 200, headers: METADATA_HEADERS, body: document }
  if (method !== 'OPTIONS') return { ...refusal(new RondoError('PEER_HTTP_METHOD', 'GET only')), status: 405 }
  const wanted = headers['access-control-request-headers'] ?? ''
  return {
    status: 204,
    headers: {
      'Access-Control-Allow-Origin': '*',
      'Access-Control-Allow-Methods': 'GET, HEAD',
      'Access-Control-Max-Age': '86400',
      ...(HEADER_NAMES.test(wanted) && { 'Access-Control-Allow-Headers': wanted }),
    },
    body: '',
  }
}

const HEADER_NAMES = /^[\w-]+(?:[ \t]*,[ \t]*[\w-]+)*$/
const WHOLE_URL = /^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i

/** The path of a URL or of a request line, without a slash at its end. */
function pathOf(url: string): string {
  const path = url.replace(WHOLE_URL, '').replace(/[?#].*$/s, '')
  return path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path
}
