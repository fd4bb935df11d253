import { startBeside } from './rondo.ts'
import type { StartServer } from './start.ts'

/** The control: two servers that are the same. What they differ by is the error of the comparison. */
export const start: StartServer = (tools, plainFirst) => startBeside(tools, {}, plainFirst)
