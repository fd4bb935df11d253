/**
 * The address of a console: `/` is the page, `/api/` what the page uses, `/mcp` the proxy if there is one. The files of the page are
 * read once: built with the package, or built now if the command runs from its sources.
 *
 * web 1: Listens on loopback only; there is no option for anything else. web 2: A request whose Host or Origin is not this
 * address is refused, so a page of another site cannot reach it, not even through a name that it points at 127.0.0.1.
 * web 3: `/api/` needs the token, which is in the fragment of the printed address and never leaves the page but in a header.
 * web 4: The page loads nothing but its own files, and runs no script but its own.
 */

import { randomBytes, timingSafeEqual } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { readNodeBody } from 'rondo/internal'
import { CommandError } from '../command-line.ts'
import type { Book } from './book.ts'
import type { ConsoleProxy } from './proxy.ts'

/** The page's requests by method and path, such as `POST /api/calls`. The body of a POST is any JSON value. */
export type Api = ReadonlyMap<string, (body: unknown) => Promise<object>>

/** Tells the page why its request was not carried out. Other errors mean that something behind the console failed. */
export class ActionError extends Error {
  readonly status: number

  constructor(message: string, status = 400) {
    super(message)
    this.status = status
  }
}

export interface WebParts {
  readonly port: number
  readonly assets: Assets
  readonly api: Api
  /** Serves `/mcp`. */
  readonly proxy?: ConsoleProxy
  /** The events that the page follows. */
  readonly book?: Book
}

export interface Web {
  readonly port: number
  /** The address of the page, with the token. */
  readonly page: string
  readonly mcp: string
  close(): Promise<void>
}

const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "form-action 'none'",
  "require-trusted-types-for 'script'",
].join('; ')

const HEADERS = {
  'Content-Security-Policy': POLICY,
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cache-Control': 'no-store',
}

const MAX_BODY = 1024 * 1024
const KEEP_ALIVE_MS = 15_000

/** Opens both loopback addresses on one port. IPv6 may be missing; IPv4 may not. */
export async function openWeb(parts: WebParts): Promise<Web> {
  const token = randomBytes(32).toString('base64url')
  let hosts: readonly string[] = []
  const streams = new Set<ServerResponse>()
  const answer = (req: IncomingMessage, res: ServerResponse): void => {
    route(req, res, { ...parts, token, hosts, streams }).catch(() => res.destroy())
  }
  const first = createServer(answer)
  await listen(first, parts.port, '127.0.0.1')
  const { port } = first.address() as AddressInfo
  hosts = [`127.0.0.1:${port}`, `localhost:${port}`, `[::1]:${port}`]
  const second = createServer(answer)
  const servers = [first]
  try {
    await listen(second, port, '::1')
    servers.push(second)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') {
      first.close()
      throw error
    }
  }
  return {
    port,
    page: `http://127.0.0.1:${port}/#${token}`,
    mcp: `http://127.0.0.1:${port}/mcp`,
    async close() {
      for (const stream of streams) stream.end()
      await Promise.all(servers.map(closeServer))
    },
  }
}

export function listen(server: Server, port: number, host: string): Promise<void> {
  return new Promise((done, fail) => {
    server.once('error', fail)
    server.listen(port, host, () => {
      server.off('error', fail)
      server.on('error', () => {})
      done()
    })
  })
}

export function closeServer(server: Server): Promise<void> {
  return new Promise((done) => {
    server.close(() => done())
    server.closeIdleConnections()
    setTimeout(() => server.closeAllConnections(), 300).unref()
  })
}

interface Scene extends WebParts {
  readonly token: string
  readonly hosts: readonly string[]
  readonly streams: Set<ServerResponse>
}

async function route(req: IncomingMessage, res: ServerResponse, scene: Scene): Promise<void> {
  const { host, origin } = req.headers
  if (host === undefined || !scene.hosts.includes(host.toLowerCase()) || hasTwoHosts(req))
    return sendText(res, 403, 'Use the host name 127.0.0.1, localhost or [::1].')
  if (origin !== undefined && !scene.hosts.some((one) => origin === `http://${one}`))
    return sendText(res, 403, 'Pages of other origins may not use this address.')
  const { pathname } = new URL(req.url ?? '/', 'http://console')
  if (pathname === '/mcp' && scene.proxy) return scene.proxy.serve(req, res)
  if (!pathname.startsWith('/api/')) return sendAsset(req, res, scene.assets, pathname)
  if (!isAuthorized(req, scene.token))
    return sendText(res, 401, 'Open the console with the address that it printed: the token is in it.')
  const at = `${req.method} ${pathname}`
  if (at === 'GET /api/events' && scene.book) return sendEvents(req, res, scene.book, scene.streams)
  const run = scene.api.get(at)
  if (run === undefined) return sendText(res, 404, 'Not found')
  return req.method === 'POST' ? replyTo(req, res, run) : reply(res, () => run(undefined))
}

