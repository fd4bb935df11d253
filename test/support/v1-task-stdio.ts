/** The server of `v1-task-server.ts` over stdio. */

import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { createV1TaskServer } from './v1-task-server.ts'

await createV1TaskServer().connect(new StdioServerTransport())
