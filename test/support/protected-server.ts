/** A server whose tools, prompts, resources and tasks need scopes, and requests to it with a token. */

import { createServer, type Server, type ServerOptions } from 'rondo'
import { z } from 'zod'
import { generateKey } from '../../packages/rondo/src/seal/key-ring.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { readLast } from './task-client.ts'

export interface ProtectedServer {
  readonly server: Server
  /** The handlers that ran, in order. */
  readonly ran: string[]
}

export function createProtectedServer(options: Partial<ServerOptions> = {}): ProtectedServer {
  const ran: string[] = []
  const server = createServer({
    name: 'protected',
    version: '1.0.0',
    keys: generateKey('protected'),
    log: 'off',
    store: createMemoryStore(),
    ...options,
  })
  server.tool('whoami', {}, (_args, { principal }) => {
    ran.push('whoami')
    const { issuer, subject, client, scopes } = principal ?? {}
    return { issuer, subject, client, scopes }
  })
  server.tool(
    'refund',
    { scopes: ['tickets:write', 'tickets:refund'], input: z.object({ amount: z.number() }) },
    async ({ amount }, ctx) => {
      ran.push('refund')
      const yes = await ctx.confirm('sure', `Refund ${amount}?`)
      return yes ? `refunded ${amount}` : 'kept'
    },
  )
  server.tool(
    'move',
    {
      input: z.object({ amount: z.coerce.number() }),
      scopes: ({ amount }) => (amount > 100 ? ['tickets:refund'] : []),
    },
    ({ amount }) => {
      ran.push('move')
      return `moved ${amount}`
    },
  )
  server.tool('report', { scopes: ['tickets:write'], task: 'always' }, async (_args, ctx) => {
    ran.push('report')
    const { month } = await ctx.ask('month', { message: 'Which?', schema: z.object({ month: z.string() }) })
    return `report of ${month}`
  })
  const completes = async (): Promise<string[]> => {
    ran.push('complete')
    return ['secret']
  }
  const letter = { scopes: ['tickets:write'], input: z.object({ to: z.string().optional() }) }
  server.prompt('letter', { ...letter, complete: { to: completes } }, () => {
    ran.push('letter')
    return 'Dear customer'
  })
  const note = z.object({ team: z.string(), topic: z.string() })
  server.prompt(
    'note',
    {
      input: note,
      scopes: async ({ team }) => [`team:${team}`],
      complete: { team: completes, topic: completes },
    },
    () => {
      ran.push('note')
      return 'Dear team'
    },
  )
  server.resource('tickets://all', { name: 'all', scopes: ['tickets:write'] }, () => {
    ran.push('tickets')
    return '[]'
  })
  server.template(
    'archive://{year}',
    { name: 'archive', scopes: ['tickets:write'], complete: { year: completes } },
    ({ year }) => year,
  )
  server.template(
    'tickets://{team}/open',
    {
      name: 'open',
      scopes: ({ team }) => [`team:${team}`],
      complete: { team: completes },
    },
    ({ team }) => {
      ran.push('open')
      return team
    },
  )
  return { server, ran }
}

export interface Answered {
  readonly status: number
  /** `WWW-Authenticate`. */
  readonly challenge: string | undefined
  readonly result?: Record<string, unknown> & { readonly requestState?: string }
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown }
  readonly headers: Headers
}

const CAPABILITIES = {
  elicitation: { form: {}, url: {} },
  extensions: { 'io.modelcontextprotocol/tasks': {} },
}

let lastId = 0

/** One request of 2026-07-28. */
export async function request(
  server: Pick<Server, 'fetch'> | string,
  token: string | undefined,
  method: string,
  params: Record<string, unknown> = {},
  headers: Record<string, string> = {},
): Promise<Answered> {
  lastId += 1
  const url = typeof server === 'string' ? server : 'http://127.0.0.1/mcp'
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': CAPABILITIES,
  }
  const sent = new Request(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': method,
      ...(named(params) !== undefined && { 'mcp-name': named(params) as string }),
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...headers,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: lastId, method, params: { ...params, _meta } }),
  })
  const response = typeof server === 'string' ? await fetch(sent) : await server.fetch(sent)
  const body = await readMessage(response)
  return {
    status: response.status,
    challenge: response.headers.get('www-authenticate') ?? undefined,
    headers: response.headers,
    ...body,
  }
}

function named({ name, uri, taskId }: Record<string, unknown>): string | undefined {
  const value = name ?? uri ?? taskId
  return value === undefined ? undefined : String(value)
}

/** The response. Of a subscription, the acknowledgement, and the stream is closed. */
async function readMessage(response: Response): Promise<Pick<Answered, 'result' | 'error'>> {
  if (response.headers.get('content-type') !== 'text/event-stream') return readLast(await response.text())
  const reader = response.body?.getReader()
  const chunk = await reader?.read()
  const text = new TextDecoder().decode(chunk?.value)
  if (text.includes('"result"') || text.includes('acknowledged')) {
    await reader?.cancel()
    return readLast(text)
  }
  let rest = text
  for (let next = await reader?.read(); next?.done === false; next = await reader?.read())
    rest += new TextDecoder().decode(next.value)
  return readLast(rest)
}

export const call = (name: string, args: object = {}, more: object = {}): Record<string, unknown> => ({
  name,
  arguments: args,
  ...more,
})

/** The parameters of a challenge. */
export function readChallenge(challenge: string | undefined): Record<string, string> {
  const pairs = [...(challenge ?? '').matchAll(/(\w+)="([^"]*)"/g)]
  return Object.fromEntries(pairs.map(([, name, value]) => [name, value]))
}
