import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import type { FaultEvent } from '../carry/host.ts'
import { createServer } from '../serve/server.ts'
import { type BenchOptions, createBench } from './bench.ts'

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
