/**
 * The doctor on other people's servers. Correct ones are a list, which grows and in which nobody is accused of what is not
 * so; broken ones always get a report. Needs the build.
 */

import { createHmac, timingSafeEqual } from 'node:crypto'
import { resolve } from 'node:path'
import { serve } from '@hono/node-server'
import {
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  localhostAllowedOrigins,
  McpServer,
  originValidationResponse,
  type ServerContext,
} from '@modelcontextprotocol/server'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { z } from 'zod'
import { generateKey } from '../../packages/rondo/src/index.ts'
import { createDeskServer } from '../support/desk-server.ts'
import { createOfficialServer } from '../support/official-server.ts'
import { type CliHome, createCliHome } from '../support/run-cli.ts'
import { asking, DISCOVERY, formQuestion, respond, type Seen, said } from '../support/scripted-server.ts'
import { serveTasks } from '../support/task-desk.ts'
import { createV1Server, serveV1 } from '../support/v1-server.ts'

// Many processes, on a machine that may have much to do.
vi.setConfig({ testTimeout: 300_000 })

let home: CliHome
const closing: (() => unknown)[] = []

beforeAll(() => {
  home = createCliHome()
})
afterAll(async () => {
  for (const close of closing) await close()
  home.remove()
})

type Fetch = (request: Request) => Response | Promise<Response>

async function listen(fetch: Fetch): Promise<string> {
  const port = await new Promise<number>((done) => {
    const http = serve({ fetch, port: 0, hostname: '127.0.0.1' }, (info) => done(info.port))
    closing.push(() => http.close())
  })
  return `http://127.0.0.1:${port}/mcp`
}

interface Found {
  readonly id: string
  readonly verdict: string
  readonly detail: string
  readonly advice?: string
}

async function examine(...words: string[]) {
  const { code, stdout } = await home.run(['doctor', '--json', ...words])
  const { findings: found } = JSON.parse(stdout) as { findings: Found[] }
  const faults = found.filter(({ verdict }) => verdict === 'warn' || verdict === 'fail')
  return {
    code,
    found,
    faults: faults.map(({ id, verdict }) => `${verdict} ${id}`),
    of: (id: string) => found.find((one) => one.id === id),
  }
}

const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] })
const sure = inputRequired.elicit({
  message: 'Sure?',
  requestedSchema: { type: 'object', properties: { sure: { type: 'boolean' } }, required: ['sure'] },
})

/** An official server behind the origin check that its package has. */
function official(make: () => McpServer): Fetch {
  const handler = createMcpHandler(make)
  return async (request) =>
    originValidationResponse(request, localhostAllowedOrigins()) ?? (await handler.fetch(request))
}

/** Signed by the official codec; the tool takes no arguments, so that there is nothing else to bind. */
function withCodec(): McpServer {
  const codec = createRequestStateCodec<{ stage: string }>({ key: 'k'.repeat(32) })
  const server = new McpServer(
    { name: 'codec', version: '1.0.0' },
    { requestState: { verify: codec.verify } },
  )
  server.registerTool('ask', { inputSchema: z.object({}) }, async (_args, ctx) => {
    if (ctx.mcpReq.requestState() !== undefined) return text('done')
    return inputRequired({ inputRequests: { sure }, requestState: await codec.mint({ stage: 'asked' }, ctx) })
  })
  return server
}

