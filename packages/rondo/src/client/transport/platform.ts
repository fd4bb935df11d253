/** The transports that need more than `fetch`, loaded on first use. The browser build uses `platform-browser.ts` instead. */

import type { ProcessOptions, StdioTarget } from './stdio.ts'
import type { Transport } from './transport.ts'
import { createFetchTransport } from './transport.ts'

/** Opens the fastest HTTP transport of this platform. */
export async function openPlatformHttp(url: URL): Promise<Transport> {
  // Other runtimes load this file too.
  if (globalThis.process?.versions?.node === undefined) {
    return createFetchTransport((request) => fetch(request), url)
  }
  const { createNodeHttpTransport } = await import('./node-http.ts')
  return createNodeHttpTransport(url)
}

/** Starts a server as a child process. */
export async function openProcess(target: StdioTarget, options: ProcessOptions): Promise<Transport> {
  const { createStdioTransport } = await import('./stdio.ts')
  return createStdioTransport(target, options)
}
