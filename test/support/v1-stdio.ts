/** The official server of the first generation over stdio, as a process of its own. */
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { createV1Server } from './v1-server.ts'

await createV1Server().connect(new StdioServerTransport())