/** As the reference server of the official suite keeps its state: a JSON envelope with a signature beside the content. */
function withEnvelope(later = false): McpServer {
  const sign = (content: string): Buffer => createHmac('sha256', 'secret').update(content).digest()
  const verify = (state: string): string => {
    const { content = '', signature = '' } = JSON.parse(state) as Record<string, string>
    const [given, expected] = [Buffer.from(signature, 'hex'), sign(content)]
    if (given.length === expected.length && timingSafeEqual(given, expected)) return content
    throw new Error('The state was changed')
  }
  const server = new McpServer({ name: 'reference', version: '1.0.0' }, { requestState: { verify } })
  const handle = async (ctx: ServerContext) => {
    if (ctx.mcpReq.requestState() !== undefined) return text('done')
    if (later && ctx.mcpReq.inputResponses?.size === undefined)
      return inputRequired({ inputRequests: { size } })
    const content = JSON.stringify({ stage: 'asked', until: Date.now() + 60_000 })
    const requestState = JSON.stringify({ content, signature: sign(content).toString('hex') })
    return inputRequired({ inputRequests: { sure }, requestState })
  }
  server.registerTool('ask', { inputSchema: z.object({}) }, async (_args, ctx) => handle(ctx))
  return server
}

const size = inputRequired.elicit({
  message: 'Which size, and how many?',
  requestedSchema: {
    type: 'object',
    properties: {
      size: { type: 'string', enum: ['s', 'l'] },
      count: { type: 'integer', minimum: 3 },
      mail: { type: 'string', format: 'email' },
    },
    required: ['size', 'count', 'mail'],
  },
})

/** An endpoint that serves sessions of older revisions beside 2026-07-28, to which GET belongs. */
function besideSessions(): Fetch {
  const modern = official(withCodec)
  return async (request) => {
    if (request.method === 'GET') return new Response('no session', { status: 400 })
    if (request.method === 'DELETE') return new Response()
    const body = (await request.clone().json()) as Seen
    if (body.method !== 'initialize') return modern(request)
    const result = {
      protocolVersion: '2025-11-25',
      capabilities: {},
      serverInfo: { name: 's', version: '1' },
    }
    const response = respond(body.id, result)
    response.headers.set('Mcp-Session-Id', 'abc')
    return response
  }
}

const command = (script: string): string[] => [
  ...['--', process.execPath, '--import', resolve('node_modules/tsx/dist/loader.mjs')],
  resolve(script),
]
const ASK = ['--tool', 'ask']
/** An official codec and a plain envelope really allow this: to be read, and to be spelt in another way. */
const OPEN = ['warn state-readable', 'warn state-spelling']

const CORRECT: Record<string, { words: () => Promise<string[]> | string[]; faults: string[] }> = {
  'an official server without questions': {
    words: async () => [await listen(official(() => new McpServer({ name: 'empty', version: '1.0.0' })))],
    faults: [],
  },
  'an official server with tools, prompts and resources': {
    words: async () => [await listen(official(createOfficialServer))],
    faults: [],
  },
  'an official server over stdio': {
    words: () => command('test/support/official-stdio.ts'),
    // So it is: it looks at the version of the first request alone.
    faults: ['warn unknown-version'],
  },
  'an official server with the official codec': {
    words: async () => [await listen(official(withCodec)), ...ASK],
    faults: OPEN,
  },
  'a state in a signed JSON envelope': {
    words: async () => [await listen(official(() => withEnvelope())), ...ASK],
    faults: [...OPEN, 'warn state-expiry'],
  },
  'a state in a signed JSON envelope, in the second round': {
    words: async () => [await listen(official(() => withEnvelope(true))), ...ASK],
    faults: [...OPEN, 'warn state-expiry'],
  },
  'an official server beside sessions': {
    words: async () => [await listen(besideSessions()), ...ASK],
    faults: OPEN,
  },
  'a server of the first generation': {
    words: async () => {
      const v1 = await serveV1(createV1Server)
      closing.push(() => v1.close())
      // Its transport leaves Origin to whoever stands before it.
      const guarded: Fetch = async (request) => {
        if (request.headers.has('origin')) return new Response(null, { status: 403 })
        const { method, headers } = request
        const body = method === 'POST' ? await request.text() : undefined
        return globalThis.fetch(v1.url, { method, headers, body })
      }
      return [await listen(guarded)]
    },
    faults: ['warn era'],
  },
  'a server of the first generation over stdio': {
    words: () => command('test/support/v1-stdio.ts'),
    faults: ['warn era'],
  },
  'our own': {
    words: async () => {
      const server = createDeskServer(generateKey())
      closing.push(() => server.close())
      const { url } = await server.listen({ port: 0, signals: false })
      return [url, 'what=x', '--tool', 'delete', '--other-tool', 'delete', '--other-tool-arg', 'what=y']
    },
    faults: [],
  },
  'our own with tasks': {
    words: async () => {
      const desk = await serveTasks()
      closing.push(() => desk.close())
      return [desk.url, '--tool', 'hang']
    },
    faults: [],
  },
}

