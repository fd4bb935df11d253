/** The desk server over stdio, as a process of its own. */
import { createDeskServer } from './desk-server.ts'

await createDeskServer(process.env.RONDO_KEYS ?? '').stdio()
