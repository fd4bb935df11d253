import express from 'express'
import { createServer, type ServerOptions } from 'rondo'

export function createApp(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'hello', version: '1.0.0', ...options })
  server.tool('hello', {}, () => 'Hello from Express')

  const app = express()
  app.all('/mcp', server.nodeHandler())
  return app
}
