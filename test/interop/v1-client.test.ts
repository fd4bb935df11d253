/** The official package of the first generation as a client of ours: over HTTP with a session, and over stdio. */

import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import {
  LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js'
import { createServer, generateKey, type Server } from 'rondo'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createWorld, scenarios, type World } from '../scenarios/scenario.ts'
import { processFile } from '../support/process-file.ts'
import { connectV1, type V1Client } from '../support/v1-client.ts'

let world: World
let server: Server
let url: URL
let http: V1Client
let session: StreamableHTTPClientTransport

beforeAll(async () => {
  world = createWorld()
  server = createServer({ name: 'scenarios', version: '1.0.0', log: 'off', keys: generateKey() })
  for (const scenario of scenarios) scenario.declare(server, world)
  server.tool('loud', {}, (_args, ctx) => {
    ctx.log('debug', 'a whisper')
    ctx.log('error', 'a shout')
    return 'said'
  })
  server.tool('slow', {}, async (_args, ctx) => {
    for (const step of [1, 2]) ctx.progress(step, 2)
    await ctx.confirm('go', 'Go on?')
    return 'gone on'
  })
  server.tool('visit', {}, async (_args, ctx) => {
    await ctx.visit('page', { message: 'Open it', url: 'https://example.com/' })
    return 'opened'
  })
  url = new URL((await server.listen({ port: 0, signals: false })).url)
  session = new StreamableHTTPClientTransport(url)
  http = await connectV1(session as never)
})

afterAll(async () => {
  await http.close()
  await server.close()
})

describe('over HTTP with a session', () => {
  it('F1 agrees on 2025-11-25 and gets a session', () => {
    expect(session.sessionId).toMatch(/^[\x21-\x7e]{16,}$/)
    expect(session.protocolVersion).toBe('2025-11-25')
    expect(http.client.getServerVersion()).toEqual({ name: 'scenarios', version: '1.0.0' })
  })

  it.each(scenarios)('F1 runs "$name" to the result that every carrier returns', async (scenario) => {
    const before = world.effects.length
    const ended = await http.run(scenario, scenario.script)
    expect(ended).toEqual({ text: scenario.text, isError: scenario.isError ?? false })
    expect(world.effects.slice(before).map(({ name }) => name)).toEqual(scenario.effects)
  })

  it('F1 pushes forms, sampling and roots', () => {
    expect(http.asked).toEqual(expect.arrayContaining(['Name?', 'sampling/createMessage', 'roots/list']))
  })

  it('F1 pushes a URL with its own id', async () => {
    expect(await http.run({ method: 'tools/call', target: 'visit' }, { page: {} })).toMatchObject({
      text: 'opened',
    })
  })

  it('lists everything, and gets log messages from the level that it set', async () => {
    const { tools } = await http.client.listTools()
    expect(tools.map(({ name }) => name)).toContain('loud')
    const heard: unknown[] = []
    http.client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => {
      heard.push(params.data)
    })
    await http.client.setLoggingLevel('error')
    await http.run({ method: 'tools/call', target: 'loud' })
    await http.client.setLoggingLevel('debug')
    await http.run({ method: 'tools/call', target: 'loud' })
    expect(heard).toEqual(['a shout', 'a whisper', 'a shout'])
  })

  it('gets progress once, although the handler ran twice', async () => {
    const progress: number[] = []
    await http.run({ method: 'tools/call', target: 'plain', args: { n: 1 } }, { go: { confirm: true } })
    const result = http.client.callTool({ name: 'slow' }, undefined, {
      onprogress: (told) => progress.push(told.progress),
    })
    expect(await result).toMatchObject({ content: [{ text: 'gone on' }] })
    expect(progress).toEqual([1, 2])
  })

  it('gets notifications about changed lists and resources', async () => {
    const tools = new Promise<void>((resolve) => {
      http.client.setNotificationHandler(ToolListChangedNotificationSchema, () => resolve())
    })
    const updated = new Promise<string>((resolve) => {
      http.client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) =>
        resolve(params.uri),
      )
    })
    await http.client.subscribeResource({ uri: 'notes://today' })
    server.updated('notes://yesterday')
    server.updated('notes://today')
    server.tool('later', {}, () => 'here')
    expect(await updated).toBe('notes://today')
    await tools
  })

  it('ends its session', async () => {
    const transport = new StreamableHTTPClientTransport(url)
    const other = await connectV1(transport as never)
    await transport.terminateSession()
    await expect(other.client.ping()).rejects.toThrow()
    await other.close()
  })

  it('F1 tells a client that cannot be asked which capability it lacks', async () => {
    const other = await connectV1(new StreamableHTTPClientTransport(url) as never, {})
    const ended = await other.run({ method: 'tools/call', target: 'ask' })
    expect(ended.isError).toBe(true)
    expect(ended.text).toContain('elicitation.form')
    await other.close()
  })
})

describe('our server over stdio', () => {
  let stdio: V1Client

  beforeAll(async () => {
    const transport = new StdioClientTransport({
      command: process.execPath,
      args: [processFile('test/support/scenario-stdio.ts')],
      env: { RONDO_KEYS: generateKey() },
      stderr: 'ignore',
    })
    stdio = await connectV1(transport)
  })

  afterAll(() => stdio.close())

  it.each(scenarios)('F1 runs "$name" to the result that every carrier returns', async (scenario) => {
    const ended = await stdio.run(scenario, scenario.script)
    expect(ended).toEqual({ text: scenario.text, isError: scenario.isError ?? false })
  })

  it('F1 pushes forms, sampling and roots', () => {
    expect(stdio.asked).toEqual(expect.arrayContaining(['Name?', 'sampling/createMessage', 'roots/list']))
  })

  it('answers ping, and refuses a method it does not have', async () => {
    expect(await stdio.client.ping()).toEqual({})
    await expect(stdio.client.request({ method: 'no/such' }, z.object({}))).rejects.toMatchObject({
      code: -32601,
    })
  })
})
