/**
 * Faults of rounds written by hand in the official package, each beside the same tool with `rondo/sdk`. The
 * left side of every pair is written the way the package's own documentation writes it.
 */

import { StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import {
  acceptedContent,
  type CallToolResult,
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  McpServer,
  type ServerOptions,
} from '@modelcontextprotocol/server'
import { generateKey, type Server } from 'rondo'
import { createRondo, type Rondo } from 'rondo/sdk'
import { createBench, decline } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { connectOfficial, type OfficialClient } from '../support/official-client.ts'
import { mountedServer, type Register } from '../support/sdk-bench.ts'

const text = (value: string): CallToolResult => ({ content: [{ type: 'text', text: value }] })
const confirmation = z.object({ confirm: z.boolean() })
const reason = z.object({ reason: z.string() })
const inputSchema = z.object({ env: z.string() })

const ask = (key: string, message: string, requestedSchema: z.ZodObject, requestState?: string) =>
  inputRequired({
    inputRequests: { [key]: inputRequired.elicit({ message, requestedSchema }) },
    requestState,
  })

type Fetch = (request: Request) => Promise<Response>

function plain(register: (server: McpServer) => void, options?: ServerOptions): Fetch {
  return createMcpHandler(() => {
    const server = new McpServer({ name: 'plain', version: '1.0.0' }, options)
    register(server)
    return server
  }).fetch
}

function mounted(register: Register): Fetch {
  const rondo: Rondo = createRondo({ audience: 'faults', keys: generateKey(), log: 'off' })
  return plain((server) => register(rondo.mount(server), rondo))
}

function connect(fetch: Fetch): Promise<OfficialClient> {
  const transport = new StreamableHTTPClientTransport(new URL('http://127.0.0.1/mcp'), {
    fetch: (url, init) => fetch(new Request(url, init)),
  })
  return connectOfficial(transport)
}

/** Each server as the bench wants it. */
const benchOf = (fetch: Fetch) => createBench(() => ({ fetch }) as Server)

const deploy = { method: 'tools/call', target: 'deploy', args: { env: 'staging' } } as const

describe('a user who declines', () => {
  it('by hand: is asked ten times, and then the call fails', async () => {
    const client = await connect(
      plain((server) =>
        server.registerTool('deploy', { inputSchema }, async ({ env }, ctx) => {
          const confirmed = acceptedContent(ctx.mcpReq.inputResponses, 'confirm', confirmation)
          if (confirmed?.confirm !== true) return ask('confirm', `Deploy to ${env}?`, confirmation)
          return text(`deployed to ${env}`)
        }),
      ),
    )
    await expect(client.run(deploy, { confirm: decline })).rejects.toThrow(/round/)
    expect(client.asked).toEqual(Array(10).fill('Deploy to staging?'))
  })

  it('with Rondo: is asked once, and the call ends with a result', async () => {
    const client = await connect(
      mounted((server, rondo) =>
        server.registerTool(
          'deploy',
          { inputSchema },
          rondo.tool(async ({ env }, ctx) => {
            await ctx.ask('confirm', { message: `Deploy to ${env}?`, schema: confirmation })
            return text(`deployed to ${env}`)
          }),
        ),
      ),
    )
    const ended = await client.run(deploy, { confirm: decline })
    expect(ended).toEqual({
      text: 'The user declined to answer "confirm". Nothing more was done.',
      isError: true,
    })
    expect(client.asked).toEqual(['Deploy to staging?'])
  })
})

describe('a state that was confirmed for staging, sent with production', () => {
  /** Confirms for staging and sends what comes back with other arguments. */
  async function swap(fetch: Fetch) {
    const bench = benchOf(fetch)
    const honest = bench.tool('deploy', { env: 'staging' })
    await honest.next()
    await honest.next({ confirm: { confirm: true } })
    const swapped = bench.tool('deploy', { env: 'production' })
    swapped.state = honest.state
    return swapped.next({ reason: { reason: 'release' } })
  }

  it('by hand: runs on production, although the state is signed', async () => {
    const codec = createRequestStateCodec<{ confirmed: boolean }>({ key: new Uint8Array(32).fill(7) })
    const fetch = plain(
      (server) =>
        server.registerTool('deploy', { inputSchema }, async ({ env }, ctx) => {
          const state = ctx.mcpReq.requestState<{ confirmed: boolean }>()
          if (!state?.confirmed) {
            const answer = acceptedContent(ctx.mcpReq.inputResponses, 'confirm', confirmation)
            if (answer?.confirm !== true) return ask('confirm', `Deploy to ${env}?`, confirmation)
            return ask('reason', 'Why?', reason, await codec.mint({ confirmed: true }, ctx))
          }
          return text(`deployed to ${env}`)
        }),
      { requestState: { verify: codec.verify } },
    )
    expect(await swap(fetch)).toMatchObject({ kind: 'complete', text: 'deployed to production' })
  })

  it('B7 with Rondo: is refused before the handler runs', async () => {
    let runs = 0
    const fetch = mounted((server, rondo) =>
      server.registerTool(
        'deploy',
        { inputSchema },
        rondo.tool(async ({ env }, ctx) => {
          runs += 1
          if (!(await ctx.confirm('confirm', `Deploy to ${env}?`))) return text('not deployed')
          await ctx.ask('reason', { message: 'Why?', schema: reason })
          return text(`deployed to ${env}`)
        }),
      ),
    )
    expect(await swap(fetch)).toMatchObject({
      kind: 'error',
      code: -32602,
      message: 'Invalid or expired requestState',
    })
    expect(runs).toBe(2)
  })
})

describe('an effect before two questions', () => {
  const answers = { first: { confirm: true }, second: { reason: 'release' } }

  it('by hand: happens three times', async () => {
    let charged = 0
    const client = await connect(
      plain((server) =>
        server.registerTool('deploy', { inputSchema }, async (_args, ctx) => {
          charged += 1
          const responses = ctx.mcpReq.inputResponses
          const confirmed = ctx.mcpReq.requestState() === 'confirmed'
          if (!confirmed && acceptedContent(responses, 'first') === undefined) {
            return ask('first', 'Sure?', confirmation)
          }
          if (acceptedContent(responses, 'second') === undefined) {
            return ask('second', 'Why?', reason, 'confirmed')
          }
          return text('done')
        }),
      ),
    )
    expect((await client.run(deploy, answers)).text).toBe('done')
    expect(charged).toBe(3)
  })

  it('R7 with Rondo: happens once', async () => {
    let charged = 0
    const client = await connect(
      mounted((server, rondo) =>
        server.registerTool(
          'deploy',
          { inputSchema },
          rondo.tool(async (_args, ctx) => {
            await ctx.effect('charge', () => {
              charged += 1
            })
            await ctx.confirm('first', 'Sure?')
            await ctx.ask('second', { message: 'Why?', schema: reason })
            return text('done')
          }),
        ),
      ),
    )
    expect((await client.run(deploy, answers)).text).toBe('done')
    expect(client.asked).toEqual(['Sure?', 'Why?'])
    expect(charged).toBe(1)
  })
})

describe('two instances with different keys', () => {
  it('by hand: the second refuses what the first sealed', async () => {
    const instance = (byte: number) => {
      const codec = createRequestStateCodec<string>({ key: new Uint8Array(32).fill(byte) })
      return plain(
        (server) =>
          server.registerTool('deploy', { inputSchema }, async ({ env }, ctx) =>
            acceptedContent(ctx.mcpReq.inputResponses, 'confirm') === undefined
              ? ask('confirm', `Deploy to ${env}?`, confirmation, await codec.mint(env, ctx))
              : text(`deployed to ${env}`),
          ),
        { requestState: { verify: codec.verify } },
      )
    }
    const instances = [instance(1), instance(2)]
    const call = createBench(() => ({ fetch: instances.shift() }) as Server).tool('deploy', {
      env: 'staging',
    })
    await call.next()
    const second = await call.otherInstance().next({ confirm: { confirm: true } })
    expect(second).toMatchObject({ kind: 'error', code: -32602 })
  })

  it('B9 with Rondo: each seals with its own key and opens both, and the call continues', async () => {
    const [a, b] = [generateKey('a'), generateKey('b')]
    const rings = [`${a},${b}`, `${b},${a}`]
    const bench = createBench((options) =>
      mountedServer({ ...options, audience: 'fleet', keys: rings.shift() ?? a }, (server, rondo) =>
        server.registerTool(
          'deploy',
          { inputSchema },
          rondo.tool(async ({ env }, ctx) =>
            (await ctx.confirm('confirm', `Deploy to ${env}?`)) ? text(`deployed to ${env}`) : text('no'),
          ),
        ),
      ),
    )
    const call = bench.tool('deploy', { env: 'staging' })
    await call.next()
    const second = await call.otherInstance().next({ confirm: { confirm: true } })
    expect(second).toMatchObject({ kind: 'complete', text: 'deployed to staging' })
  })
})
