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
import type { Context } from '../tool/context.ts'
import type { RunReport } from './run-state.ts'

const decline = { action: 'decline' }
const page = { message: 'Open it', url: 'https://example.com/' }
const sampling = { messages: [], maxTokens: 5 }

function messageOf({ ending }: RunReport): string {
  return ending.kind === 'refused' ? ending.error.message : ending.kind
}

/** Runs a first round that is anchored, so that nothing but the rule under test holds the effect back. */
function anchored(handler: Handler, dev = false) {
  return replayFlow(handler, { anchored: true, dev })
}

const QUESTIONS: Record<string, (ctx: Context) => unknown> = {
  ask: (ctx) => ctx.ask('q', textQuestion()),
  elicit: (ctx) => ctx.elicit('q', textQuestion()),
  confirm: (ctx) => ctx.confirm('q', 'Delete all?'),
  visit: (ctx) => ctx.visit('q', page),
  sample: (ctx) => ctx.sample('q', sampling),
  roots: (ctx) => ctx.roots('q'),
}

describe.each([
  ['production', false],
  ['development', true],
])('N1 R7 a question that nothing has awaited, in %s', (_name, dev) => {
  it.each(Object.entries(QUESTIONS))(
    'refuses an effect after ctx.%s before it begins',
    async (_kind, question) => {
      let ran = 0
      const flow = anchored(async (ctx) => {
        const ok = question(ctx)
        if (!ok) return 'kept'
        await ctx.effect('del', () => void ran++)
        return 'deleted'
      }, dev)
      const report = await flow.round()
      expect(refusal(report)).toBe('REPLAY_NOT_AWAITED')
      expect(messageOf(report)).toContain('effect "del"')
      expect(messageOf(report)).toContain('question "q"')
      expect(ran).toBe(0)
    },
  )

  it('refuses an effect after a No that is in the journal', async () => {
    let ran = 0
    const flow = anchored(async (ctx) => {
      await ctx.confirm('sure', 'Delete all?')
      await ctx.ask('more', textQuestion())
    }, dev)
    expect(askedKeys(await flow.round())).toEqual(['sure'])
    expect(askedKeys(await flow.round({ sure: decline }))).toEqual(['more'])
    const forgetful: Handler = async (ctx) => {
      const ok = ctx.confirm('sure', 'Delete all?')
      await ctx.ask('more', textQuestion())
      if (!ok) return 'kept'
      await ctx.effect('del', () => void ran++)
      return 'deleted'
    }
    const report = await flow.round({ more: accept({ value: '' }) }, { handler: forgetful })
    expect(refusal(report)).toBe('REPLAY_NOT_AWAITED')
    expect(messageOf(report)).toContain('question "sure"')
    expect(ran).toBe(0)
  })

  it('refuses an effect that comes before the await', async () => {
    let ran = 0
    const flow = anchored(async (ctx) => {
      const ok = ctx.confirm('sure', 'Delete all?')
      await ctx.effect('del', () => void ran++)
      return (await ok) ? 'deleted' : 'kept'
    }, dev)
    expect(refusal(await flow.round())).toBe('REPLAY_NOT_AWAITED')
    expect(ran).toBe(0)
  })

  it('refuses an effect that nothing awaits while the question is open', async () => {
    let ran = 0
    const flow = anchored(async (ctx) => {
      const ok = ctx.confirm('sure', 'Delete all?')
      const deleted = ctx.effect('del', () => void ran++)
      if (!(await ok)) return 'kept'
      await deleted
      return 'deleted'
    }, dev)
    const report = await flow.round()
    expect(refusal(report)).toBe('REPLAY_NOT_AWAITED')
    expect(messageOf(report)).toContain('nothing awaits the effect "del" either')
    expect(ran).toBe(0)
  })

  it('refuses an effect after an event that nothing has awaited', async () => {
    let ran = 0
    const handler: Handler = async (ctx) => {
      const hook = await ctx.hook('paid')
      const paid = hook.received()
      if (!paid) return 'unpaid'
      await ctx.effect('ship', () => void ran++)
      return 'shipped'
    }
    const hooks = { open: async () => 'hook-id', close: async () => {} }
    const report = await anchored(handler, dev).round(undefined, { input: { hooks } })
    expect(refusal(report)).toBe('REPLAY_NOT_AWAITED')
    expect(messageOf(report)).toContain('event of the hook "paid"')
    expect(ran).toBe(0)
  })
})

