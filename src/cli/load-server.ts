/**
 * Loads the server that a file exports, as the default export or the only one, as an object or as a function. An `McpServer`
 * of the official package is a server too.
 */

import { existsSync } from 'node:fs'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { McpServer } from '@modelcontextprotocol/server'
import type { RondoError } from '../errors.ts'
import type { Server } from '../serve/server.ts'

/** The file runs but exports no server. The message says what to write. */
class LoadError extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'LoadError'
  }
}

/** What the command needs of a server, whichever package it was created with. */
export type LoadedServer = Pick<Server, 'listen' | 'stdio' | 'nodeHandler' | 'drain' | 'close'>

export interface Loaded {
  readonly server: LoadedServer
  /** The name of the export, and whether it is a function that creates the server. */
  readonly exported: { readonly name: string; readonly isFunction: boolean }
  /** It was created with the official package. */
  readonly isOfficial: boolean
}

export async function loadServer(path: string): Promise<Loaded> {
  const module = await load(path)
  const named = Object.entries(module).filter(([, value]) => isServer(value) || isOfficial(value))
  const [name = '', found] =
    module.default === undefined ? (named.length === 1 ? (named[0] ?? []) : []) : ['default', module.default]
  const isFunction = typeof found === 'function'
  const server: unknown = isFunction ? await found() : await found
  const exported = { name, isFunction }
  if (isServer(server)) return { server, exported, isOfficial: false }
  if (isOfficial(server)) {
    const { serveOfficial } = await import('./official-server.ts')
    const adapted = await serveOfficial(isFunction ? (found as () => McpServer) : server)
    return { server: adapted, exported, isOfficial: true }
  }
  throw new LoadError(listensAlready() ? listening(path) : exportsNone(path))
}

/** What Node and tsx say of a module with `import` or a top-level `await` that they take for CommonJS. */
const COMMONJS =
  /"cjs" output format|Cannot use import statement outside a module|top level bodies of modules/

async function load(path: string): Promise<Record<string, unknown>> {
  if (!existsSync(path)) throw new LoadError(`${path} does not exist any more`)
  try {
    return await import(pathToFileURL(path).href)
  } catch (error) {
    if (COMMONJS.test(String(error))) throw new LoadError(commonJs(path))
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
const OWN_FOLDER = fileURLToPath(new URL('..', import.meta.url))
const FOREIGN_FRAME = /^\s+at .*(?:node:|[/\\]node_modules[/\\])/

/** Why a file could not be served: what to write, or the error with its frames in the author's own files. */
export function sayFailure(error: unknown): string {
  if (error instanceof LoadError) return error.message
  if (!(error instanceof Error)) return String(error)
  return (error.stack ?? error.message)
    .split('\n')
    .filter((line) => !FOREIGN_FRAME.test(line) && !(/^\s+at /.test(line) && line.includes(OWN_FOLDER)))
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
    `${path} starts listening itself and exports no server.`,
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
