/**
 * The transports that need more than `fetch`, loaded only when they are used. In the build for browsers
 * `platform-browser.ts` takes the place of this file.
 */

import { createFetchTransport } from './fetch.ts'
import type { ProcessOptions, StdioTarget } from './stdio.ts'
import type { Transport } from './transport.ts'

/** HTTP as this platform does it best. */
export async function openPlatformHttp(url: URL): Promise<Transport> {
  // Other runtimes load this file too.
  if (globalThis.process?.versions?.node === undefined) {
    return createFetchTransport((request) => fetch(request), url)
  }
  const { createNodeHttpTransport } = await import('./node-http.ts')
  return createNodeHttpTransport(url)
}

/** A server as a child process. */
export async function openProcess(target: StdioTarget, options: ProcessOptions): Promise<Transport> {
  const { createStdioTransport } = await import('./stdio.ts')
  return createStdioTransport(target, options)
}
