import { Hono } from 'hono'
import { createServer, type ServerOptions } from 'rondo'

export function createApp(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'hello', version: '1.0.0', ...options })
  server.tool('hello', {}, () => 'Hello from Hono')

  const app = new Hono()
  app.post('/mcp', (c) => server.fetch(c.req.raw))
  return app
}
