/** The version of this package, as its package.json has it. */

import { createRequire } from 'node:module'

const { version } = createRequire(import.meta.url)('rondo/package.json') as { version: string }

export const VERSION: string = version
