import { createServer } from 'node:http'
import { createRequestListener } from '@remix-run/node-fetch-server'

/** Serves a fetch handler on a free loopback port. */
export function listen(respond) {
  const server = createServer(createRequestListener(respond))
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () =>
      resolve({
        url: new URL(`http://127.0.0.1:${server.address().port}/mcp`),
        async close() {
          server.close()
          server.closeAllConnections()
        },
      }),
    )
  })
}
