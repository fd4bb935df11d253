import { describe, expect, it } from 'vitest'
import {
  accept,
  askedKeys,
  type Handler,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import type { RunReport } from './run-state.ts'

function messageOf({ ending }: RunReport): string {
  return ending.kind === 'refused' ? ending.error.message : ending.kind
}

describe('R5 effects are strict', () => {
  const version1: Handler = async (ctx) => {
    await ctx.effect('charge', () => 'charged')
    await ctx.ask('q', textQuestion())
    await ctx.effect('ship', () => 'shipped')
  }

  it('R5 runs no new effect while a recorded one has not been reached', async () => {
    const ran: string[] = []
    const flow = replayFlow(version1, { anchored: true })
    await flow.round()
    const report = await flow.round(
      { q: accept({ value: '' }) },
      {
        handler: async (ctx) => {
          await ctx.effect('charge-v2', () => void ran.push('charge-v2'))
          await ctx.ask('q', textQuestion())
        },
      },
    )
    expect(refusal(report)).toBe('REPLAY_DIVERGED')
    expect(messageOf(report)).toMatch(/"charge-v2".*"charge"/)
    expect(ran).toEqual([])
  })

  it('R5 looks at the whole moment: an effect reached beside the new one counts as reached', async () => {
    const ran: string[] = []
    const flow = replayFlow(version1, { anchored: true })
    await flow.round()
    const report = await flow.round(
      { q: accept({ value: '' }) },
      {
        handler: async (ctx) => {
          await Promise.all([
            ctx.effect('audit', () => void ran.push('audit')),
            (async () => {
              await ctx.effect('charge', () => void ran.push('charge'))
              await ctx.ask('q', textQuestion())
            })(),
          ])
        },
      },
    )
    expect(report.ending.kind).toBe('returned')
    expect(ran).toEqual(['audit'])
  })

  it('P10 lets new effects run if only a step was not reached', async () => {
    const flow = replayFlow(async (ctx) => {
      await ctx.step('old', () => 1)
      await ctx.ask('q', textQuestion())
    })
    await flow.round()
    const report = await flow.round({}, { handler: (ctx) => ctx.effect('new', () => 'ok') })
    expect(returned(report)).toBe('ok')
  })
})

describe('R6 checkpoint before effect', () => {
  it('R6 ends the first round with the state alone, and runs the effect on the retry', async () => {
    const keys: string[] = []
    const flow = replayFlow((ctx) =>
      ctx.effect('charge', ({ key }) => {
        keys.push(key)
        return 'charged'
      }),
    )
    expect((await flow.round()).ending).toEqual({ kind: 'moved', reason: 'effect' })
    expect(keys).toEqual([])
    expect(returned(await flow.round())).toBe('charged')
    expect(keys).toHaveLength(1)
  })

  it('R6 needs no extra round if a question goes out anyway', async () => {
    let ran = 0
    const flow = replayFlow(async (ctx) => {
      await Promise.all([ctx.ask('q', textQuestion()), ctx.effect('e', () => void ran++)])
      return 'ok'
    })
    expect(askedKeys(await flow.round())).toEqual(['q'])
    expect(ran).toBe(0)
    expect(returned(await flow.round({ q: accept({ value: '' }) }))).toBe('ok')
    expect(ran).toBe(1)
  })

  it('R6 records the steps before the effect', async () => {
    let steps = 0
    const flow = replayFlow(async (ctx) => {
      const n = await ctx.step('look', () => ++steps)
      return ctx.effect('act', () => n)
    })
    expect((await flow.round()).ending.kind).toBe('moved')
    expect(returned(await flow.round())).toBe(1)
    expect(steps).toBe(1)
  })
})
