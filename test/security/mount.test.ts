/**
 * A mount beside tools that check their own states: no state gets past that check because of its prefix, the name it is
 * sent to, or what was registered under that name before. The weakened check of the control trusts a prefix.
 */

import {
  createMcpHandler,
  createRequestStateCodec,
  InMemoryTransport,
  McpServer,
  ResourceTemplate,
  type ServerContext,
} from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import { generateKey } from 'rondo'
import { createRondo, type LogEvent, type Rondo } from 'rondo/sdk'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { buildByHand } from '../../examples/official-by-hand.ts'
import { createTables } from '../../examples/official-tables.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { send } from '../support/task-client.ts'

const KEY = new Uint8Array(32).fill(7)
const codec = createRequestStateCodec<{ people: number }>({ key: KEY })
const rondo = createRondo({ audience: 'mount', keys: generateKey(), log: 'off' })

type Verify = Rondo['verify']

const trustingPrefixes: Verify = (own) => (state, ctx) => (/^[rh]1\./.test(state) ? {} : own(state, ctx))

type Build = (server: McpServer) => void

function serve(build: Build, verify: Verify = rondo.verify, prepare: Rondo['mount'] = rondo.mount) {
  return createMcpHandler(() => {
    const options = { requestState: { verify: verify(codec.verify) } }
    const server = prepare(new McpServer({ name: 'mixed', version: '1.0.0' }, options))
    build(server)
    return server
  })
}

const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] })
const ourTool = () =>
  rondo.tool(async (_args, ctx) => text(`${await ctx.confirm('sure', 'Sure?')}`), { version: '1' })
const ourPrompt = () =>
  rondo.prompt(async (_args, ctx) => ({
    messages: [
      { role: 'user', content: { type: 'text', text: `${await ctx.confirm('sure', 'Sure?')}` } } as const,
    ],
  }))
const ourResource = () =>
  rondo.resource(async (uri, ctx) => ({
    contents: [{ uri: uri.href, text: `${await ctx.confirm('sure', 'Sure?')}` }],
  }))

const inputResponses = { sure: { action: 'accept', content: { confirm: true } } }

/** States that look like Rondo's by their prefix; the last one really is. */
async function states(): Promise<string[]> {
  const fetch = serve((server) => void server.registerTool('ours', {}, ourTool()))
  const asked = await send(fetch, 'tools/call', { name: 'ours' })
  const sealed = String(asked.result?.requestState)
  expect(sealed).toMatch(/^r1\./)
  return ['r1.', 'h1.', 'r1.e30', 'h1.e30', 'anything', sealed]
}

describe('T25 the hand-written tool of the guide, beside tools of Rondo', () => {
  /** The unchanged callback of the guide's example, on a server that also has a tool of Rondo. */
  function withGuideTool(tables: ReturnType<typeof createTables>): Build {
    const { _registeredTools: tools } = buildByHand(tables, KEY) as unknown as {
      _registeredTools: { book_table: { inputSchema: never; handler: never } }
    }
    const { inputSchema, handler } = tools.book_table
    return (server) => {
      server.registerTool('book_table', { inputSchema }, handler)
      server.registerTool('ours', {}, ourTool())
    }
  }

  async function book(verify?: Verify) {
    const tables = createTables()
    const fetch = serve(withGuideTool(tables), verify)
    const call = { name: 'book_table', arguments: { date: '2026-12-24' } }
    const replies = []
    for (const requestState of await states()) {
      replies.push(await send(fetch, 'tools/call', { ...call, requestState, inputResponses }))
    }
    const party = { party: { action: 'accept', content: { people: 4 } } }
    const asked = await send(fetch, 'tools/call', { ...call, inputResponses: party })
    const booked = tables.booked.size
    const { requestState } = asked.result ?? {}
    await send(fetch, 'tools/call', { ...call, requestState, inputResponses })
    return { replies, booked, honestly: tables.booked.size - booked }
  }

  it('books nothing for a state that its own check refuses', async () => {
    const { replies, booked, honestly } = await book()
    for (const { error } of replies) {
      expect(error).toMatchObject({ code: -32602, data: { reason: 'invalid_request_state' } })
    }
    expect({ booked, honestly }).toEqual({ booked: 0, honestly: 1 })
  })

  it('control: books with a check that trusts prefixes', async () => {
    expect((await book(trustingPrefixes)).booked).toBeGreaterThan(0)
  })
})

