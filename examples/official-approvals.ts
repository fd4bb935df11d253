import { createServer } from 'node:http'
import { localhostHostValidation, localhostOriginValidation, toNodeHandler } from '@modelcontextprotocol/node'
import { type CallToolResult, createMcpHandler, McpServer } from '@modelcontextprotocol/server'
import { createApprovals, type LoginFunction } from '@rondo/approvals'
import { createRondo, type RondoOptions } from 'rondo/sdk'
import { createSqliteStore } from 'rondo/sqlite'
import { z } from 'zod'

const text = (value: string): CallToolResult => ({ content: [{ type: 'text', text: value }] })

/** A tool of an official server that a release manager approves. `options` contains the store. */
export function createDeployer(url: string, login: LoginFunction, options: Partial<RondoOptions>) {
  const rondo = createRondo({ audience: 'deployer', ...options })
  const groups = (name: string) => (name === 'release-managers' ? [{ id: 'ann', name: 'Ann' }] : [])
  const approvals = createApprovals({ url, login, groups })
  rondo.use(approvals)
  const deploy = rondo.tool(
    async ({ version }: { version: string }, ctx) => {
      const approval = await ctx.approve('deploy', {
        from: 'release-managers',
        message: `Deploy ${version} to production?`,
        details: { version, target: 'production' },
      })
      await ctx.effect('deploy', async ({ key }) => `deployed ${version} under ${key}`)
      return text(`Deployed ${version}, approved by ${approval.by[0].name}.`)
    },
    { task: 'always' },
  )
  const build = () => {
    const server = rondo.tasks(new McpServer({ name: 'deployer', version: '1.0.0' }))
    server.registerTool('deploy', { inputSchema: z.object({ version: z.string() }) }, deploy)
    return server
  }
  return { rondo, approvals, build }
}

/** Serves the pages beside the MCP endpoint. */
export function onNode({ approvals, build }: ReturnType<typeof createDeployer>) {
  const mcp = toNodeHandler(createMcpHandler(build))
  const pages = toNodeHandler(approvals)
  const allowed = [localhostHostValidation(), localhostOriginValidation()]
  return createServer((req, res) => {
    if (!allowed.every((check) => check(req, res))) return
    void (req.url?.startsWith('/approvals') ? pages(req, res) : mcp(req, res))
  })
}

/** For a try on one machine: whoever opens the page is Ann, and whoever calls is Erin. */
if (process.argv[1] === import.meta.filename) {
  const ann = () => ({ issuer: 'this machine', subject: 'ann', name: 'Ann' })
  const deployer = createDeployer('http://127.0.0.1:3000/approvals', ann, {
    store: createSqliteStore({ file: 'deployer.db' }),
    principal: () => ({ issuer: 'this machine', subject: 'erin' }),
  })
  deployer.build()
  await deployer.rondo.ready()
  onNode(deployer).listen(3000, '127.0.0.1')
}