describe('a question that was awaited', () => {
  it('N1 lets an effect begin after a catch, which observes it', async () => {
    const flow = anchored(async (ctx) => {
      const name = ctx.ask('name', textQuestion()).catch(() => undefined)
      await ctx.effect('log', () => 1)
      await name
      return 'done'
    })
    expect(askedKeys(await flow.round())).toEqual(['name'])
    expect(returned(await flow.round({ name: decline }))).toBe('done')
  })

  it('N1 lets an effect beside it begin in the same Promise.all, whatever the order', async () => {
    for (const first of ['question', 'effect']) {
      let ran = 0
      const flow = anchored(async (ctx) => {
        const ask = () => ctx.ask('q', textQuestion())
        const act = () => ctx.effect('reserve', () => void ran++)
        await Promise.all(first === 'question' ? [ask(), act()] : [act(), ask()])
        return 'done'
      })
      expect(askedKeys(await flow.round())).toEqual(['q'])
      expect(ran).toBe(1)
      expect(returned(await flow.round({ q: accept({ value: '' }) }))).toBe('done')
    }
  })

  it('N1 does not hold back an effect that was called before the question', async () => {
    let ran = 0
    const flow = anchored(async (ctx) => {
      const saved = ctx.effect('save', () => void ran++)
      const name = ctx.ask('name', textQuestion())
      await saved
      return (await name).value
    })
    expect(askedKeys(await flow.round())).toEqual(['name'])
    expect(ran).toBe(1)
    expect(returned(await flow.round({ name: accept({ value: 'Ada' }) }))).toBe('Ada')
  })

  it('N1 lets steps begin, and effects beside an open offer', async () => {
    const flow = anchored(async (ctx) => {
      const name = ctx.ask('name', textQuestion())
      await ctx.step('look', () => 1)
      const { value } = await name
      const tip = ctx.offer('tip', textQuestion())
      await ctx.effect('charge', () => 1)
      tip.withdraw()
      return value
    })
    expect(askedKeys(await flow.round())).toEqual(['name'])
    expect(returned(await flow.round({ name: accept({ value: 'Ada' }) }))).toBe('Ada')
  })
})

describe('a race', () => {
  const race: Handler = async (ctx) => {
    await Promise.race([ctx.confirm('sure', 'Delete all?'), ctx.step('other', () => true)])
    await ctx.effect('del', () => 1)
    return 'deleted'
  }
  const outruns = async (handler: Handler, answers?: Record<string, unknown>) => {
    const outrun: string[][] = []
    const flow = anchored(handler)
    const options = { onOutrun: (...pair: string[]) => void outrun.push(pair) }
    await flow.round(undefined, options)
    if (answers) await flow.round(answers, options)
    return outrun
  }

  it('N1 reports an effect that follows a race which a confirmation lost', async () => {
    expect(await outruns(race)).toEqual([['effect "del"', 'question "sure"']])
  })

  it('N1 reports an effect beside a confirmation, and one after an async function that nothing awaits', async () => {
    const beside: Handler = (ctx) =>
      Promise.all([ctx.confirm('sure', 'Delete all?'), ctx.effect('del', () => 1)])
    const helper: Handler = async (ctx) => {
      const isSure = async () => (await ctx.confirm('sure', 'Delete all?')) === true
      const ok = isSure()
      if (!ok) return 'kept'
      return ctx.effect('del', () => 1)
    }
    for (const handler of [beside, helper])
      expect(await outruns(handler)).toEqual([['effect "del"', 'question "sure"']])
  })

  it('N1 reports nothing if the confirmation won, or if the effect was called before it', async () => {
    const wins: Handler = async (ctx) => {
      const ok = await Promise.race([ctx.confirm('sure', 'Delete all?'), new Promise(() => {})])
      return ok && ctx.effect('del', () => 1)
    }
    expect(await outruns(wins, { sure: accept({ confirm: true }) })).toEqual([])
    const before: Handler = (ctx) =>
      Promise.all([ctx.effect('reserve', () => 1), ctx.confirm('sure', 'Delete all?')])
    expect(await outruns(before)).toEqual([])
  })
})
