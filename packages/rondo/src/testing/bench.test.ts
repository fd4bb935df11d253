import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import type { FaultEvent } from '../log/event.ts'
import type { ServerOptions } from '../serve/options.ts'
import { createServer } from '../serve/server.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import { type BenchOptions, createBench, importBench } from './bench.ts'

describe('a bench without a store', () => {
  const large = (options: BenchOptions) => {
    const server = createServer({ name: 'large', version: '1', ...options })
    server.tool('read', {}, async (_args, ctx) => {
      const text = await ctx.step('text', () => 'x'.repeat(100_000))
      const { value } = await ctx.ask('q', { message: 'Say', schema: z.object({ value: z.string() }) })
      return value + text.length
    })
    return server
  }

  it('runs into the limits of a server that has no store', async () => {
    expect(
      await createBench(large)
        .tool('read')
        .run({ q: { value: 'n ' } }),
    ).toMatchObject({
      text: 'n 100000',
    })
    await expect(
      createBench(large, { store: false })
        .tool('read')
        .run({ q: { value: 'n ' } }),
    ).rejects.toThrow(/never asked for q\. It ended with: The state of this call is larger/)
    const bench = createBench(large, { store: false })
    expect(await bench.tool('read').next()).toMatchObject({ kind: 'error' })
    expect(bench.events).toContainEqual(expect.objectContaining({ code: 'LIMIT_STATE_BYTES' }))
  })

  it('refuses options that need a store', () => {
    const single = (options: BenchOptions) => {
      const server = createServer({ name: 'single', version: '1', ...options })
      server.tool('once', { once: true }, () => 'ok')
      return server
    }
    expect(() => createBench(single, { store: false })).toThrow(/store/)
    createBench(single)
  })
})

describe('a bench of a server that a file creates', () => {
  const load = (options: Partial<ServerOptions>) => async () => {
    const server = createServer({ name: 'file', version: '1', ...options })
    server.tool('wait', { task: 'auto' }, async (_args, ctx) => {
      await ctx.sleep('night', '8 h')
      return 'awake'
    })
    server.tool('who', {}, (_args, ctx) => ctx.principal?.subject ?? 'nobody')
    return server
  }

  it("runs its tasks on the bench's clock, with its callers and its log, whatever the file sets", async () => {
    const own = createMemoryStore()
    const bench = await importBench(
      load({ store: own, now: () => 0, authenticate: () => undefined, log: 'off' }),
    )
    expect(await bench.task('wait').run()).toMatchObject({ kind: 'complete', text: 'awake' })
    expect(await own.tasks.list({})).toEqual([])
    expect(bench.events.length).toBeGreaterThan(0)
    const principal = { subject: 'ada' }
    expect(await bench.tool('who', {}, { principal }).run()).toMatchObject({ text: 'ada' })
    await bench.server.close()
  })

  it('adds no store to a server without one, and nothing to servers that are created later', async () => {
    const bench = await importBench(load({}))
    const task = bench.task('wait')
    expect(await task.next()).toMatchObject({ kind: 'complete', result: { isError: true } })
    expect(task.taskId).toBeUndefined()
    const seen = bench.events.length
    const later = await load({ log: 'off', now: () => 0 })()
    await later.fetch(new Request('http://127.0.0.1/mcp', { method: 'POST', body: '{}' }))
    expect(bench.events).toHaveLength(seen)
  })
})

describe('the log of a bench', () => {
  it("contains the author's own error, with its stack, if an effect threw in this round", async () => {
    class NoDisk extends Error {}
    const thrown = new NoDisk('no disk', { cause: 'sda1' })
    const bench = createBench((options) => {
      const server = createServer({ name: 'disk', version: '1', ...options })
      server.tool('save', {}, (_args, ctx) => ctx.effect('save', () => Promise.reject(thrown)))
      return server
    })
    const call = bench.tool('save')
    await call.next()
    expect(await call.next()).toMatchObject({ result: { isError: true } })
    const faults = bench.events.filter((event): event is FaultEvent => event.event === 'fault')
    expect(faults.map(({ error }) => error)).toEqual([thrown])
    expect(faults[0]?.error).toBe(thrown)
  })
})

describe('development mode', () => {
  const Size = z.object({ size: z.enum(['S', 'M']) })
  const order = (options: BenchOptions) => {
    const server = createServer({ name: 'order', version: '1', ...options })
    server.tool(
      'hoisted',
      {},
      async (_args, ctx) => (await ctx.ask('size', { message: 'Size?', schema: Size })).size,
    )
    server.tool('inline', {}, async (_args, ctx) => {
      const { size } = await ctx.ask('size', { message: 'Size?', schema: Size })
      const { colour } = await ctx.ask('colour', { message: '?', schema: z.object({ colour: z.string() }) })
      await ctx.confirm('sure', 'Sure?')
      return size + colour
    })
    return server
  }
  const answers = { size: { size: 'S' }, colour: { colour: 'red' }, sure: { confirm: true } }

  it('says once for each tool which schemas its handler creates', async () => {
    const bench = createBench(order)
    expect(await bench.tool('hoisted').run({ size: answers.size })).toMatchObject({ text: 'S' })
    for (let call = 0; call < 2; call++) {
      expect(await bench.tool('inline').run(answers)).toMatchObject({ text: 'Sred' })
    }
    const warnings = bench.events.filter(({ event }) => event === 'warning')
    expect(warnings).toMatchObject([
      {
        message:
          '"inline" creates the schema of the question "colour" in its handler, again in every round. ' +
          'Creating it once, outside the handler, costs less.',
      },
    ])
  })
})
