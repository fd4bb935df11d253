/**
 * AWS Lambda behind a function URL (payload format 2.0, `InvokeMode: BUFFERED`): rounds only, complete responses only.
 * Everybody who can reach it may call, until you pass `authenticate`.
 */

import { createTracker } from './server.ts'

interface FunctionUrlEvent {
  readonly rawPath: string
  readonly headers: Readonly<Record<string, string>>
  readonly requestContext: { readonly domainName: string; readonly http: { readonly method: string } }
  readonly body?: string
  readonly isBase64Encoded: boolean
}

// RONDO_KEYS comes from the environment. Nobody reads a heartbeat before the response is complete.
const server = createTracker({
  allowedHosts: process.env.ALLOWED_HOSTS?.split(','),
  heartbeatMs: 0,
  maxRoundMs: 10_000,
})

export async function handler(event: FunctionUrlEvent) {
  const { domainName, http } = event.requestContext
  const body = event.body && Buffer.from(event.body, event.isBase64Encoded ? 'base64' : 'utf8')
  const request = new Request(`https://${domainName}${event.rawPath}`, {
    method: http.method,
    headers: event.headers,
    body: http.method === 'POST' ? body : undefined,
  })
  const response = await server.fetch(request)
  return {
    statusCode: response.status,
    headers: Object.fromEntries(response.headers),
    body: await response.text(),
  }
}
