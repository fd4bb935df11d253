import { startBeside } from './rondo.ts'
import type { StartServer } from './start.ts'

/** Rondo with the log that it has by default, which is JSON unless stderr is a terminal. */
export const start: StartServer = (tools, plainFirst) => startBeside(tools, { log: undefined }, plainFirst)