describe('a correct server', () => {
  it.each(Object.keys(CORRECT))('gets no false findings: %s', async (name) => {
    const { words, faults } = CORRECT[name] ?? { words: () => [], faults: [] }
    const seen = await examine(...(await words()))
    expect(seen.found.filter(({ verdict }) => verdict === 'fail')).toEqual([])
    expect(seen.faults).toEqual(faults)
    expect(seen.found.length).toBeGreaterThan(4)
  })
})

/** Answers everything, whoever asks. */
function careless(answer: (seen: Seen) => object, capabilities: object = { tools: {} }): Fetch {
  return async (request) => {
    if (request.method !== 'POST') return new Response(null, { status: 405 })
    const seen = (await request.json()) as Seen
    const reply = seen.method === 'server/discover' ? { ...DISCOVERY, capabilities } : answer(seen)
    if (!('error' in reply)) return respond(seen.id, reply as never)
    return Response.json({ jsonrpc: '2.0', id: seen.id, ...reply }, { status: 404 })
  }
}

const question = { sure: formQuestion('Sure?', 'value') }
const tools = {
  resultType: 'complete',
  tools: [{ name: 'ask', inputSchema: { type: 'object' } }],
  ttlMs: 0,
  cacheScope: 'private',
}

describe('a broken server', () => {
  it('A6 that asks on tools/list is reported for it', async () => {
    const url = await listen(careless(() => asking(question, 'state')))
    const { code, of } = await examine(url)
    expect(of('tools')).toMatchObject({ verdict: 'fail', detail: expect.stringContaining('asks for input') })
    expect(code).toBe(1)
    const named = await examine(url, '--tool', 'ask')
    expect(named.of('state-tampered')).toMatchObject({ verdict: 'fail' })
  })

  it('A4 whose questions have no resultType is told what to add', async () => {
    const { resultType: _, ...untyped } = asking(question, 'state')
    const url = await listen(careless(({ method }) => (method === 'tools/list' ? tools : untyped)))
    const { of, code } = await examine(url, '--tool', 'ask')
    expect(of('call-result')).toMatchObject({
      verdict: 'fail',
      detail: expect.stringContaining('no resultType but asks'),
      advice: expect.stringContaining('"input_required" if it asks'),
    })
    expect(of('state')).toMatchObject({ verdict: 'fail' })
    expect(code).toBe(1)
  })

  it('that returns nonsense everywhere still gets a report', async () => {
    const { found, code } = await examine(await listen(careless(() => ({ resultType: 7 }))), '--tool', 'ask')
    expect(found.map(({ id }) => id)).toEqual(
      expect.arrayContaining(['era', 'foreign-origin', 'tools', 'state']),
    )
    expect(code).toBe(1)
  })

  it('that refuses everybody gets a report with its challenge', async () => {
    const headers = { 'WWW-Authenticate': 'Bearer realm="vault"' }
    const url = await listen(() => Response.json({ error: 'invalid_token' }, { status: 401, headers }))
    const { of, code } = await examine(url)
    expect(of('era')).toMatchObject({ verdict: 'fail', detail: expect.stringMatching(/401 \(Bearer.*vault/) })
    expect(code).toBe(1)
    const { stderr } = await home.run(['tools', url])
    expect(stderr).toMatch(/HTTP status 401\) \[PEER_HTTP\]\nrondo: .*--bearer.*rondo login http/)
  })

  it('that any page can reach is reported, even without tools', async () => {
    const missing = { error: { code: -32601, message: 'no' } }
    const { of } = await examine(await listen(careless(() => missing, {})))
    expect(of('foreign-origin')).toMatchObject({ verdict: 'fail' })
  })

  it('that refuses everything does not pass the check of foreign origins', async () => {
    const { of } = await examine(
      await listen(async (request) => {
        if (request.method !== 'POST') return new Response(null, { status: 405 })
        const { id, method } = (await request.json()) as Seen
        if (method === 'initialize') {
          return respond(id, {
            protocolVersion: '2025-11-25',
            capabilities: {},
            serverInfo: { name: 'a', version: '1' },
          })
        }
        return respond(id, { error: { code: -32601, message: 'no' } })
      }),
      ...['--revision', '2025-11-25'],
    )
    expect(of('foreign-origin')).toMatchObject({ verdict: 'skip' })
  })

  it('B3 whose unprotected state comes in the second round is reported', async () => {
    const answer = ({ method, params }: Seen) => {
      if (method === 'tools/list') return tools
      if (params.requestState !== undefined) return said('done')
      return params.inputResponses === undefined ? asking(question) : asking(question, '{"stage":"asked"}')
    }
    const { of } = await examine(await listen(careless(answer)), '--tool', 'ask')
    expect(of('state')).toMatchObject({ verdict: 'pass', detail: 'first appears in round 2' })
    expect(of('state-tampered')).toMatchObject({ verdict: 'fail' })
  })

  it('B7 whose state works for another tool with arguments is reported', async () => {
    const required = { type: 'object', properties: { id: { type: 'integer' } }, required: ['id'] }
    const list = { ...tools, tools: [...tools.tools, { name: 'close', inputSchema: required }] }
    const answer = ({ method, params }: Seen) => {
      if (method === 'tools/list') return list
      if (params.name === 'close' && typeof (params.arguments as { id?: unknown }).id !== 'number') {
        return { error: { code: -32602, message: 'id is missing' } }
      }
      return params.requestState === undefined ? asking(question, 'opaque') : said('done')
    }
    const url = await listen(careless(answer))
    const { of } = await examine(url, ...ASK, '--other-tool', 'close', '--other-tool-arg', 'id=7')
    expect(of('state-tool')).toMatchObject({ verdict: 'fail' })
    const bare = await home.run(['doctor', url, ...ASK, '--other-tool', 'close'])
    expect(bare).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('Missing required arguments: id=…'),
    })
  })

  it('whose tasks can be guessed and read by anybody is reported', async () => {
    const desk = await serveTasks()
    closing.push(() => desk.close())
    const shared = await examine(desk.url, '--tool', 'hang', '--other-header', 'X-User: eve')
    expect(shared.of('task-user')).toMatchObject({ verdict: 'fail' })
    expect(shared.of('task-cancel')).toMatchObject({
      verdict: 'pass',
      detail: expect.stringContaining('cancelled'),
    })
    const now = new Date(0).toISOString()
    const head = { taskId: '7', status: 'working', createdAt: now, lastUpdatedAt: now, ttlMs: 1000 }
    const answer = ({ method, params }: Seen) => {
      if (method === 'tools/list') return tools
      if (method === 'tools/call') return { resultType: 'task', ...head }
      return params.taskId === '7'
        ? { resultType: 'complete', ...head }
        : { error: { code: -32602, message: 'there is no such task' } }
    }
    const extensions = { 'io.modelcontextprotocol/tasks': {} }
    const { of } = await examine(await listen(careless(answer, { tools: {}, extensions })), ...ASK)
    expect(of('task-id')).toMatchObject({ verdict: 'warn' })
  })
})
