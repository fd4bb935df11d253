import { describe, expect, it } from 'vitest'
import {
  accept,
  askedKeys,
  type Handler,
  type RoundOptions,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { CAN_LEAVE, type ReplayInput } from './input.ts'

const PARKS: RoundOptions = { sleeping: { parks: true } }

async function difference(handler: Handler, options: RoundOptions = {}, anchored = true): Promise<string> {
  const flow = replayFlow(handler, { dev: true, anchored })
  const report = await flow.round(undefined, options)
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
    expect((await flow.round()).ending.kind).toBe('returned')
    expect(flow.notified.map(({ method }) => method)).toEqual(['status', 'notifications/progress'])
  })

  it('names both operations if the second run does something else', async () => {
    let n = 0
    const ran: string[] = []
    const handler: Handler = (ctx) => {
      const name = n++ === 0 ? 'first' : 'second'
      return ctx.step(name, () => void ran.push(name))
    }
    expect(await difference(handler)).toMatch(
      /operation 1 was step "first" and then step "second"\. Use ctx\.now/,
    )
    expect(ran).toEqual(['first'])
  })

  it('compares the name and the kind of an operation, each by itself', async () => {
    let n = 0
    const kind: Handler = (ctx) => (n++ === 0 ? ctx.step('s', () => 1) : ctx.sleep('s', 1))
    expect(await difference(kind)).toContain('operation 1 was step "s" and then sleep "s". Use')
    n = 0
    const missing: Handler = (ctx) => (n++ === 0 ? ctx.step('s', () => 1) : 1)
    expect(await difference(missing)).toContain('operation 1 was step "s" and then nothing. Use')
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

  it.each<[string, (n: number) => Handler, RoundOptions?]>([
    ['a result', (n) => () => ({ n })],
    ['a result', (n) => () => (n === 0 ? undefined : null)],
    ['an error (Error: 0)', (n) => () => Promise.reject(new Error(String(n)))],
    ['a sleep', (n) => (ctx) => ctx.sleep('nap', n === 0 ? '2 min' : '1 min'), PARKS],
    [
      'a question or an event (q, o)',
      (n) => async (ctx) => {
        const offer = ctx.offer('o', textQuestion())
        await Promise.all([ctx.ask('q', textQuestion()), n === 0 && offer])
      },
      { input: { hooks: { open: async () => 'id', close: async () => {} } } },
    ],
  ])('finds %s that differs in its content', async (ending, handlerOf, options) => {
    let n = 0
    const found = await difference((ctx) => handlerOf(n++)(ctx), options)
    expect(found).toContain(`it ended with ${ending} both times, but the content differs. Use`)
  })

  it.each<[string, (n: number) => Handler, RoundOptions?]>([
    [
      'a result and then with an error (Error: x)',
      (n) => () => (n === 0 ? 1 : Promise.reject(new Error('x'))),
    ],
    [
      'an error (Error: x) and then with a result',
      (n) => () => (n === 0 ? Promise.reject(new Error('x')) : 1),
    ],
    [
      'a question or an event (q) and then with a refusal ([REPLAY_NOT_AWAITED]',
      (n) => (ctx) => Promise.race([ctx.ask('q', textQuestion()), n > 0 ? 'early' : new Promise(() => {})]),
    ],
    [
      'a sleep and then with a result',
      (n) => (ctx) => Promise.race([ctx.sleep('nap', '1 min'), n > 0 ? 'early' : new Promise(() => {})]),
      PARKS,
    ],
    [
      'a result and then with a task',
      (n) => (ctx) => (n === 0 ? undefined : ctx.background()),
      { input: { background: CAN_LEAVE } },
    ],
    [
      'a move to another instance and then with an error (Error: x)',
      (n) => (ctx) => {
        const effect = ctx.effect('e', () => 1)
        return n === 0 ? effect : Promise.reject(new Error('x'))
      },
    ],
  ])('finds two ends that differ: %s', async (endings, handlerOf, options) => {
    let n = 0
    expect(await difference((ctx) => handlerOf(n++)(ctx), options, false)).toContain(
      `it ended with ${endings}`,
    )
  })

  it('finds a difference after an effect that is held back', async () => {
    let n = 0
    const handler: Handler = async (ctx) => {
      const effect = ctx.effect('e', () => 1)
      if (n++ > 0) await ctx.step('extra', () => 1)
      await effect
    }
    expect(await difference(handler, {}, false)).toContain('operation 2 was nothing and then step "extra"')
  })

  it.each<[string, Handler]>([
    ['no result', () => undefined],
    ['a function as its result', () => () => 1],
    ['labels', (ctx) => ctx.label({ order: '1', customer: 'ada' })],
    ['a signal', (ctx) => ctx.signal.aborted],
  ])('accepts a handler that has %s', async (_what, handler) => {
    const flow = replayFlow(handler, { dev: true })
    expect((await flow.round()).ending.kind).toBe('returned')
  })

  it('accepts a call that becomes a task, which its second run cannot leave twice', async () => {
    const flow = replayFlow((ctx) => Promise.all([ctx.background(), ctx.step('s', () => 1)]), { dev: true })
    const { ending } = await flow.round(undefined, { input: { background: CAN_LEAVE } })
    expect(ending).toEqual({ kind: 'background' })
  })

  it('runs nothing in the second run if the first one was stopped before it', async () => {
    let n = 0
    const ran: string[] = []
    const flow = replayFlow(
      async (ctx) => {
        const parts: unknown[] = [ctx.step('a', () => void ran.push('a'))]
        if (n++ > 0) parts.push(ctx.background())
        await Promise.all<unknown>(parts)
      },
      { dev: true },
    )
    const input = { background: CAN_LEAVE }
    const { ending } = await flow.round(undefined, { mayMove: () => 'drain', input })
    expect(ending).toEqual({ kind: 'moved', reason: 'drain' })
    expect(ran).toEqual([])
  })

  it('asks in both runs as a changed program would', async () => {
    const flow = replayFlow((ctx) => ctx.ask('q', textQuestion('Before')), { dev: true })
    const trace: ReplayInput['trace'] = {
      called: () => {},
      keyed: () => {},
      reword: (_key, request) => ({ ...request, params: { ...request.params, message: 'After' } }) as never,
    }
    expect(askedKeys(await flow.round(undefined, { input: { trace } }))).toEqual(['q'])
  })

  it('advises about the questions whose schema the handler creates, and about no others', async () => {
    const constant = textQuestion()
    const flow = replayFlow(
      (ctx) =>
        Promise.all([
          ctx.ask('constant', constant),
          ctx.ask('created', textQuestion()),
          ctx.confirm('sure', 'Sure?'),
          ctx.step('s', () => 1),
        ]),
      { dev: true },
    )
    expect(askedKeys(await flow.round())).toEqual(['constant', 'created', 'sure'])
    expect(flow.advised).toEqual([['created']])
    const quiet = replayFlow((ctx) => ctx.ask('constant', constant), { dev: true })
    await quiet.round()
    expect(quiet.advised).toEqual([])
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
    const ran: string[] = []
    const flow = replayFlow(
      async (ctx) => {
        for (const name of ['a', 'b', 'c']) {
          await ctx.step(name, () => void ran.push(name))
          await ctx.checkpoint()
        }
        return 'done'
      },
      { dev: true },
    )
    const first = await flow.round(undefined, { mayMove: (executed) => (executed > 0 ? 'time' : undefined) })
    expect(first.ending.kind).toBe('moved')
    expect(returned(await flow.round())).toBe('done')
    expect(ran).toEqual(['a', 'b', 'c'])
  })
})
