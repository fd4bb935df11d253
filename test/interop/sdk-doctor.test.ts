/** `rondo doctor` on an official server: clean with our callbacks, and not with rounds written by hand. Needs the build. */

import type { Server as HttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import {
  type CallToolResult,
  createRequestStateCodec,
  inputRequired,
  inputResponse,
  McpServer,
} from '@modelcontextprotocol/server'
import { createRondo, generateKey } from 'rondo/sdk'
import { afterAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { onNode } from '../../examples/official-entrances.ts'
import { type CliHome, createCliHome } from '../support/run-cli.ts'

const home: CliHome = createCliHome()
const listening: HttpServer[] = []

afterAll(() => {
  for (const server of listening) server.close()
  home.remove()
})

const inputSchema = z.object({ env: z.string() })
const text = (value: string): CallToolResult => ({ content: [{ type: 'text', text: value }] })

function withRondo(): () => McpServer {
  const rondo = createRondo({
    audience: 'doctor',
    keys: generateKey(),
    log: 'off',
    limits: { roundTtlMs: 3000 },
    principal: ({ http }) => ({ subject: http?.req?.headers.get('x-user') ?? 'nobody' }),
  })
  return () => {
    const server = rondo.mount(new McpServer({ name: 'doctor', version: '1.0.0' }))
    const deploy = rondo.tool<{ env?: string }>(async ({ env = 'test' }, ctx) =>
      text(String(await ctx.confirm('sure', `Deploy to ${env}?`))),
    )
    server.registerTool('deploy', { description: 'Deploys', inputSchema }, deploy)
    server.registerTool(
      'roll_back',
      { description: 'Rolls back', inputSchema: inputSchema.partial() },
      deploy,
    )
    return server
  }
}

/** The state is signed, and that is all it is. */
function byHand(): () => McpServer {
  const codec = createRequestStateCodec<{ asked: true }>({ key: new Uint8Array(32).fill(5) })
  return () => {
    const server = new McpServer(
      { name: 'doctor', version: '1.0.0' },
      { requestState: { verify: codec.verify } },
    )
    server.registerTool('deploy', { description: 'Deploys', inputSchema }, async ({ env }, ctx) => {
      const answer = inputResponse(ctx.mcpReq.inputResponses, 'sure')
      if (answer.kind === 'elicit') return text(answer.action)
      const requestedSchema = z.object({ confirm: z.boolean() })
      const sure = inputRequired.elicit({ message: `Deploy to ${env}?`, requestedSchema })
      const requestState = await codec.mint({ asked: true }, ctx)
      return inputRequired({ inputRequests: { sure }, requestState })
    })
    return server
  }
}

async function examine(build: () => McpServer, ...options: string[]): Promise<Record<string, string>> {
  const server = onNode(build)
  listening.push(server)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`
  const { value } = await home.json([
    ...['doctor', url, '--tool', 'deploy', 'env=staging', '--other', 'env=production'],
    ...options,
  ])
  const findings = value.findings as { id: string; verdict: string }[]
  return Object.fromEntries(findings.map(({ id, verdict }) => [id, verdict]))
}

describe('the doctor', () => {
  it('has no findings for an official server with our callbacks', async () => {
    const verdicts = await examine(
      withRondo(),
      ...['--header', 'x-user: alice', '--other-header', 'x-user: eve'],
      ...['--other-tool', 'roll_back', '--wait', '4'],
    )
    expect(Object.keys(verdicts).filter((id) => id.startsWith('state-')).length).toBeGreaterThan(8)
    const { auth, ...examined } = verdicts
    expect(auth).toBe('skip')
    expect(new Set(Object.values(examined))).toEqual(new Set(['pass']))
  })

  it('reports what a hand-made state lets through', async () => {
    expect(await examine(byHand())).toMatchObject({ 'state-arguments': 'fail' })
  })
})
