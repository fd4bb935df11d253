/** Replaces `platform.ts` in the browser build (`scripts/bundle.js`): `fetch`, and no processes. */

import type * as Platform from './platform.ts'
import { createFetchTransport } from './transport.ts'

export const openPlatformHttp: typeof Platform.openPlatformHttp = async (url) =>
  createFetchTransport((request) => fetch(request), url)

export const openProcess: typeof Platform.openProcess = async () => {
  throw new TypeError('A browser cannot start a process; connect to a URL')
}
