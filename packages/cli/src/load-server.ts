/**
 * Loads the server that a file exports, as the default export or the only one, as an object or as a function. An `McpServer`
 * of the official package is a server too: it is served as this command serves its own, over HTTP and over stdio, and what Rondo
 * mounted on it drains and closes with it.
 *
 * official 1: A function that builds a server is called for each request, as the official entrance does. A server that was
 * exported itself can serve one request at a time, so requests wait for each other.
 */

import { existsSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { dirname } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { ReadableStream } from 'node:stream/web'
import { pathToFileURL } from 'node:url'
import type { McpServer } from '@modelcontextprotocol/server'
import type { RondoError, Server } from 'rondo'
import type { Route } from 'rondo/extension'
import {
  createAllowList,
  isLoopback,
  loadInDevelopment,
  mountedHere,
  readNodeBody,
  routesOf,
  toListenError,
} from 'rondo/internal'

/** The file runs but exports no server. The message says what to write. */
class LoadError extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'LoadError'
  }
}

/** The parts of a server that the command needs, whichever package it was created with. */
export type LoadedServer = Pick<Server, 'listen' | 'stdio' | 'nodeHandler' | 'deliver' | 'drain' | 'close'>

export interface Loaded {
  readonly server: LoadedServer
  /** The name of the export, and whether it is a function that creates the server. */
  readonly exported: { readonly name: string; readonly isFunction: boolean }
  /** It was created with the official package. */
  readonly isOfficial: boolean
}

export function loadServer(path: string): Promise<Loaded> {
  return new Promise((resolve, reject) => {
    const onServe = (): void => reject(new LoadError(listening(path)))
    loadInDevelopment(() => findServer(path), onServe).then(resolve, reject)
  })
}

async function findServer(path: string): Promise<Loaded> {
  const module = await load(path)
  const named = Object.entries(module).filter(([, value]) => isServer(value) || isOfficial(value))
  const [name = '', found] =
    module.default === undefined ? (named.length === 1 ? (named[0] ?? []) : []) : ['default', module.default]
  const isFunction = typeof found === 'function'
  const server: unknown = isFunction ? await found() : await found
  const exported = { name, isFunction }
  if (isServer(server)) return { server, exported, isOfficial: false }
  if (isOfficial(server)) {
    const adapted = await serveOfficial(isFunction ? (found as () => McpServer) : server)
    return { server: adapted, exported, isOfficial: true }
  }
  throw new LoadError(listensAlready() ? listening(path) : exportsNone(path))
}

/** Messages of Node and tsx about a module with `import` or a top-level `await` that they take for CommonJS. */
const COMMONJS =
  /"cjs" output format|Cannot use import statement outside a module|top level bodies of modules/

/** Messages of Node about a package that is not installed. */
const MISSING_PACKAGE = /Cannot find package '((?:@[\w.-]+\/)?[\w.-]+)' imported from /

async function load(path: string): Promise<Record<string, unknown>> {
  if (!existsSync(path)) throw new LoadError(`${path} does not exist any more`)
  try {
    return await import(pathToFileURL(path).href)
  } catch (error) {
    if (COMMONJS.test(String(error))) throw new LoadError(commonJs(path))
    const [, name] = MISSING_PACKAGE.exec(String(error)) ?? []
    if (name !== undefined)
      throw new LoadError(`${path} needs the package "${name}": run npm install ${name}`)
    // Only the file itself can have tried to listen by now.
    if (!failedToListen(error)) throw error
    throw new LoadError(`${listening(path)}\n(Here it could not listen: ${(error as Error).message})`)
  }
}

/** Of Node, or of `server.listen()`, whose error has a code of its own. */
function failedToListen(error: unknown): boolean {
  const { code, cause } = (error ?? {}) as { code?: unknown; cause?: unknown }
  return code === 'EADDRINUSE' || code === 'SERVER_LISTEN' || (cause !== undefined && failedToListen(cause))
}

/** Frames of Node, of loaders, of other packages and of this one say nothing about the author's file. */
const OWN_FOLDERS = ['rondo', '@rondo/cli'].map((name) =>
  dirname(createRequire(import.meta.url).resolve(`${name}/package.json`)),
)
const FOREIGN_FRAME = /^\s+at .*(?:node:|[/\\]node_modules[/\\])/

const isOwnFrame = (line: string): boolean => OWN_FOLDERS.some((folder) => line.includes(folder))

