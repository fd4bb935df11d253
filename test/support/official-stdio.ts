/** The official server over stdio, as a process of its own. */
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import { createOfficialServer } from './official-server.ts'

serveStdio(createOfficialServer)
