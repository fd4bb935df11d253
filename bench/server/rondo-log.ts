import { startWith } from './rondo.ts'
import type { StartServer } from './start.ts'

/** Rondo with its JSON log, which the bench discards. */
export const start: StartServer = (tools) => startWith(tools, { log: 'json' }, 'never')
