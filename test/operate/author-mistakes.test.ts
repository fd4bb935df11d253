/** Messages that an author reads after a mistake: the tool, the place and the way out. */

import { createServer, type LogEvent, type Server, type ServerOptions } from 'rondo'
import { type BenchOptions, createBench } from 'rondo/testing'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { send, settled } from '../support/task-client.ts'

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

const question = { message: 'Go on?', schema: z.object({ value: z.string() }) }
const messagesOf = (events: readonly LogEvent[], kind: LogEvent['event']): string[] =>
  events
    .filter(({ event }) => event === kind)
    .map((event) => String('message' in event ? event.message : 'error' in event ? event.error : ''))

describe('a state that is too large', () => {
  const large = (options: BenchOptions): Server => {
    const server = createServer({ name: 'large', version: '1', ...options })
    server.tool('read', {}, async (_args, ctx) => {
      await ctx.step('small', () => 'x')
      const text = await ctx.step('document', () => 'x'.repeat(100_000))
      await ctx.ask('go', question)
      return text.length.toString()
    })
    return server
  }

  it('R9 is an error in the log that names the tool, the step, the sizes and the way out', async () => {
    const bench = createBench(large, { store: false })
    expect(await bench.tool('read').next()).toMatchObject({ kind: 'error' })
    const faults = bench.events.filter(({ event }) => event === 'fault')
    expect(faults).toMatchObject([{ level: 'error', target: 'read' }])
    const [message = ''] = messagesOf(bench.events, 'fault')
    expect(message).toMatch(
      /LIMIT_STATE_BYTES.*"read" would have \d{6} bytes; at most 65536 .*limits\.maxBytes/,
    )
    expect(message).toMatch(/the step "document" is the largest, with 1000\d\d bytes/)
    expect(message).toContain('createServer({ store })')
  })

  it('R9 names the step whose result a task cannot record', async () => {
    const events: LogEvent[] = []
    const server = createServer({
      name: 'large',
      version: '1',
      keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
      log: (event) => void events.push(event),
      store: createMemoryStore(),
      tasks: { maxPieceBytes: 10_000 },
    })
    closing.push(() => server.close())
    server.tool('read', { task: 'auto' }, (_args, ctx) => ctx.step('document', () => 'x'.repeat(100_000)))
    const { result } = await send(server, 'tools/call', { name: 'read', arguments: {} })
    expect(await settled(server, String(result?.taskId))).toMatchObject({ status: 'failed' })
    const [message = ''] = messagesOf(events, 'fault')
    expect(message).toMatch(
      /The step "document" cannot be recorded: .* \d{6} bytes; at most 10000 .*maxPieceBytes/,
    )
  })
})

describe('a tool that wants a task on a server without a store', () => {
  const warnings = async (options: Partial<ServerOptions>): Promise<string[]> => {
    const events: LogEvent[] = []
    const server = createServer({
      name: 'tasks',
      version: '1',
      keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
      log: (event) => void events.push(event),
      ...options,
    })
    closing.push(() => server.close())
    server.tool('auto', { task: 'auto' }, () => 'done')
    server.tool('late', {}, async (_args, ctx) => {
      await ctx.background()
      return 'done'
    })
    for (const name of ['auto', 'auto', 'late', 'late'])
      await send(server, 'tools/call', { name, arguments: {} })
    return messagesOf(events, 'warning').filter((message) => message.includes('has no store'))
  }

  it('is named once in development, with what to pass', async () => {
    const found = await warnings({ dev: true })
    expect(found).toEqual([
      expect.stringMatching(
        /^"auto" is declared with task: 'auto', but this server has no store.*createServer\(\{ store \}\)/,
      ),
      expect.stringMatching(/^"late" calls ctx\.background\(\), but this server has no store/),
    ])
  })

  it('is not named in production, and not where there is a store', async () => {
    expect(await warnings({ dev: false })).toEqual([])
    expect(await warnings({ dev: true, store: createMemoryStore() })).toEqual([])
  })
})

describe('a raw zod shape', () => {
  const server = createServer({ name: 'raw', version: '1' })
  const shape = { id: z.int() } as never

  it.each<[string, () => void]>([
    ['The input schema of tool "find"', () => server.tool('find', { input: shape }, () => 'x')],
    ['The output schema of tool "find"', () => server.tool('find', { output: shape }, (() => 'x') as never)],
    ['The input schema of prompt "find"', () => server.prompt('find', { input: shape }, () => 'x')],
  ])('is refused with the name and with z.object: %s', (what, declare) => {
    expect(declare).toThrow(
      `${what} is an object with a schema in "id", and no schema itself. Pass z.object({ id: … }).`,
    )
  })
})

describe('a missing handler', () => {
  const server = createServer({ name: 'bare', version: '1' })
  const none = undefined as never

  it.each<[string, () => void]>([
    ['Tool "find"', () => server.tool('find', {}, none)],
    ['Prompt "find"', () => server.prompt('find', {}, none)],
    ['Resource "a://b"', () => server.resource('a://b', { name: 'b' }, none)],
    ['Template "a://{b}"', () => server.template('a://{b}', { name: 'b' }, none)],
  ])('is refused where it is declared: %s', (what, declare) => {
    expect(declare).toThrow(`${what} needs a handler: a function, after the options.`)
  })
})

describe('a misspelt argument of a call', () => {
  const bench = createBench((options) => {
    const server = createServer({ name: 'calls', version: '1', ...options })
    const plain = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }
    server.tool('zod', { input: z.object({ city: z.string(), days: z.int().optional() }) }, () => 'x')
    server.tool('plain', { input: plain }, () => 'x')
    server.tool('strict', { input: { ...plain, additionalProperties: false } }, () => 'x')
    server.tool('open', { input: z.looseObject({ city: z.string() }) }, () => 'x')
    return server
  })
  const textOf = async (tool: string, args: Record<string, unknown>) =>
    (await bench.tool(tool, args).next()) as { text?: string }

  it.each(['zod', 'plain', 'strict'])('is named with the one that was meant: %s', async (tool) => {
    expect((await textOf(tool, { ciy: 'Rome' })).text).toBe(
      `Invalid arguments for ${tool}: Missing required property "city"; There is no argument "ciy". Did you mean "city"?`,
    )
  })

  it('is named without a guess if it is like no other, where the schema refuses it', async () => {
    expect((await textOf('strict', { city: 'Rome', verbose: true })).text).toBe(
      'Invalid arguments for strict: There is no argument "verbose".',
    )
    expect((await textOf('zod', { city: 5, verbose: true })).text).not.toContain('verbose')
  })

  it('is an argument like others where the schema takes any', async () => {
    expect((await textOf('open', { ciy: 'Rome' })).text).not.toContain('There is no argument')
  })
})
