/**
 * An official server behind our test bench, which needs no more of a server than its `fetch`: calls go through the bytes
 * of the wire, round by round, as they do for a server of ours.
 */

import { type AuthInfo, createMcpHandler, McpServer, type ServerOptions } from '@modelcontextprotocol/server'
import type { Principal, Server } from 'rondo'
import { createRondo, type Rondo, type RondoOptions } from 'rondo/sdk'
import type { BenchOptions } from 'rondo/testing'

export type Register = (server: McpServer, rondo: Rondo) => void

/** Serves what `register` declares; a new server is created for each request, as the official entrance requires. */
export function mountedServer(
  { authenticate, ...options }: BenchOptions & RondoOptions,
  register: Register,
  serverOptions: (rondo: Rondo) => ServerOptions = () => ({}),
): Server {
  const rondo = createRondo(options)
  const handler = createMcpHandler(() => {
    const server = rondo.mount(new McpServer({ name: 'mounted', version: '1.0.0' }, serverOptions(rondo)))
    register(server, rondo)
    return server
  })
  const fetch = async (request: Request): Promise<Response> => {
    const headers = (name: string) => request.headers.get(name) ?? undefined
    const principal = (await authenticate({ headers } as never)) as Principal | undefined
    return handler.fetch(request, principal && { authInfo: toAuthInfo(principal) })
  }
  return { fetch } as Server
}

/** As a token verifier sets it. */
function toAuthInfo({ subject, issuer, client = '' }: Principal): AuthInfo {
  return { token: 'opaque', clientId: client, scopes: [], extra: { sub: subject, iss: issuer } }
}
