import { PassThrough } from 'node:stream'
import { createServer, generateKey, type Server, type ServerOptions } from 'rondo'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'

type Message = Record<string, unknown> & { id?: unknown; method?: string }

function start(options: Partial<ServerOptions> = {}) {
  const server: Server = createServer({
    name: 'stdio',
    version: '1.0.0',
    keys: generateKey(),
    log: 'off',
    ...options,
  })
  server.tool('ask', {}, async (_args, ctx) => {
    const schema = z.object({ name: z.string() })
    return `Hello ${(await ctx.ask('name', { message: 'Name?', schema })).name}`
  })
  const input = new PassThrough()
  const output = new PassThrough()
  const done = server.stdio({ input, output, signals: false, graceMs: 5_000 })
  const lines: Message[] = []
  const waiting: ((line: Message) => void)[] = []
  let rest = ''
  output.on('data', (chunk: Buffer) => {
    const parts = (rest + chunk.toString()).split('\n')
    rest = parts.pop() ?? ''
    for (const part of parts) {
      const line = JSON.parse(part)
      const waiter = waiting.shift()
      if (waiter) waiter(line)
      else lines.push(line)
    }
  })
  return {
    server,
    done,
    input,
    send: (message: unknown) => void input.write(`${JSON.stringify(message)}\n`),
    next: (): Promise<Message> => {
      const line = lines.shift()
      return line ? Promise.resolve(line) : new Promise((resolve) => waiting.push(resolve))
    },
  }
}

const initialize = (version: string, capabilities: object = { elicitation: {} }) => ({
  jsonrpc: '2.0',
  id: 0,
  method: 'initialize',
  params: { protocolVersion: version, capabilities, clientInfo: { name: 'c', version: '1' } },
})
const call = (id: number, params: object = {}) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name: 'ask', ...params },
})
const answer = (id: unknown, name = 'Ada') => ({
  jsonrpc: '2.0',
  id,
  result: { action: 'accept', content: { name } },
})

describe('an older client over stdio', () => {
  it('F1 is asked in the middle of its call over stdio', async () => {
    const { send, next } = start()
    send(initialize('2025-06-18'))
    expect(await next()).toMatchObject({ id: 0, result: { protocolVersion: '2025-06-18' } })
    send({ jsonrpc: '2.0', method: 'notifications/initialized' })
    send(call(1))
    const question = await next()
    expect(question).toMatchObject({ method: 'elicitation/create', params: { message: 'Name?' } })
    send(answer(question.id))
    expect(await next()).toMatchObject({ id: 1, result: { content: [{ text: 'Hello Ada' }] } })
  })

  it('F1 can have several waiting calls, and each gets its own answer', async () => {
    const { send, next } = start()
    send(initialize('2025-11-25'))
    await next()
    for (const id of [1, 2, 3]) send(call(id))
    const questions = [await next(), await next(), await next()]
    for (const [i, question] of questions.reverse().entries()) send(answer(question.id, `name ${i}`))
    const results = [await next(), await next(), await next()]
    const texts = Object.fromEntries(
      results.map(({ id, result }) => [id, (result as { content: { text: string }[] }).content[0]?.text]),
    )
    expect(texts).toEqual({ 1: 'Hello name 2', 2: 'Hello name 1', 3: 'Hello name 0' })
  })

  it('receives change notifications, and can cancel a call', async () => {
    const { server, send, next } = start()
    send(initialize('2025-11-25'))
    await next()
    server.tool('new', {}, () => '')
    expect(await next()).toMatchObject({ method: 'notifications/tools/list_changed' })
    send(call(1))
    const { id } = await next()
    send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } })
    expect(await next()).toMatchObject({ method: 'notifications/cancelled', params: { requestId: id } })
    send({ jsonrpc: '2.0', id: 2, method: 'ping' })
    expect(await next()).toEqual({ jsonrpc: '2.0', id: 2, result: {} })
  })

  it('gets batched responses if its version has batches', async () => {
    const { send, next } = start()
    const pings = [1, 2].map((id) => ({ jsonrpc: '2.0', id, method: 'ping' }))
    send(initialize('2024-11-05'))
    await next()
    send(pings)
    expect(await next()).toEqual([
      { jsonrpc: '2.0', id: 1, result: {} },
      { jsonrpc: '2.0', id: 2, result: {} },
    ])
    send(initialize('2025-11-25'))
    await next()
    send(pings)
    expect(await next()).toMatchObject({ id: null, error: { code: -32600 } })
  })

  it('F1 can also send requests of 2026-07-28 to the same process, before and after initialize', async () => {
    const { send, next } = start()
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': { elicitation: {} },
    }
    send({ jsonrpc: '2.0', id: 'probe', method: 'server/discover', params: { _meta } })
    expect(await next()).toMatchObject({ id: 'probe', result: { supportedVersions: ['2026-07-28'] } })
    send({ jsonrpc: '2.0', id: 1, method: 'tools/list' })
    expect(await next()).toMatchObject({ id: 1, error: { code: -32602 } })
    send(initialize('2025-11-25'))
    await next()
    send({ jsonrpc: '2.0', id: 1, method: 'tools/list' })
    expect(await next()).toMatchObject({ id: 1, result: { tools: [{ name: 'ask' }] } })
    send(call(2, { _meta }))
    expect(await next()).toMatchObject({ id: 2, result: { resultType: 'input_required' } })
  })

  it('is asked in rounds if it uses the draft, agreed in initialize or claimed per message', async () => {
    const { send, next } = start()
    const claimed = {
      'io.modelcontextprotocol/protocolVersion': 'DRAFT-2026-v1',
      'io.modelcontextprotocol/clientCapabilities': { elicitation: {} },
    }
    send(call(1, { _meta: claimed }))
    expect(await next()).toMatchObject({ id: 1, result: { resultType: 'input_required' } })
    send(initialize('DRAFT-2026-v1'))
    await next()
    send(call(2))
    expect(await next()).toMatchObject({ id: 2, result: { resultType: 'input_required' } })
  })

  it('is refused if the server does not accept its era', async () => {
    const { send, next } = start({ eras: ['2026-07-28'] })
    send(initialize('2025-11-25'))
    expect(await next()).toMatchObject({ id: 0, error: { code: -32022 } })
  })

  it('B11 leaves nothing behind: a waiting call ends when stdin ends', async () => {
    const { send, next, input, done } = start()
    send(initialize('2025-11-25'))
    await next()
    send(call(1))
    await next()
    input.end()
    await done
  })

  it('gets an error for a broken message, with the id of the message if it has one', async () => {
    const { send, next } = start()
    send({ jsonrpc: '2.0', id: 5, method: 'initialize', params: {} })
    expect(await next()).toMatchObject({ id: 5, error: { code: -32602 } })
    send(initialize('2025-11-25'))
    await next()
    send({ jsonrpc: '2.0', id: {}, method: 'ping' })
    expect(await next()).toMatchObject({ id: null, error: { code: -32600 } })
  })
})
