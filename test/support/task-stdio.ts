/** The server of `task-server.ts` over stdio. */
import { createTaskServer } from './task-server.ts'

await createTaskServer().stdio()
