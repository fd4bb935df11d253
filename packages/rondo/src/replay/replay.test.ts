import { describe, expect, it } from 'vitest'
import {
  accept,
  askedKeys,
  deferredPromise,
  type Handler,
  type ReplayFlow,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { idle } from '../lib/clock.ts'

describe('R2 recorded wins', () => {
  it('R2 never replaces a recorded answer with a later one', async () => {
    const flow = replayFlow(async (ctx) => {
      const a = await ctx.ask('a', textQuestion())
      const b = await ctx.ask('b', textQuestion())
      return `${a.value}${b.value}`
    })
    await flow.round()
    await flow.round({ a: accept({ value: 'first' }) })
    const last = await flow.round({ a: accept({ value: 'second' }), b: accept({ value: '!' }) })
    expect(returned(last)).toBe('first!')
  })

  it('R2 returns a recorded result without running the step', async () => {
    let runs = 0
    const flow = replayFlow(async (ctx) => {
      const n = await ctx.step('n', () => {
        runs += 1
        return { list: [runs] }
      })
      n.list.push(99)
      await ctx.ask('q', textQuestion())
      return n.list
    })
    await flow.round()
    expect(returned(await flow.round({ q: accept({ value: '' }) }))).toEqual([1, 99])
    expect(runs).toBe(1)
  })
})

describe('R8 suspension is not an exception', () => {
  it('R8 runs no catch and no finally, fires the signal, and runs deferred functions, last first', async () => {
    const seen: string[] = []
    let signal: AbortSignal | undefined
    const flow = replayFlow(async (ctx) => {
      signal = ctx.signal
      ctx.defer(() => void seen.push('defer 1'))
      ctx.defer(async () => void seen.push('defer 2'))
      try {
        await ctx.ask('q', textQuestion())
      } catch {
        seen.push('catch')
      } finally {
        seen.push('finally')
      }
    })
    expect(askedKeys(await flow.round())).toEqual(['q'])
    await new Promise<void>((resolve) => idle(resolve))
    expect(seen).toEqual(['defer 2', 'defer 1'])
    expect(signal?.aborted).toBe(true)
  })

  it('R8 has fired the signal even if it is first read after the run ended', async () => {
    let late: boolean | undefined
    const flow = replayFlow(async (ctx) => {
      ctx.defer(() => {
        late = ctx.signal.aborted
      })
      await ctx.ask('q', textQuestion())
    })
    await flow.round()
    expect(late).toBe(true)
  })

  it('R8 refuses a handler that returns while a question is open', async () => {
    const flow = replayFlow((ctx) => {
      void ctx.ask('forgotten', textQuestion())
      return 'done'
    })
    const report = await flow.round()
    expect(refusal(report)).toBe('REPLAY_NOT_AWAITED')
    expect(report.ending.kind === 'refused' && report.ending.error.message).toContain('"forgotten"')
  })

  it('R8 refuses a handler that does not await an effect', async () => {
    const flow = replayFlow(
      (ctx) => {
        void ctx.effect('save', () => 1)
        return 'saved'
      },
      { anchored: true },
    )
    expect(refusal(await flow.round())).toBe('REPLAY_NOT_AWAITED')
  })

  it('R8 ends the call if a step fails beside an open question', async () => {
    const flow = replayFlow((ctx) =>
      Promise.all([
        ctx.ask('q', textQuestion()),
        ctx.step('fails', () => {
          throw new Error('no disk')
        }),
      ]),
    )
    const { ending } = await flow.round()
    expect(ending.kind === 'threw' && String(ending.error)).toBe('Error: no disk')
  })

  it('waits for work that still runs when the handler returns', async () => {
    const gate = deferredPromise()
    let finished = false
    const flow = replayFlow((ctx) =>
      Promise.race([
        ctx.step('fast', () => 'fast'),
        ctx.step('slow', async () => {
          await gate.promise
          finished = true
        }),
      ]),
    )
    const round = flow.round()
    await new Promise<void>((resolve) => idle(() => idle(() => idle(resolve))))
    expect(finished).toBe(false)
    gate.resolve()
    expect(returned(await round)).toBe('fast')
    expect(finished).toBe(true)
  })

  it('runs the other deferred functions if one fails', async () => {
    const seen: string[] = []
    const flow = replayFlow((ctx) => {
      ctx.defer(() => void seen.push('first'))
      ctx.defer(() => {
        throw new Error('stuck')
      })
      return 'ok'
    })
    expect(returned(await flow.round())).toBe('ok')
    expect(seen).toEqual(['first'])
  })
})

describe('the context on every replay', () => {
  it('returns the same time, ids and random numbers in every round', async () => {
    const seen: unknown[][] = []
    const flow = replayFlow(async (ctx) => {
      const row: unknown[] = [ctx.now(), ctx.uuid(), ctx.random(), ctx.uuid('named')]
      seen.push(row)
      await ctx.ask('q', textQuestion())
      row.push(ctx.now(), ctx.uuid())
      await ctx.ask('r', textQuestion())
    })
    await flow.round()
    flow.clock.now += 5000
    await flow.round({ q: accept({ value: '' }) })
    flow.clock.now += 5000
    await flow.round({ r: accept({ value: '' }) })
    expect(seen[1]?.slice(0, 4)).toEqual(seen[0])
    expect(seen[2]).toEqual(seen[1])
    expect(seen[2]?.[4]).toBe(1_005_000)
    expect(seen[0]?.[1]).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    expect(seen[0]?.[2]).toBeGreaterThanOrEqual(0)
    expect(seen[0]?.[2]).toBeLessThan(1)
  })

  it('reports progress only if it increases', async () => {
    const flow = replayFlow(
      (ctx) => {
        for (const n of [0, 50, 50, 20, 100]) ctx.progress(n, 100)
      },
      { progressToken: 't' },
    )
    await flow.round()
    expect(flow.notified.map(({ params }) => params.progress)).toEqual([0, 50, 100])
  })
})

describe('status and log messages', () => {
  const sent = ({ notified }: ReplayFlow) => notified.map(({ params }) => params.message ?? params.data)
  const months: Handler = async (ctx) => {
    for (const month of [1, 2]) {
      ctx.status(`month ${month}`)
      await ctx.step(`month ${month}`, () => ctx.log('info', `in ${month}`))
    }
    ctx.status('asking')
    await ctx.ask('q', textQuestion())
    for (const month of [3, 4]) {
      await ctx.step(`month ${month}`, () => 1)
      ctx.status(`month ${month}`)
    }
    await ctx.ask('r', textQuestion())
    ctx.log('info', 'done')
  }
  const everything = { input: { logLevel: 'debug' as const } }

  it('a replay repeats none of them', async () => {
    const flow = replayFlow(months)
    const all = ['month 1', 'in 1', 'month 2', 'in 2', 'asking']
    await flow.round(undefined, everything)
    expect(sent(flow)).toEqual(all)
    await flow.round({}, everything)
    expect(sent(flow)).toEqual(all)
    all.push('month 3', 'month 4')
    await flow.round({ q: accept({ value: '' }) }, everything)
    expect(sent(flow)).toEqual(all)
    all.push('done')
    await flow.round({ r: accept({ value: '' }) }, everything)
    expect(sent(flow)).toEqual(all)
  })

  it('a run after a crash sends them from its first new operation on', async () => {
    const first = replayFlow(months)
    await first.round(undefined, everything)
    const entries = first.journal.entries.slice(0, 1)
    const flow = replayFlow(months, { journal: { entries }, anchored: true })
    await flow.round(undefined, everything)
    expect(sent(flow)).toEqual(['month 2', 'in 2', 'asking'])
  })

  it('a handler in the manual form sends them once it has read the responses', async () => {
    const flow = replayFlow((ctx) => {
      ctx.log('info', 'begin')
      if (ctx.inputResponses?.q) ctx.log('info', 'answered')
    })
    await flow.round(undefined, everything)
    const input = { ...everything.input, inputResponses: () => ({ q: accept({}) }) as never }
    await flow.round(undefined, { input })
    expect(sent(flow)).toEqual(['begin', 'answered'])
  })
})
