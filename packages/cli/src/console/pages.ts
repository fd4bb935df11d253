/**
 * The routes of the server's extensions, such as the pages of approvals, at an origin of their own: the console's page can do
 * anything to the server, and must not share its origin with pages that others wrote. Requests pass unchanged to an instance.
 *
 * pages 1: Listens on loopback only. pages 2: A request whose Host or Origin is not this address is refused. pages 3: Only
 * paths of routes are served: never the MCP endpoint, never the console.
 */

import { createServer, type IncomingMessage, request as openRequest, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { LocalFleet } from './fleet.ts'
import { closeServer, hasTwoHosts, listen } from './web.ts'

export interface Pages {
  /** The origin, such as `http://127.0.0.1:3001`. */
  readonly origin: string
  close(): Promise<void>
}

/** Opens a port of loopback, the given one if it is free. */
export async function openPages(port: number, fleet: () => LocalFleet): Promise<Pages> {
  let host = ''
  const server = createServer((req, res) => {
    if (req.headers.host !== host || hasTwoHosts(req)) return refuse(res, 403, `Open http://${host} instead.`)
    const { origin } = req.headers
    if (origin !== undefined && origin !== `http://${host}`)
      return refuse(res, 403, 'Pages of other origins may not use this address.')
    pass(req, res, fleet().pick()?.pages)
  })
  await listen(server, port, '127.0.0.1').catch(() => listen(server, 0, '127.0.0.1'))
  host = `127.0.0.1:${(server.address() as AddressInfo).port}`
  return { origin: `http://${host}`, close: () => closeServer(server) }
}

/** Hop-by-hop headers. */
const CONNECTION = /^(?:connection|keep-alive|proxy-connection|te|trailer|transfer-encoding|upgrade)$/

function pass(req: IncomingMessage, res: ServerResponse, port: number | undefined): void {
  if (port === undefined) return refuse(res, 503, 'No instance that serves pages is up.')
  const headers = Object.fromEntries(Object.entries(req.headers).filter(([name]) => !CONNECTION.test(name)))
  const out = openRequest(
    { host: '127.0.0.1', port, path: req.url, method: req.method, headers, agent: false },
    (incoming) => {
      const kept = Object.entries(incoming.headers).filter(([name]) => !CONNECTION.test(name))
      res.writeHead(incoming.statusCode ?? 502, Object.fromEntries(kept) as Record<string, string | string[]>)
      incoming.pipe(res)
      incoming.once('close', () => void (incoming.complete || res.destroy()))
    },
  )
  out.once('error', () =>
    refuse(res, 502, 'The instance ended before it responded. Open the page again: it shows what happened.'),
  )
  res.once('close', () => void (res.writableFinished || out.destroy()))
  req.pipe(out)
}

function refuse(res: ServerResponse, status: number, text: string): void {
  if (res.headersSent) return void res.destroy()
  res.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8', Connection: 'close' })
  res.end(`${text}\n`)
}
