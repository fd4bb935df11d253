/** Our own server over stdio, as a process of its own. */
import { createOwnServer } from './own-server.ts'

await createOwnServer().stdio()