/** A callback that acts as soon as it has a state. */
type Trust = (ctx: ServerContext) => void

interface Place {
  readonly name: string
  readonly method: string
  readonly params: Record<string, unknown>
  build(server: McpServer, trust: Trust): void
}

const toolCall = { method: 'tools/call', params: { name: 'mine' } }
const promptGet = { method: 'prompts/get', params: { name: 'mine' } }
const read = { method: 'resources/read', params: { uri: 'mine://day' } }
const template = () => new ResourceTemplate('mine://{day}', { list: undefined })

const byHandTool = (trust: Trust) => async (ctx: ServerContext) => {
  trust(ctx)
  return text('done')
}
const byHandPrompt = (trust: Trust) => async (ctx: ServerContext) => {
  trust(ctx)
  return { messages: [] }
}
const byHandRead = (trust: Trust) => async (uri: URL, ctx: ServerContext) => {
  trust(ctx)
  return { contents: [{ uri: uri.href, text: 'done' }] }
}
const byHandTemplate = (trust: Trust) => async (uri: URL, _variables: unknown, ctx: ServerContext) => {
  trust(ctx)
  return { contents: [{ uri: uri.href, text: 'done' }] }
}

const places: Place[] = [
  {
    name: "a tool under a name that was Rondo's before",
    ...toolCall,
    build(server, trust) {
      server.registerTool('mine', {}, ourTool()).remove()
      server.registerTool('mine', {}, byHandTool(trust))
    },
  },
  {
    name: "a tool whose callback was Rondo's before",
    ...toolCall,
    build: (server, trust) =>
      server.registerTool('mine', {}, ourTool()).update({ callback: byHandTool(trust) as never }),
  },
  {
    name: 'a tool under a name that a tool of Rondo released',
    ...toolCall,
    build(server, trust) {
      server.registerTool('mine', {}, ourTool()).update({ name: 'yours' })
      server.registerTool('mine', {}, byHandTool(trust))
    },
  },
  {
    name: 'a tool that calls a callback of Rondo at its end',
    ...toolCall,
    build(server, trust) {
      const ours = ourTool()
      server.registerTool('mine', {}, async (ctx) => {
        trust(ctx)
        return ours(ctx)
      })
    },
  },
  {
    name: 'a tool called by a handler that is not the official one',
    ...toolCall,
    build(server, trust) {
      server.registerTool('mine', {}, ourTool())
      server.server.setRequestHandler('tools/call', async (_request, ctx) => {
        trust(ctx)
        return text('done')
      })
    },
  },
  {
    name: 'a prompt',
    ...promptGet,
    build: (server, trust) => void server.registerPrompt('mine', {}, byHandPrompt(trust)),
  },
  {
    name: 'a prompt with the name of a tool of Rondo',
    ...promptGet,
    build(server, trust) {
      server.registerTool('mine', {}, ourTool())
      server.registerPrompt('mine', {}, byHandPrompt(trust))
    },
  },
  {
    name: "a prompt whose callback was Rondo's before",
    ...promptGet,
    build: (server, trust) =>
      server.registerPrompt('mine', {}, ourPrompt()).update({ callback: byHandPrompt(trust) as never }),
  },
  {
    name: 'a prompt whose handler was replaced directly',
    ...promptGet,
    build(server, trust) {
      const handler = (_args: unknown, ctx: ServerContext) => byHandPrompt(trust)(ctx)
      Object.assign(server.registerPrompt('mine', {}, ourPrompt()), { handler })
    },
  },
  {
    name: 'a resource',
    ...read,
    build: (server, trust) => void server.registerResource('mine', 'mine://day', {}, byHandRead(trust)),
  },
  {
    name: 'a resource that a template of Rondo also matches',
    ...read,
    build(server, trust) {
      server.registerResource('ours', template(), {}, ourResource())
      server.registerResource('mine', 'mine://day', {}, byHandRead(trust))
    },
  },
  {
    name: "a resource whose callback was Rondo's before",
    ...read,
    build: (server, trust) =>
      server
        .registerResource('mine', 'mine://day', {}, ourResource())
        .update({ callback: byHandRead(trust) as never }),
  },
  {
    name: 'a template',
    ...read,
    build: (server, trust) => void server.registerResource('mine', template(), {}, byHandTemplate(trust)),
  },
  {
    name: 'a template registered before one of Rondo',
    ...read,
    build(server, trust) {
      server.registerResource('mine', template(), {}, byHandTemplate(trust))
      server.registerResource('ours', template(), {}, ourResource())
    },
  },
]

