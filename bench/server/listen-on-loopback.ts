import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Started } from './start.ts'

export function listenOnLoopback(server: Server): Promise<Started> {
  // On a busy machine a connection may be idle for longer than Node's five seconds.
  server.keepAliveTimeout = 600_000
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo
      resolve({ url: new URL(`http://127.0.0.1:${port}/mcp`), close: () => closed(server) })
    })
  })
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve())
    server.closeAllConnections()
  })
}