export function hasTwoHosts({ rawHeaders }: IncomingMessage): boolean {
  return rawHeaders.filter((name, i) => i % 2 === 0 && name.toLowerCase() === 'host').length > 1
}

function isAuthorized({ headers }: IncomingMessage, token: string): boolean {
  const given = Buffer.from(headers.authorization ?? '')
  const wanted = Buffer.from(`Bearer ${token}`)
  return given.length === wanted.length && timingSafeEqual(given, wanted)
}

function sendAsset(req: IncomingMessage, res: ServerResponse, assets: Assets, pathname: string): void {
  const asset = assets.get(pathname)
  if (asset === undefined) return sendText(res, 404, 'Not found')
  if (req.method !== 'GET' && req.method !== 'HEAD') return sendText(res, 405, 'Only GET')
  res.writeHead(200, { ...HEADERS, 'Content-Type': asset.type, 'Content-Length': asset.bytes.length })
  res.end(req.method === 'HEAD' ? undefined : asset.bytes)
}

function sendText(res: ServerResponse, status: number, text: string): void {
  res.writeHead(status, { ...HEADERS, 'Content-Type': 'text/plain; charset=utf-8', Connection: 'close' })
  res.end(`${text}\n`)
}

function sendJson(res: ServerResponse, status: number, value: unknown): void {
  res.writeHead(status, { ...HEADERS, 'Content-Type': 'application/json' })
  res.end(JSON.stringify(value))
}

function sendEvents(
  req: IncomingMessage,
  res: ServerResponse,
  book: Book,
  streams: Set<ServerResponse>,
): void {
  const last = Number(req.headers['last-event-id'] ?? 0)
  res.writeHead(200, { ...HEADERS, 'Content-Type': 'text/event-stream' })
  const send = (event: { seq: number }): void => {
    // A page that does not read must not fill this process; it comes back with the id of its last event.
    if (res.writableLength > 16 * MAX_BODY) res.destroy()
    else res.write(`id: ${event.seq}\ndata: ${JSON.stringify(event)}\n\n`)
  }
  for (const event of book.since(Number.isFinite(last) ? last : 0)) send(event)
  res.write(':\n\n')
  streams.add(res)
  const stop = book.watch(send)
  const timer = setInterval(() => res.write(':\n\n'), KEEP_ALIVE_MS)
  res.once('close', () => {
    stop()
    clearInterval(timer)
    streams.delete(res)
  })
}

async function replyTo(
  req: IncomingMessage,
  res: ServerResponse,
  run: (body: unknown) => Promise<object>,
): Promise<void> {
  if (!String(req.headers['content-type']).startsWith('application/json'))
    return sendText(res, 415, 'Send application/json')
  const body = await readNodeBody(req, { limit: MAX_BODY })
  if (body.kind !== 'whole') return sendText(res, 413, 'The request is too large')
  return reply(res, async () => run(parse(Buffer.from(body.bytes))))
}

/** Sends what `run` returns, or the sentence of its error. */
async function reply(res: ServerResponse, run: () => Promise<object>): Promise<void> {
  try {
    sendJson(res, 200, await run())
  } catch (error) {
    sendJson(res, error instanceof ActionError ? error.status : 502, { error: (error as Error).message })
  }
}

function parse(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'))
  } catch {
    throw new ActionError('The request is not JSON')
  }
}

export type Assets = ReadonlyMap<string, { readonly type: string; readonly bytes: Uint8Array }>

const TYPES = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
} as const

/** The files of a page: of the console of a server, or of a store. */
const PAGES = {
  server: { '/': 'index.html', '/console.js': 'console.js', '/console.css': 'console.css' },
  store: { '/': 'store.html', '/store.js': 'store.js', '/console.css': 'console.css' },
} as const

export async function readAssets(page: keyof typeof PAGES): Promise<Assets> {
  const root = dirname(createRequire(import.meta.url).resolve('@rondo/cli/package.json'))
  try {
    const read = import.meta.url.endsWith('.ts') ? await buildNow(root) : readBuilt(root)
    const files = Object.entries(PAGES[page]).map(([path, name]) => {
      const type = TYPES[name.split('.')[1] as keyof typeof TYPES]
      return [path, { type, bytes: read(name) }] as const
    })
    return new Map(files)
  } catch (error) {
    throw new CommandError(
      'fault',
      `The page of the console is missing from this package (${(error as Error).message})`,
    )
  }
}

type ReadFile = (name: string) => Uint8Array

function readBuilt(root: string): ReadFile {
  return (name) => readFileSync(join(root, 'dist', 'console', name))
}

/** Nothing is written: a checkout may be built and tested at the same time. */
async function buildNow(root: string): Promise<ReadFile> {
  const script = pathToFileURL(join(root, 'bundle-console.js')).href
  const { buildPage } = (await import(script)) as { buildPage(): Promise<Map<string, Uint8Array>> }
  const files = await buildPage()
  return (name) => files.get(name) ?? new Uint8Array()
}
