/** Finds the server that a file exports: as its default export or its only one, as an object or as a function. */

import { pathToFileURL } from 'node:url'
import type { Server } from '../serve/create-server.ts'

export async function loadServer(path: string): Promise<Server> {
  const module: Record<string, unknown> = await import(pathToFileURL(path).href)
  const named = Object.values(module).filter(isServer)
  const found = module.default ?? (named.length === 1 ? named[0] : undefined)
  const server: unknown = typeof found === 'function' ? await found() : await found
  if (isServer(server)) return server
  throw new TypeError(
    `${path} exports no server. Write "export default server", or export a function that gives one. ` +
      'A file that serves by itself is run as a command: rondo … -- node file.js',
  )
}

/** By what it can do: the file may have another copy of this package. */
function isServer(value: unknown): value is Server {
  if (typeof value !== 'object' || value === null) return false
  const { listen, stdio, tool } = value as Partial<Record<keyof Server, unknown>>
  return typeof listen === 'function' && typeof stdio === 'function' && typeof tool === 'function'
}