describe.each(places)('T25 $name', ({ method, params, build }) => {
  /** The number of times that the callback ran with a state that it believes was checked. */
  async function attack(verify?: Verify) {
    let trusted = 0
    const trust: Trust = ({ mcpReq }) => {
      if (mcpReq.requestState() !== undefined) trusted += 1
    }
    const fetch = serve((server) => build(server, trust), verify)
    for (const requestState of await states()) {
      const { error } = await send(fetch, method, { ...params, requestState, inputResponses })
      if (!verify) expect(error).toMatchObject({ code: -32602, data: { reason: 'invalid_request_state' } })
    }
    const byState = trusted
    const minted = await codec.mint({ people: 4 }, {} as never)
    await send(fetch, method, { ...params, requestState: minted })
    return { byState, honestly: trusted - byState }
  }

  it('runs only with states that its own check accepts', async () => {
    expect(await attack()).toEqual({ byState: 0, honestly: 1 })
  })

  it('control: runs with other states if the check trusts prefixes', async () => {
    expect((await attack(trustingPrefixes)).byState).toBeGreaterThan(0)
  })
})

describe('T25 a server that was not mounted', () => {
  it('passes every state to its own check', async () => {
    let entered = 0
    const build: Build = (server) => {
      server.registerTool('mine', {}, () => {
        entered += 1
        return text('done')
      })
      server.registerTool('ours', {}, ourTool())
    }
    const fetch = serve(build, rondo.verify, (server) => server)
    for (const requestState of await states()) {
      for (const name of ['mine', 'ours']) {
        const { error } = await send(fetch, 'tools/call', { name, requestState, inputResponses })
        expect(error).toMatchObject({ code: -32602 })
      }
    }
    expect(entered).toBe(0)
    await send(fetch, 'tools/call', { name: 'mine' })
    expect(entered).toBe(1)
  })
})

describe("Rondo's states, on a server that checks its own", () => {
  const day = z.object({ day: z.string().optional() })
  const ours: Place[] = [
    { name: 'a tool', ...toolCall, build: (server) => void server.registerTool('mine', {}, ourTool()) },
    {
      name: 'a tool that took the place of another',
      ...toolCall,
      build(server) {
        const before = server.registerTool(
          'mine',
          {},
          byHandTool(() => {}),
        )
        before.update({ callback: ourTool() as never })
      },
    },
    {
      name: 'a tool that was renamed and has another schema',
      ...toolCall,
      build: (server) =>
        server.registerTool('other', {}, ourTool()).update({ name: 'mine', paramsSchema: day as never }),
    },
    {
      name: 'a prompt',
      ...promptGet,
      build: (server) => void server.registerPrompt('mine', {}, ourPrompt()),
    },
    {
      name: 'a resource',
      ...read,
      build: (server) => void server.registerResource('mine', 'mine://day', {}, ourResource()),
    },
    {
      name: 'a template',
      ...read,
      build: (server) => void server.registerResource('mine', template(), {}, ourResource()),
    },
  ]

  it.each(ours)("$name opens its own states, and none of the server's", async ({ method, params, build }) => {
    const fetch = serve((server) => build(server, () => {}))
    const first = await send(fetch, method, params)
    expect(first.result).toMatchObject({ resultType: 'input_required' })
    const { requestState } = first.result ?? {}
    const second = await send(fetch, method, { ...params, requestState, inputResponses })
    expect(JSON.stringify(second.result)).toContain('"text":"true"')
    const minted = await codec.mint({ people: 4 }, {} as never)
    for (const foreign of [minted, 'r1.', 'anything']) {
      const refused = await send(fetch, method, { ...params, requestState: foreign, inputResponses })
      expect(refused.error).toMatchObject({ code: -32602, data: { reason: 'invalid_request_state' } })
    }
  })
})