/** The reason why a file could not be served: what to write, or the error with its frames in the author's own files. */
export function sayFailure(error: unknown): string {
  if (error instanceof LoadError) return error.message
  if (!(error instanceof Error)) return String(error)
  return (error.stack ?? error.message)
    .split('\n')
    .filter((line) => !FOREIGN_FRAME.test(line) && !(/^\s+at /.test(line) && isOwnFrame(line)))
    .join('\n')
}

/** The message of an error; if its store has failed, with the reason that the driver names. */
export function sayReason(error: unknown): string {
  const { message = String(error), code, cause } = error as Partial<RondoError>
  if (code !== 'STORE_UNAVAILABLE') return message
  return cause instanceof Error ? `${message}: ${cause.message}` : message
}

/** Checks the methods and not the class, because the file may import another copy of this package. */
function isServer(value: unknown): value is Server {
  if (typeof value !== 'object' || value === null) return false
  const { listen, stdio, tool } = value as Partial<Record<keyof Server, unknown>>
  return typeof listen === 'function' && typeof stdio === 'function' && typeof tool === 'function'
}

/** An `McpServer` of the official package. */
function isOfficial(value: unknown): value is McpServer {
  if (typeof value !== 'object' || value === null) return false
  const { server, registerTool, connect } = value as Partial<Record<keyof McpServer, unknown>>
  return typeof server === 'object' && typeof registerTool === 'function' && typeof connect === 'function'
}

/** True if the file opened a port while it was loaded. */
function listensAlready(): boolean {
  return process.getActiveResourcesInfo().includes('TCPServerWrap')
}

function commonJs(path: string): string {
  return [
    `${path} is an ES module, but its package.json does not say so.`,
    'Add "type": "module" to it: npm pkg set type=module',
  ].join('\n')
}

function listening(path: string): string {
  return [
    `${path} starts listening itself.`,
    'Write "export default server" in place of "server.listen()", and this command listens for it.',
    'Or run the file yourself, and pass its URL to a command: rondo tools http://127.0.0.1:3000/mcp',
  ].join('\n')
}

function exportsNone(path: string): string {
  return [
    `${path} exports no server. Write "export default server", or make a function that returns one the default export.`,
    'If the file serves stdio itself, pass it as a command: rondo tools -- node file.js',
  ].join('\n')
}

type Build = () => McpServer | Promise<McpServer>

async function serveOfficial(found: McpServer | Build): Promise<LoadedServer> {
  const { createMcpHandler } = await import('@modelcontextprotocol/server')
  const build: Build = typeof found === 'function' ? found : () => found
  const { fetch, close: closeHandler } = createMcpHandler(build)
  const inTurn = typeof found === 'function' ? undefined : createTurns()

  async function answer(req: IncomingMessage & { body?: unknown }, res: ServerResponse): Promise<void> {
    const gone = new AbortController()
    res.once('close', () => gone.abort())
    const request = await toRequest(req, gone.signal)
    const response = await (routeOf(request) ?? fetch)(request)
    res.writeHead(response.status, [...response.headers].flat())
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
    deliver() {
      throw new LoadError('Events for an official server are delivered by its own code, with rondo.deliver.')
    },
    drain,
    close,
    async listen({ host = '127.0.0.1', port = 3000 } = {}) {
      const http = createServer((req, res) => (isForeign(req, host) ? refuse(res) : handler(req, res)))
      await new Promise<void>((done, fail) => {
        http.once('error', (error) => fail(toListenError(error, port, host)))
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

/** Returns the route of a mounted extension that serves a request, if there is one. */
function routeOf({ url }: Request): Route | undefined {
  const { pathname } = new URL(url)
  for (const [path, route] of mountedHere().flatMap((mounted) => [...routesOf(mounted)]))
    if (pathname === path || pathname.startsWith(`${path}/`)) return route
  return undefined
}

/** On loopback, a page of another site could reach the server through the user's browser: its Host or Origin is foreign. */
export function isForeign({ headers }: Pick<IncomingMessage, 'headers'>, host: string): boolean {
  if (!isLoopback(host)) return false
  const allowed = createAllowList({}, host)
  return !allowed.host(headers.host) || !allowed.origin(headers.origin)
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
  const body = await readNodeBody(req, { limit: MAX_BODY })
  if (body.kind === 'whole') return new Uint8Array(body.bytes)
  throw new Error(body.kind === 'broken' ? 'The request is incomplete' : 'The request is too large')
}
