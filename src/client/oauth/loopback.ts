/**
 * Receives the redirect of a login on a loopback port, as native applications do (RFC 8252). Needs Node; the module is found
 * at run time, so that browsers can bundle this file.
 *
 * loopback 1: Only a redirect with the right `state` ends the wait. Anything else that reaches the port is refused, so that a
 *   web page can neither inject a code nor end the login.
 */

import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { RondoError } from '../../errors.ts'
import type { LoginAttempt, LoginLink } from './options.ts'

export interface LoopbackOptions {
  /** Shows the link to the person. */
  readonly onLink: (link: LoginLink) => void
  /** Default: any free port. A client that was registered by hand may need the one it was registered with. */
  readonly port?: number
  /** Default 127.0.0.1. `localhost` for authorization servers that know no other. */
  readonly host?: '127.0.0.1' | 'localhost'
  /** The path of the redirect. Default `/callback`. */
  readonly path?: string
}

const DONE = 'You are logged in. You may close this window.'
const FAILED = 'The login failed. You may close this window.'
const STRANGE = 'This is not the redirect of the login that is going on.'

/** Waits for the redirect on this machine: pass it as `login`. */
export function loopback({ onLink, port = 0, host = '127.0.0.1', path = '/callback' }: LoopbackOptions) {
  return async (): Promise<LoginAttempt> => {
    const http = globalThis.process?.getBuiltinModule?.('node:http')
    if (http === undefined)
      throw new TypeError('loopback needs Node; in a browser, pass a `login` of your own')
    let expected: string | undefined
    const arrived = resolvers<URL>()
    arrived.promise.catch(() => {})
    const server = http.createServer((request, response) => {
      const url = URL.canParse(request.url ?? '', origin) ? new URL(request.url ?? '', origin) : undefined
      const own = url?.pathname === path && request.method === 'GET'
      const fits = own && expected !== undefined && url.searchParams.get('state') === expected
      const text = fits ? (url.searchParams.has('error') ? FAILED : DONE) : STRANGE
      response.writeHead(fits ? 200 : 400, {
        'Content-Type': 'text/plain; charset=utf-8',
        'Cache-Control': 'no-store',
        'Referrer-Policy': 'no-referrer',
        Connection: 'close',
      })
      response.end(`${text}\n`)
      if (fits) arrived.resolve(url)
    })
    const origin = `http://${host}:${await listen(server, port)}`
    return {
      redirectUri: `${origin}${path}`,
      async visit(link) {
        expected = link.state
        link.signal.addEventListener('abort', () => arrived.reject(link.signal.reason), { once: true })
        onLink(link)
        return arrived.promise
      },
      close() {
        server.close()
        server.closeIdleConnections()
      },
    }
  }
}

function listen(server: Server, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      reject(new RondoError('PEER_LOGIN', `Port ${port} cannot be used for the redirect (${error.code})`))
    })
    server.listen(port, '127.0.0.1', () => resolve((server.address() as AddressInfo).port))
  })
}

/** `Promise.withResolvers`, which Node 20 lacks. */
function resolvers<T>() {
  let resolve: (value: T) => void = () => {}
  let reject: (reason: unknown) => void = () => {}
  const promise = new Promise<T>((yes, no) => {
    resolve = yes
    reject = no
  })
  return { promise, resolve, reject }
}
