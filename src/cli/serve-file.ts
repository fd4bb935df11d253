/**
 * The process in which a file's server runs: `serve-file FILE stdio`, or `serve-file FILE http HOST PORT` with an IPC channel,
 * on which it reports to the parent where it listens. The process exits when the parent is gone or the file cannot be
 * served, whatever the file has started by then.
 */

import { develop } from '../serve/development.ts'
import { LoadError, loadServer } from './load-server.ts'

export type ServeReport =
  | { readonly kind: 'listening'; readonly url: string; readonly port: number }
  | { readonly kind: 'failed'; readonly message: string }

const [path = '', entrance, host, port] = process.argv.slice(2)

async function serveHttp(): Promise<void> {
  let close = async (): Promise<void> => {}
  process.on('disconnect', () => void close().finally(() => process.exit(0)))
  develop({})
  const { server } = await loadServer(path)
  const listening = await server.listen({ host, port: Number(port) })
  close = () => listening.close()
  process.send?.({ kind: 'listening', url: listening.url, port: listening.port } satisfies ServeReport)
}

async function serveStdio(): Promise<void> {
  const { server } = await loadServer(path)
  await server.stdio()
}

/** Reports the failure on the channel, or on stderr if there is none, and exits. */
function exitWith(message: string): void {
  const exit = (): never => process.exit(1)
  if (process.send === undefined) process.stderr.write(`${message}\n`, exit)
  else process.send({ kind: 'failed', message } satisfies ServeReport, exit)
}

try {
  await (entrance === 'stdio' ? serveStdio() : serveHttp())
} catch (error) {
  if (error instanceof LoadError) exitWith(error.message)
  else exitWith(error instanceof Error ? (error.stack ?? error.message) : String(error))
}
