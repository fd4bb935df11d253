/**
 * The process in which a file's server runs: `serve-file FILE stdio`, or `serve-file FILE http HOST PORT` with an IPC channel,
 * on which it reports to the parent where it listens. `serve-file FILE deliver HOOK JSON` serves nothing: it delivers one event. The process exits when the parent is gone or the file cannot be
 * served, whatever the file has started by then. Servers are in development mode: whoever runs a file is its author, and sees
 * the messages that are written for authors.
 */

import type { EventDelivery } from 'rondo'
import { develop } from 'rondo/internal'
import { loadServer, sayFailure, sayReason } from './load-server.ts'

export type ServeReport =
  | { readonly kind: 'delivered'; readonly delivery: EventDelivery }
  | { readonly kind: 'listening'; readonly url: string; readonly port: number }
  | { readonly kind: 'failed'; readonly message: string }
  /** The address cannot be used; no change of the file helps. */
  | { readonly kind: 'unusable'; readonly message: string }

const [path = '', entrance, ...rest] = process.argv.slice(2)
const [host, port] = rest

async function serveHttp(): Promise<void> {
  let close = async (): Promise<void> => {}
  process.on('disconnect', () => void close().finally(() => process.exit(0)))
  const { server } = await loadServer(path)
  const listening = await server.listen({ host, port: Number(port) }).catch((error: Error) => {
    // A store without its package, say, is a mistake in the file.
    exitWith(error instanceof TypeError ? 'failed' : 'unusable', sayReason(error))
    return undefined
  })
  if (listening === undefined) return
  close = () => listening.close()
  process.send?.({ kind: 'listening', url: listening.url, port: listening.port } satisfies ServeReport)
}

async function serveStdio(): Promise<void> {
  const { server } = await loadServer(path)
  await server.stdio()
}

async function deliver(): Promise<void> {
  const [hook = '', event = ''] = rest
  const { server } = await loadServer(path)
  try {
    const delivery = await server.deliver(hook, JSON.parse(event))
    process.send?.({ kind: 'delivered', delivery } satisfies ServeReport)
  } catch (error) {
    exitWith('failed', sayReason(error))
  }
}

/** Reports the failure on the channel, or on stderr if there is none, and exits. */
function exitWith(kind: 'failed' | 'unusable', message: string): void {
  const exit = (): never => process.exit(1)
  if (process.send === undefined) process.stderr.write(`${message}\n`, exit)
  else process.send({ kind, message } satisfies ServeReport, exit)
}

try {
  develop({})
  await (entrance === 'stdio' ? serveStdio() : entrance === 'deliver' ? deliver() : serveHttp())
} catch (error) {
  exitWith('failed', sayFailure(error))
}
