/**
 * The process in which a file's server runs: `serve-file FILE stdio`, or `serve-file FILE http HOST PORT` with a channel to
 * the parent, which is told where it listens. When the parent goes away, or the file cannot be served, so does this
 * process, whatever the file has begun by then.
 */

import { LoadError, loadServer } from './load-server.ts'

export type ServeReport =
  | { readonly kind: 'listening'; readonly url: string; readonly port: number }
  | { readonly kind: 'failed'; readonly message: string }

const [path = '', entrance, host, port] = process.argv.slice(2)

async function serveHttp(): Promise<void> {
  let close = async (): Promise<void> => {}
  process.on('disconnect', () => void close().finally(() => process.exit(0)))
  const server = await loadServer(path)
  const listening = await server.listen({ host, port: Number(port) })
  close = () => listening.close()
  process.send?.({ kind: 'listening', url: listening.url, port: listening.port } satisfies ServeReport)
}

async function serveStdio(): Promise<void> {
  const server = await loadServer(path)
  await server.stdio()
}

/** Where there is no channel, stderr is what the parent reads. */
function giveUp(message: string): void {
  const exit = (): never => process.exit(1)
  if (process.send === undefined) process.stderr.write(`${message}\n`, exit)
  else process.send({ kind: 'failed', message } satisfies ServeReport, exit)
}

try {
  await (entrance === 'stdio' ? serveStdio() : serveHttp())
} catch (error) {
  if (error instanceof LoadError) giveUp(error.message)
  else giveUp(error instanceof Error ? (error.stack ?? error.message) : String(error))
}
