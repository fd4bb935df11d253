/**
 * A small reverse proxy that sends each request to the next target, whichever connection it came on, like a balancer
 * without sticky sessions. Streams are passed through as they arrive; headers are kept, including `Host`.
 */

import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface RoundRobin {
  readonly url: URL
  /** The number of requests per target, in the order of the targets. */
  readonly counts: readonly number[]
  close(): Promise<void>
}

/** The response header with the index of the target. */
export const TARGET_HEADER = 'x-target'

function forward(req: IncomingMessage, res: ServerResponse, target: URL, index: number): void {
  const out = request(
    {
      host: target.hostname,
      port: target.port,
      method: req.method,
      path: req.url,
      headers: req.rawHeaders,
    },
    (answer) => {
      res.writeHead(answer.statusCode ?? 502, [...answer.rawHeaders, TARGET_HEADER, String(index)])
      res.flushHeaders()
      answer.pipe(res)
      answer.on('error', () => res.destroy())
    },
  )
  out.on('error', () => {
    if (res.headersSent) res.destroy()
    else res.writeHead(502).end()
  })
  res.on('close', () => out.destroy())
  req.pipe(out)
}

/** Starts the proxy on a free loopback port. `targets` is read for each request, so that instances may come and go. */
export async function startRoundRobin(targets: readonly URL[]): Promise<RoundRobin> {
  const counts: number[] = []
  let next = 0
  const server: Server = createServer((req, res) => {
    const index = next++ % targets.length
    const target = targets[index]
    if (target === undefined) return void res.writeHead(503).end()
    counts[index] = (counts[index] ?? 0) + 1
    forward(req, res, target, index)
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(0, '127.0.0.1', resolve)
  })
  const { port } = server.address() as AddressInfo
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve())
      server.closeAllConnections()
    })
  return { url: new URL(`http://127.0.0.1:${port}`), counts, close }
}
