import { describe, expect, it } from 'vitest'
import { RondoError } from '../errors.ts'
import { storeClock } from '../lib/clock.ts'
import { createServer } from '../serve/server.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import type { OnceStore } from '../store/store.ts'
import { createBench } from '../testing/bench.ts'
import { workOnce } from './single-use.ts'

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

describe('work that is done once', () => {
  it('I6 does not begin if its process froze while it claimed the slot', async () => {
    let at = 0
    const now = () => at
    const { once } = createMemoryStore({ now })
    const slot = { flow: 'f', round: 1, digest: 'd', epoch: await once.epoch(), expiresAt: 1e9 }
    const clock = { ...storeClock, elapsed: now }
    const done: string[] = []
    const pay = (who: string) => async () => {
      done.push(who)
      return who
    }
    const frozen: OnceStore = {
      ...once,
      async claim(...args) {
        const reply = await once.claim(...args)
        at += 30_000
        expect(await workOnce(once, slot, pay('other'), { holdMs: 30_000, clock })).toMatchObject({
          kind: 'stored',
        })
        return reply
      },
    }
    const thawed = await workOnce(frozen, slot, pay('frozen'), { holdMs: 30_000, clock })
    expect(thawed).toMatchObject({ kind: 'busy' })
    expect(done).toEqual(['other'])
  })
})
