/** FastMCP for TypeScript, without sessions, as a fleet would run it. */

import { createServer } from 'node:net'
import { FastMCP } from 'fastmcp'
import { DESCRIPTION, Input, NAME, resultFor } from './work.js'

export async function start() {
  const server = new FastMCP({ name: 'bench', version: '1.0.0' })
  server.addTool({
    name: NAME,
    description: DESCRIPTION,
    parameters: Input,
    execute: async ({ id, resolution }) => resultFor(id, resolution ?? 'Fixed'),
  })
  const port = await freePort()
  await server.start({
    transportType: 'httpStream',
    httpStream: { port, host: '127.0.0.1', stateless: true },
  })
  return { url: new URL(`http://127.0.0.1:${port}/mcp`), close: () => server.stop() }
}

/** FastMCP does not say which port the system gave it. */
function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })
}
