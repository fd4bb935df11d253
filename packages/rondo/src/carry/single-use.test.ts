import { describe, expect, it } from 'vitest'
import { RondoError } from '../errors.ts'
import { createServer } from '../serve/server.ts'
import { createBench } from '../testing/bench.ts'

describe('a tool with single use', () => {
  it('B8 processes the same request again after an error that passes', async () => {
    let attempts = 0
    const bench = createBench((options) => {
      const server = createServer({ name: 'once', version: '1.0.0', ...options, dev: false })
      server.tool('pay', { once: true }, async (_args, ctx) => {
        await ctx.confirm('sure', 'Sure?')
        await ctx.step('charge', () => {
          if (++attempts === 1) throw new RondoError('STORE_BUSY')
        })
        return 'paid'
      })
      return server
    })
    const call = bench.tool('pay')
    await call.next()
    const answers = { sure: { confirm: true } }
    expect(await call.next(answers)).toMatchObject({ kind: 'error', code: -32000 })
    expect(await call.next(answers)).toMatchObject({ kind: 'complete', text: 'paid' })
    expect(await call.next(answers)).toMatchObject({ kind: 'complete', text: 'paid' })
    expect(attempts).toBe(2)
  })
})
