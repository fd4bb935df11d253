/**
 * Servers made with the official package that are correct except for their state: one keeps it as plain JSON, one signs
 * it with the official codec and binds it to nothing. `rondo doctor` must find that.
 */

import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { toNodeHandler } from '@modelcontextprotocol/node'
import {
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  localhostAllowedOrigins,
  McpServer,
  originValidationResponse,
  type RequestStateCodec,
  type ServerContext,
} from '@modelcontextprotocol/server'
import { z } from 'zod'

interface State {
  readonly stage: string
  readonly amount: number
}

export interface WeakOptions {
  readonly state: 'plain' | 'signed'
  /** Asks again after a decline. */
  readonly insists?: boolean
  readonly ttlSeconds?: number
}

export interface WeakServer {
  readonly url: string
  close(): Promise<void>
}

const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] })

function createWeak({ state, insists = false, ttlSeconds }: WeakOptions): () => McpServer {
  const codec = createRequestStateCodec<State>({ key: 'k'.repeat(32), ttlSeconds })
  const signed = state === 'signed'
  return () => {
    const options = signed ? { requestState: { verify: codec.verify } } : {}
    const server = new McpServer({ name: 'weak', version: '1.0.0' }, options)
    const handle = (amount: number, ctx: ServerContext) =>
      answer(amount, ctx, signed ? codec : undefined, insists)
    const inputSchema = z.object({ amount: z.number() })
    server.registerTool('transfer', { inputSchema }, async ({ amount }, ctx) => handle(amount, ctx))
    server.registerTool('close_account', { inputSchema: z.object({}) }, async (_args, ctx) => handle(0, ctx))
    return server
  }
}

async function answer(
  amount: number,
  ctx: ServerContext,
  codec: RequestStateCodec<State> | undefined,
  insists: boolean,
) {
  const came = codec ? ctx.mcpReq.requestState<State>() : parse(ctx.mcpReq.requestState<string>())
  const given = ctx.mcpReq.inputResponses?.sure as { action?: string } | undefined
  if (came === undefined || given === undefined || (insists && given.action !== 'accept')) {
    const state: State = { stage: 'asked', amount }
    const requestedSchema = {
      type: 'object' as const,
      properties: { confirm: { type: 'boolean' as const } },
      required: ['confirm'],
    }
    return inputRequired({
      inputRequests: { sure: inputRequired.elicit({ message: 'Sure?', requestedSchema }) },
      requestState: codec ? await codec.mint(state, ctx) : JSON.stringify(state),
    })
  }
  return text(given.action === 'accept' ? `moved ${came.amount}` : 'nothing was moved')
}

function parse(state: string | undefined): State | undefined {
  return state === undefined ? undefined : (JSON.parse(state) as State)
}

export async function startWeakServer(options: WeakOptions): Promise<WeakServer> {
  const handler = createMcpHandler(createWeak(options))
  const guarded = {
    fetch: async (request: Request) =>
      originValidationResponse(request, localhostAllowedOrigins()) ?? (await handler.fetch(request)),
  }
  const http = createServer(toNodeHandler(guarded))
  await new Promise<void>((resolve) => {
    http.listen(0, '127.0.0.1', resolve)
  })
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    close: () =>
      new Promise((resolve) => {
        http.close(() => resolve())
        http.closeAllConnections()
      }),
  }
}