describe('T1 a principal without a subject', () => {
  const nobodies = [{ subject: '' }, { subject: undefined }, { subject: 5 }, {}, [], 'alice']

  /** The caller as handlers see it, in a call that ends at once and in one that asks. */
  async function seenBy(principal: unknown) {
    const seen: unknown[] = []
    const events: LogEvent[] = []
    const log = (event: LogEvent) => void events.push(event)
    const named = createRondo({
      audience: 'mount',
      keys: generateKey(),
      log,
      principal: () => principal as never,
    })
    const fetch = serve(
      (server) => {
        const look = named.tool((_args, ctx) => {
          seen.push(ctx.principal)
          return text('done')
        })
        server.registerTool('look', {}, look)
      },
      rondo.verify,
      named.mount,
    )
    const { error } = await send(fetch, 'tools/call', { name: 'look' })
    return { seen, code: error?.code, logged: events.filter(({ event }) => event === 'warning').length }
  }

  it.each(nobodies)('is refused before a handler runs: %j', async (principal) => {
    expect(await seenBy(principal)).toEqual({ seen: [], code: -32603, logged: 1 })
  })

  it('control: a principal with a subject reaches the handler, and so does an unauthenticated call', async () => {
    const alice = { subject: 'alice' }
    expect(await seenBy(alice)).toEqual({ seen: [alice], code: undefined, logged: 0 })
    expect(await seenBy(undefined)).toEqual({ seen: [undefined], code: undefined, logged: 0 })
  })
})

describe('T6 an older connection', () => {
  const claims = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': {
      elicitation: { form: {} },
      extensions: { 'io.modelcontextprotocol/tasks': {} },
    },
  }

  /** Calls a tool that may be a task, on a connection that began at `version` with no capabilities at all. */
  async function call(version: string) {
    const tasks = createRondo({ audience: 'm', keys: generateKey(), log: 'off', store: createMemoryStore() })
    const ask = tasks.tool(async (_args, ctx) => text(`${await ctx.confirm('sure', 'Sure?')}`), {
      task: 'auto',
    })
    const [near, far] = InMemoryTransport.createLinkedPair()
    const served = serveStdio(
      () => {
        const server = tasks.tasks(new McpServer({ name: 'older', version: '1.0.0' }))
        server.registerTool('ask', {}, ask)
        return server
      },
      { transport: far },
    )
    const answered = new Promise<unknown>((resolve) => {
      near.onmessage = (message) => {
        const { id } = message as { id?: number }
        if (id === 2) resolve(message)
      }
    })
    await near.start()
    const clientInfo = { name: 'claims', version: '1.0.0' }
    const params = { protocolVersion: version, capabilities: {}, clientInfo }
    if (version < '2026') await near.send({ jsonrpc: '2.0', id: 1, method: 'initialize', params })
    const called = { name: 'ask', arguments: {}, _meta: claims }
    await near.send({ jsonrpc: '2.0', id: 2, method: 'tools/call', params: called })
    const reply = await answered
    await served.close()
    await tasks.close()
    return reply
  }

  it('gains nothing from claims that only a 2026-07-28 request can make', async () => {
    expect(await call('2025-11-25')).toMatchObject({
      result: { isError: true, content: [{ text: expect.stringContaining('cannot be asked') }] },
    })
  })

  it('control: a 2026-07-28 request with the same claims does', async () => {
    expect(await call('2026-07-28')).toMatchObject({ result: { resultType: 'task' } })
  })
})
