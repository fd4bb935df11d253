import { createServer } from 'node:http'
import { createMcpExpressApp } from '@modelcontextprotocol/express'
import { createMcpHonoApp } from '@modelcontextprotocol/hono'
import { localhostHostValidation, localhostOriginValidation, toNodeHandler } from '@modelcontextprotocol/node'
import { createMcpHandler, type McpServer } from '@modelcontextprotocol/server'

/** `build` returns a new server with Rondo mounted on it; keys, limits and log are created once, outside of it. */
export function onNode(build: () => McpServer) {
  const handle = toNodeHandler(createMcpHandler(build))
  const allowed = [localhostHostValidation(), localhostOriginValidation()]
  return createServer((req, res) => {
    if (allowed.every((check) => check(req, res))) void handle(req, res)
  })
}

export function onExpress(build: () => McpServer) {
  const handle = toNodeHandler(createMcpHandler(build))
  const app = createMcpExpressApp({ jsonLimit: '1mb' })
  app.all('/mcp', (req, res) => void handle(req, res, req.body))
  return app
}

export function onHono(build: () => McpServer) {
  const handler = createMcpHandler(build)
  const app = createMcpHonoApp()
  app.all('/mcp', (c) => handler.fetch(c.req.raw))
  return app
}
