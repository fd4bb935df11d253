/**
 * Serves an official `McpServer` as this command serves its own: over HTTP and over stdio. What Rondo mounted on it drains
 * and closes with it.
 *
 * official 1: A function that builds a server is called for each request, as the official entrance does. A server that was
 * exported itself can serve one request at a time, so requests wait for each other.
 */

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { ReadableStream } from 'node:stream/web'
import type { McpServer } from '@modelcontextprotocol/server'
import { mountedHere } from '../serve/development.ts'
import type { LoadedServer } from './load-server.ts'

type Build = () => McpServer | Promise<McpServer>

export async function serveOfficial(found: McpServer | Build): Promise<LoadedServer> {
  const { createMcpHandler } = await import('@modelcontextprotocol/server')
  const build: Build = typeof found === 'function' ? found : () => found
  const { fetch, close: closeHandler } = createMcpHandler(build)
  const inTurn = typeof found === 'function' ? undefined : createTurns()

  async function answer(req: IncomingMessage & { body?: unknown }, res: ServerResponse): Promise<void> {
    const gone = new AbortController()
    res.once('close', () => gone.abort())
    const response = await fetch(await toRequest(req, gone.signal))
    res.writeHead(response.status, Object.fromEntries(response.headers))
    if (response.body === null) return void res.end()
    await pipeline(Readable.fromWeb(response.body as ReadableStream<Uint8Array>), res)
  }
  const handler = (req: IncomingMessage, res: ServerResponse): void => {
    const run = (): Promise<void> => answer(req, res).catch(() => void res.destroy())
    // A subscription stays open for as long as its client wants, and needs no server of its own.
    const waits = inTurn !== undefined && req.headers['mcp-method'] !== 'subscriptions/listen'
    void (waits ? inTurn(run) : run())
  }
  const drain = (): void => {
    for (const mounted of mountedHere()) mounted.drain()
  }
  const close = async (): Promise<void> => {
    drain()
    await closeHandler()
    await Promise.all(mountedHere().map((mounted) => mounted.close()))
  }
  return {
    nodeHandler: () => handler,
    drain,
    close,
    async listen({ host = '127.0.0.1', port = 3000 } = {}) {
      const http = createServer((req, res) => (isForeign(req, host) ? refuse(res) : handler(req, res)))
      await new Promise<void>((done, fail) => {
        http.once('error', fail)
        http.listen(port, host, done)
      })
      const { port: opened } = http.address() as AddressInfo
      const stop = async (): Promise<void> => {
        http.close()
        await close()
        http.closeAllConnections()
      }
      process.once('SIGTERM', () => void stop().finally(() => process.exit(0)))
      const name = host.includes(':') ? `[${host}]` : host
      return { host, url: `http://${name}:${opened}/mcp`, port: opened, close: stop }
    },
    async stdio() {
      const { serveStdio } = await import('@modelcontextprotocol/server/stdio')
      serveStdio(build)
    },
  }
}

const LOOPBACK = /^(?:localhost|127\.0\.0\.1|\[?::1\]?)$/

/** On loopback, a page of another site could reach the server through the user's browser: its Host or Origin is foreign. */
function isForeign({ headers }: IncomingMessage, host: string): boolean {
  if (!LOOPBACK.test(host)) return false
  const names = [`http://${headers.host ?? ''}`, ...(headers.origin === undefined ? [] : [headers.origin])]
  return !names.every((name) => URL.canParse(name) && LOOPBACK.test(new URL(name).hostname))
}

function refuse(res: ServerResponse): void {
  res.writeHead(403, { 'Content-Type': 'text/plain', Connection: 'close' }).end('Forbidden\n')
}

/** Runs one function after the other. */
function createTurns(): (run: () => Promise<void>) => Promise<void> {
  let last: Promise<void> = Promise.resolve()
  return (run) => {
    last = last.then(run)
    return last
  }
}

async function toRequest(req: IncomingMessage & { body?: unknown }, signal: AbortSignal): Promise<Request> {
  const { method = 'GET', url = '/mcp', headers } = req
  const init: RequestInit = { method, signal, headers: new Headers(plainHeaders(headers)) }
  if (method === 'POST') init.body = Buffer.isBuffer(req.body) ? new Uint8Array(req.body) : await readAll(req)
  return new Request(new URL(url, 'http://127.0.0.1'), init)
}

function plainHeaders(headers: IncomingMessage['headers']): [string, string][] {
  return Object.entries(headers).flatMap(([name, value]) =>
    value === undefined || /^(?:connection|content-length|transfer-encoding|host)$/.test(name)
      ? []
      : [[name, Array.isArray(value) ? value.join(', ') : value] as [string, string]],
  )
}

const MAX_BODY = 4 * 1024 * 1024

async function readAll(req: IncomingMessage): Promise<Uint8Array<ArrayBuffer>> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of req as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > MAX_BODY) throw new Error('The request is too large')
    chunks.push(chunk)
  }
  return new Uint8Array(Buffer.concat(chunks))
}
