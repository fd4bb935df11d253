/**
 * The process in which a file's server runs: `serve-file FILE stdio`, or `serve-file FILE http HOST PORT` with a channel to
 * the parent, which is told where it listens. When the parent goes away, so does this process.
 */

import { loadServer } from './load-server.ts'

export type ServeReport =
  | { readonly kind: 'listening'; readonly url: string; readonly port: number }
  | { readonly kind: 'failed'; readonly message: string }

const [path = '', entrance, host, port] = process.argv.slice(2)

function report(message: ServeReport): void {
  process.send?.(message)
}

async function serveHttp(): Promise<void> {
  const server = await loadServer(path)
  const listening = await server.listen({ host, port: Number(port) })
  report({ kind: 'listening', url: listening.url, port: listening.port })
  process.on('disconnect', () => void listening.close().then(() => process.exit(0)))
}

async function serveStdio(): Promise<void> {
  const server = await loadServer(path)
  await server.stdio()
}

try {
  await (entrance === 'stdio' ? serveStdio() : serveHttp())
} catch (error) {
  const message = error instanceof Error ? (error.stack ?? error.message) : String(error)
  report({ kind: 'failed', message })
  if (process.send === undefined) process.stderr.write(`${message}\n`)
  process.exitCode = 1
  if (process.connected) process.disconnect()
}
