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

async function difference(handler: Handler, answers?: Record<string, unknown>): Promise<string> {
  const flow = replayFlow(handler, { dev: true, anchored: true })
  const report = await flow.round(answers)
  expect(refusal(report)).toBe('REPLAY_UNSTABLE')
  return report.ending.kind === 'refused' ? report.ending.error.message : ''
}

describe('development mode', () => {
  it('accepts a deterministic handler', async () => {
    const flow = replayFlow(
      async (ctx) => {
        await ctx.checkpoint()
        const id = ctx.uuid()
        const [n] = await Promise.all([ctx.step('n', () => 1), ctx.effect('e', () => 2)])
        const { value } = await ctx.ask('q', textQuestion(`Order ${id}?`))
        return [n, value, id]
      },
      { dev: true },
    )
    expect((await flow.round()).ending.kind).toBe('moved')
    expect(askedKeys(await flow.round())).toEqual(['q'])
    expect(returned(await flow.round({ q: accept({ value: 'yes' }) }))).toHaveLength(3)
  })

  it('sends nothing to the client from the second run', async () => {
    const flow = replayFlow(
      async (ctx) => {
        ctx.status('half way')
        await ctx.step('n', () => 1)
        ctx.progress(1)
      },
      { dev: true, progressToken: 'p' },
    )
    await flow.round()
    expect(flow.notified.map(({ method }) => method)).toEqual(['status', 'notifications/progress'])
  })

  it('names both operations if the second run does something else', async () => {
    let n = 0
    expect(await difference((ctx) => ctx.step(n++ === 0 ? 'first' : 'second', () => 1))).toContain(
      'operation 1 was step "first" and then step "second"',
    )
  })

  it('finds a question whose message changes', async () => {
    let n = 0
    expect(await difference((ctx) => ctx.ask('q', textQuestion(`It is ${n++}`)))).toContain(
      'form "q" with other wording',
    )
  })

  it('finds a clock in a message every time, because time passes between the runs', async () => {
    for (let i = 0; i < 20; i++) {
      expect(await difference((ctx) => ctx.ask('q', textQuestion(`It is ${Date.now()}`)))).toContain(
        'form "q" with other wording',
      )
    }
  })

  it('finds a result that differs', async () => {
    let n = 0
    expect(await difference(() => n++)).toContain('the content differs')
  })

  it('finds a branch on the outside world that leads to a question', async () => {
    let n = 0
    const handler: Handler = async (ctx) => {
      await ctx.step('s', () => 1)
      if (n++ > 0) await ctx.ask('extra', textQuestion())
      return 'ok'
    }
    expect(await difference(handler)).toContain('operation 2 was nothing and then form "extra"')
  })

  it('runs no step or effect a second time', async () => {
    let runs = 0
    const flow = replayFlow((ctx) => ctx.effect('e', () => ++runs), { dev: true, anchored: true })
    expect(returned(await flow.round())).toBe(1)
    expect(runs).toBe(1)
  })

  it('accepts a call that was moved in the middle', async () => {
    const flow = replayFlow(
      async (ctx) => {
        for (const name of ['a', 'b', 'c']) {
          await ctx.step(name, () => name)
          await ctx.checkpoint()
        }
        return 'done'
      },
      { dev: true },
    )
    const first = await flow.round(undefined, { mayMove: (executed) => (executed > 0 ? 'time' : undefined) })
    expect(first.ending.kind).toBe('moved')
    expect(returned(await flow.round())).toBe('done')
  })
})
