import { describe, expect, it } from 'vitest'
import {
  accept,
  askedKeys,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import type { Context } from '../tool/context.ts'

/** Draws before and after a question; returns what each run drew. */
function drawing(draw: (ctx: Context) => unknown[]) {
  const runs: unknown[][] = []
  const flow = replayFlow(async (ctx) => {
    const drawn = draw(ctx)
    runs.push(drawn)
    await ctx.ask('q', textQuestion())
    drawn.push(...draw(ctx))
    return 'done'
  })
  return { flow, runs }
}

describe.each([
  ['ctx.uuid()', (ctx: Context) => [ctx.uuid(), ctx.uuid(), ctx.uuid()]],
  ['ctx.random()', (ctx: Context) => [ctx.random(), ctx.random(), ctx.random()]],
])('%s without a name', (_name, draw) => {
  it('differs in every call of a run, and is the same in the next run', async () => {
    const { flow, runs } = drawing(draw)
    expect(askedKeys(await flow.round())).toEqual(['q'])
    expect(returned(await flow.round({ q: accept({ value: '' }) }))).toBe('done')
    const [first, second] = runs as [unknown[], unknown[]]
    expect(first).toHaveLength(3)
    expect(second).toHaveLength(6)
    expect(second.slice(0, 3)).toEqual(first)
    expect(new Set(second).size).toBe(6)
  })

  it('differs in another flow', async () => {
    const draws = ['a', 'b'].map(async (seed) => {
      const flow = replayFlow((ctx) => draw(ctx), { journal: { seed } })
      return returned(await flow.round()) as unknown[]
    })
    const [one = [], other = []] = await Promise.all(draws)
    expect(new Set([...one, ...other]).size).toBe(6)
  })
})

describe('a value with a name', () => {
  it('is the same for that name, whatever was drawn before, and differs from those of other names', async () => {
    const flow = replayFlow((ctx) => {
      const first = ctx.uuid('order')
      ctx.uuid()
      return [first, ctx.uuid('order'), ctx.uuid('invoice'), ctx.uuid()]
    })
    const [first, again, other, unnamed] = returned(await flow.round()) as string[]
    expect(again).toBe(first)
    expect(new Set([first, other, unnamed]).size).toBe(3)
  })
})
