import { describe, expect, it } from 'vitest'
import {
  accept,
  askedKeys,
  type FlowOptions,
  type Handler,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { DRAWS_FORMS } from '../protocol/common/apps.ts'
import { LOG_LEVELS, type LogLevel } from '../protocol/wire.ts'
import type { Context } from '../tool/context.ts'
import { CAN_LEAVE, FOREGROUND, type ReplayInput } from './input.ts'
import type { RunReport } from './run-state.ts'

const hooks = { open: async () => 'id', close: async () => {} }

function messageOf({ ending }: RunReport): string {
  return ending.kind === 'refused' ? ending.error.message : ending.kind
}

async function errorOf(handler: Handler, input: Partial<ReplayInput> = {}): Promise<string> {
  const { ending } = await replayFlow(handler, { anchored: true }).round(undefined, { input })
  return ending.kind === 'threw' ? String(ending.error) : ending.kind
}

describe('the facts of a request', () => {
  it('are those of the request, and empty where it has none', async () => {
    const facts: Handler = ({ relatedTaskIds, meta, flow, round, protocolVersion }) => ({
      relatedTaskIds,
      meta,
      flow,
      round,
      protocolVersion,
    })
    const known = { flow: 'flow', round: 1, protocolVersion: '2026-07-28' }
    expect(returned(await replayFlow(facts).round())).toEqual({ ...known, relatedTaskIds: [], meta: {} })
    const input = { relatedTaskIds: ['task'], meta: { trace: 'x' } }
    expect(returned(await replayFlow(facts).round(undefined, { input }))).toEqual({ ...known, ...input })
  })

  it('say which kinds of question the client can show', async () => {
    const kinds = ['form', 'url', 'sampling', 'roots', 'app'] as const
    const shows = async (capabilities: FlowOptions['capabilities']): Promise<unknown> =>
      returned(await replayFlow((ctx) => kinds.filter((kind) => ctx.can(kind)), { capabilities }).round())
    expect(await shows({ elicitation: { form: {} } })).toEqual(['form'])
    expect(await shows({ elicitation: { url: {} }, roots: {} })).toEqual(['url', 'roots'])
    expect(await shows({ elicitation: { form: {} }, extensions: DRAWS_FORMS })).toEqual(['form', 'app'])
  })
})

describe('the manual form', () => {
  it('has the state and the answers of its request, and undefined where there are none', async () => {
    const reads: Handler = (ctx) => [ctx.requestState, ctx.inputResponses]
    expect(returned(await replayFlow(reads).round())).toEqual([undefined, undefined])
    const input = { requestState: 'mine', inputResponses: () => ({ q: accept({}) }) as never }
    expect(returned(await replayFlow(reads).round(undefined, { input }))).toEqual(['mine', { q: accept({}) }])
  })

  it('R3 does not see answers that are kept for other questions', async () => {
    const flow = replayFlow((ctx) => ctx.confirm('sure', 'Sure?'))
    await flow.round()
    const reads: Handler = async (ctx) => {
      await ctx.step('s', () => 1)
      return ctx.inputResponses
    }
    expect(
      returned(await flow.round({ sure: accept({ confirm: true }) }, { handler: reads })),
    ).toBeUndefined()
  })
})

describe('what later releases must not change', () => {
  const keyAfter = async (
    read: (ctx: Context) => unknown,
    answers?: Record<string, unknown>,
    input: Partial<ReplayInput> = {},
  ): Promise<string> => {
    let found = ''
    const flow = replayFlow(
      async (ctx) => {
        await read(ctx)
        await ctx.effect('pay', ({ key }) => {
          found = key
        })
      },
      { anchored: true },
    )
    if (answers) await flow.round()
    await flow.round(answers, { input })
    return found
  }

  it('R7 is the key of an effect, whatever the handler has received before', async () => {
    const ask = (ctx: Context) => ctx.ask('q', textQuestion('Value?'))
    const state = (ctx: Context) => ctx.requestState
    const responses = (ctx: Context) => ctx.inputResponses
    const input = { requestState: 'mine', inputResponses: () => ({ q: accept({}) }) as never }
    const keys = {
      nothing: await keyAfter(() => {}),
      'no state': await keyAfter(state),
      'an answer': await keyAfter(ask, { q: accept({ value: 'x' }) }),
      'a state': await keyAfter(state, undefined, input),
      'manual answers': await keyAfter(responses, undefined, input),
      both: await keyAfter((ctx) => [state(ctx), responses(ctx)], undefined, input),
    }
    expect(keys).toEqual({
      'a state': '01b5d65b9f9b8a276828f1f0a1f53071',
      'an answer': '94452782855b57d1eb3cb72c1e8d5a7a',
      both: 'a59a85e8817353c05ba78f06bc4fc1ba',
      'manual answers': '39c15b9c6ce3918c705623f67b0d9d73',
      'no state': 'ddcccd451ee2fbfd712f485d74b1b413',
      nothing: 'ddcccd451ee2fbfd712f485d74b1b413',
    })
  })

  it('R7 is the key of an effect in a call that an operator continued from an earlier step', async () => {
    const keys = await Promise.all(
      [undefined, 'first', 'second'].map(async (rerun) => {
        let found = ''
        const flow = replayFlow(
          (ctx) =>
            ctx.effect('pay', ({ key }) => {
              found = key
            }),
          {
            anchored: true,
            journal: { rerun },
          },
        )
        await flow.round()
        return found
      }),
    )
    expect(keys).toEqual([
      'ddcccd451ee2fbfd712f485d74b1b413',
      'edbd514bc2150582a4788e8f3c3ea5b1',
      '16ad1ef78ea4dde2d08d9b8d13757490',
    ])
  })

  it('is every value that is drawn', async () => {
    const report = await replayFlow((ctx) => [
      ctx.uuid(),
      ctx.uuid(),
      ctx.random(),
      ctx.random(),
      ctx.uuid('name'),
      ctx.random('name'),
    ]).round()
    expect(returned(report)).toEqual([
      '96deeee1-49d3-43e7-9cbd-00b3598fbc0f',
      'f72e2d3c-157e-4665-a7f0-b5f5ae233153',
      0.45024951628419807,
      0.46705408745393484,
      '02b131e4-a2ac-4d40-bb23-38bf4f8ed34f',
      0.2308905052351149,
    ])
  })
})

describe('a call inside a step', () => {
  const inner: Record<string, Handler> = {
    'ctx.undo()': (ctx) => ctx.undo(),
    'sleep "in"': (ctx) => ctx.sleep('in', 1),
    'approval "in"': (ctx) => ctx.approve('in', { from: 'managers', message: 'Sure?' }),
    'hook "in"': (ctx) => ctx.hook('in'),
    'offer "in"': async (ctx) => void ctx.offer('in', textQuestion()),
  }
  it.each(Object.entries(inner))('is refused by its name: %s', async (label, call) => {
    const report = await replayFlow((ctx) => ctx.step('out', async () => void (await call(ctx)))).round()
    const text = report.ending.kind === 'threw' ? String(report.ending.error) : messageOf(report)
    expect(text).toContain(`The ${label} was called inside the step "out".`)
  })

  it('is refused by its name if it sleeps until a date, or awaits an offer', async () => {
    const until = await replayFlow((ctx) => ctx.step('out', () => ctx.sleepUntil('in', 0) as never)).round()
    expect(messageOf(until)).toContain('The sleep "in" was called inside the step "out".')
    for (const input of [{}, { hooks }]) {
      const report = await replayFlow((ctx) => {
        const offer = ctx.offer('in', textQuestion())
        return ctx.step('out', async () => void (await offer))
      }).round(undefined, { input })
      expect(messageOf(report)).toContain('The offer "in" was called inside the step "out".')
    }
  })
})

describe('a call in the wrong way', () => {
  it.each<[string, Handler, string]>([
    [
      'a key that is a number',
      (ctx) => ctx.ask(5 as never, textQuestion()),
      "takes a name first: ctx.ask('name', { message, schema }); got a number.",
    ],
    [
      'a question in place of the key',
      (ctx) => ctx.ask(textQuestion() as never, 'q' as never),
      "takes a name first: ctx.ask('name', { message, schema }); got an object.",
    ],
    [
      'a function in place of the key',
      (ctx) => ctx.step((() => 1) as never, 's' as never),
      "takes a name first: ctx.step('name', () => result); got a function.",
    ],
    ['null for a key', (ctx) => ctx.ask(null as never, textQuestion()), 'got null.'],
    [
      'null for a question',
      (ctx) => ctx.ask('q', null as never),
      'takes a name and an object: ctx.ask(\'name\', { message, schema }); got "q" and null.',
    ],
    [
      'an object for a function',
      (ctx) => ctx.step('s', {} as never),
      'takes a name and a function: ctx.step(\'name\', () => result); got "s" and an object.',
    ],
  ])('says what it takes and what it got: %s', async (_what, call, sentence) => {
    const error = await errorOf(call)
    expect(error).toMatch(/^TypeError: /)
    expect(error).toContain(sentence)
  })

  it.each<[string, Handler]>([
    ['The question "q"', (ctx) => ctx.ask('q', { ...textQuestion(), tyop: 1 } as never)],
    ['The question "q"', (ctx) => ctx.confirm('q', 'Sure?', { tyop: 1 } as never)],
    [
      'The question "q"',
      (ctx) => ctx.visit('q', { message: 'M', url: 'https://a.example', tyop: 1 } as never),
    ],
    ['The question "q"', (ctx) => ctx.sample('q', { messages: [], maxTokens: 1 }, { tyop: 1 } as never)],
    ['The offer "q"', (ctx) => void ctx.offer('q', { ...textQuestion(), tyop: 1 } as never)],
    ['The effect "q"', (ctx) => ctx.effect('q', () => 1, { tyop: 1 } as never)],
    ['The effect "q": once must be true or false', (ctx) => ctx.effect('q', () => 1, { once: 1 as never })],
    ['The effect "q": undo must be a function', (ctx) => ctx.effect('q', () => 1, { undo: 1 as never })],
  ])('names the operation: %s', async (name, call) => {
    expect(await errorOf(call)).toContain(name)
  })
})

describe('an effect', () => {
  it('with once: runs through the store of the server, under its name and branch', async () => {
    const calls: string[][] = []
    const once: ReplayInput['once'] = async (key, branch, act) => {
      calls.push([key, branch])
      return calls.length === 1 ? act() : 'from the store'
    }
    const pay: Handler = (ctx) => ctx.effect('pay', () => 'paid', { once: true })
    const ends = async () =>
      returned(await replayFlow(pay, { anchored: true }).round(undefined, { input: { once } }))
    expect([await ends(), await ends()]).toEqual(['paid', 'from the store'])
    expect(calls).toEqual([
      ['pay', ''],
      ['pay', ''],
    ])
    expect(await errorOf(pay)).toContain('An effect with { once: true } needs a store.')
  })

  it('is admitted before each of its attempts, and so is an undo', async () => {
    const seen: string[] = []
    const handler: Handler = async (ctx) => {
      await ctx.effect(
        'pay',
        ({ attempt }) => {
          seen.push(`pay ${attempt}`)
          if (attempt === 1) throw new Error('busy')
        },
        { retry: { delay: 0 }, undo: () => void seen.push('undo') },
      )
      await ctx.step('look', () => void seen.push('look'))
      return ctx.undo()
    }
    const input: Partial<ReplayInput> = {
      admit: async () => void seen.push('admitted'),
      undoing: { isLinear: true, keep: async () => {} },
    }
    expect((await replayFlow(handler, { anchored: true }).round(undefined, { input })).ending.kind).toBe(
      'returned',
    )
    expect(seen).toEqual(['admitted', 'pay 1', 'admitted', 'pay 2', 'look', 'admitted', 'undo'])
  })

  it('does not run if it is not admitted', async () => {
    let ran = 0
    const pay: Handler = (ctx) => ctx.effect('pay', () => void ran++, { once: true })
    const input: Partial<ReplayInput> = {
      admit: () => Promise.reject(new Error('not yours')),
      once: async (_key, _branch, act) => act(),
    }
    expect(await errorOf(pay, input)).toBe('Error: not yours')
    expect(ran).toBe(0)
  })

  it('says that it begins, like a step, before its function runs', async () => {
    const seen: string[] = []
    const background = {
      ...FOREGROUND,
      begins: (kind: string, key: string) => void seen.push(`${kind} ${key}`),
    }
    const handler: Handler = async (ctx) => {
      await ctx.step('look', () => void seen.push('looks'))
      await ctx.effect('pay', () => void seen.push('pays'))
    }
    await replayFlow(handler, { anchored: true }).round(undefined, { input: { background } })
    expect(seen).toEqual(['step look', 'looks', 'effect pay', 'pays'])
  })

  it('N1 does not begin before an approval that nothing has awaited, and is reported beside one', async () => {
    const approvals: ReplayInput['approvals'] = {
      bound: '',
      available: () => true,
      open: async () => {},
      use: async () => ({ kind: 'reopened' }),
      waits: () => {},
      learned: () => {},
    }
    const input = { hooks, approvals }
    const approve = (ctx: Context) => ctx.approve('deploy', { from: 'managers', message: 'Deploy?' })
    const careless: Handler = async (ctx) => {
      void approve(ctx)
      await ctx.effect('deploy it', () => 1)
    }
    const report = await replayFlow(careless, { anchored: true }).round(undefined, { input })
    expect(refusal(report)).toBe('REPLAY_NOT_AWAITED')
    expect(messageOf(report)).toContain('although the approval "deploy" before it was never awaited')
    const outrun: string[][] = []
    const beside: Handler = (ctx) => Promise.all([approve(ctx), ctx.effect('deploy it', () => 1)])
    await replayFlow(beside, { anchored: true }).round(undefined, {
      input,
      onOutrun: (...pair) => void outrun.push(pair),
    })
    expect(outrun).toEqual([['effect "deploy it"', 'approval "deploy"']])
    expect((await replayFlow(beside, { anchored: true }).round(undefined, { input })).ending.kind).toBe(
      'asking',
    )
  })

  it('N1 may begin beside a step that nothing has awaited yet', async () => {
    const handler: Handler = async (ctx) => {
      const looked = ctx.step('look', () => 1)
      await ctx.effect('pay', () => 1)
      return looked
    }
    expect(returned(await replayFlow(handler, { anchored: true }).round())).toBe(1)
  })
})

describe('ctx.background and ctx.status', () => {
  it('report a call that stays, and only that', async () => {
    let stayed = 0
    const stays = (): void => {
      stayed += 1
    }
    const handler: Handler = (ctx) => ctx.background()
    const ends = async (background: ReplayInput['background']) =>
      (await replayFlow(handler).round(undefined, { input: { background } })).ending.kind
    expect(await ends({ ...CAN_LEAVE, stays })).toBe('background')
    expect(stayed).toBe(0)
    expect(await ends({ ...FOREGROUND, stays })).toBe('returned')
    expect(stayed).toBe(1)
    expect(await ends(FOREGROUND)).toBe('returned')
  })

  it('are the same in the second run of development mode where there is no task', async () => {
    const flow = replayFlow((ctx) => ctx.background(), { dev: true })
    expect((await flow.round(undefined, { input: { background: FOREGROUND } })).ending.kind).toBe('returned')
  })

  it('are accepted where there is no task', async () => {
    const report = await replayFlow((ctx) => ctx.status('working')).round(undefined, {
      input: { background: FOREGROUND },
    })
    expect(report.ending.kind).toBe('returned')
  })

  it('do not repeat a status that an earlier run has set', async () => {
    const seen: string[] = []
    const background = {
      possible: false,
      setStatus: (message: string) => void seen.push(message),
      statusWasSet: () => void seen.push('again'),
    }
    const flow = replayFlow(async (ctx) => {
      ctx.status('first')
      await ctx.ask('q', textQuestion())
      ctx.status('second')
    })
    await flow.round(undefined, { input: { background } })
    await flow.round({ q: accept({ value: '' }) }, { input: { background } })
    expect(seen).toEqual(['first', 'again', 'second'])
    const silent = replayFlow((ctx) => ctx.ask('q', textQuestion()))
    await silent.round()
    const { ending } = await silent.round(
      {},
      { handler: (ctx) => ctx.status('x'), input: { background: FOREGROUND } },
    )
    expect(ending.kind).toBe('returned')
  })
})

describe('notifications', () => {
  it('of progress go to a client that asked for them, while the call runs', async () => {
    let late = (): void => {}
    const handler: Handler = async (ctx) => {
      ctx.progress(1, 2, 'half')
      late = () => ctx.progress(2)
      await ctx.ask('q', textQuestion())
    }
    const deaf = replayFlow(handler)
    await deaf.round()
    expect(deaf.notified).toEqual([])
    const flow = replayFlow(handler, { progressToken: 't' })
    await flow.round()
    late()
    expect(flow.notified).toEqual([
      {
        method: 'notifications/progress',
        params: { progressToken: 't', progress: 1, total: 2, message: 'half' },
      },
    ])
  })

  it('of the log go to a client that wants this level', async () => {
    const handler: Handler = (ctx) => {
      for (const level of LOG_LEVELS) ctx.log(level, `a ${level}`, 'mine')
    }
    const sent = async (logLevel: LogLevel | undefined): Promise<unknown> => {
      const flow = replayFlow(handler)
      await flow.round(undefined, { input: { logLevel } })
      return flow.notified
    }
    expect(await sent(undefined)).toEqual([])
    expect(await sent('alert')).toEqual(
      ['alert', 'emergency'].map((level) => ({
        method: 'notifications/message',
        params: { level, data: `a ${level}`, logger: 'mine' },
      })),
    )
    expect(await sent('debug')).toHaveLength(LOG_LEVELS.length)
  })
})

describe('ctx.confirm', () => {
  it('is false in words that TypeScript promises, whatever happens to the question', async () => {
    for (const action of ['decline', 'cancel']) {
      const flow = replayFlow((ctx) => ctx.confirm('sure', 'Sure?'))
      expect(askedKeys(await flow.round())).toEqual(['sure'])
      expect(returned(await flow.round({ sure: { action } }))).toBe(false)
    }
  })
})

describe('ctx.defer', () => {
  it('R9 runs the rest in the same order when the time is up', async () => {
    const ran: string[] = []
    const flow = replayFlow(
      (ctx) => {
        for (const name of ['first', 'second', 'third']) ctx.defer(() => void ran.push(name))
        ctx.defer(() => new Promise(() => {}))
      },
      { limits: { maxDeferMs: 1 } },
    )
    await flow.round()
    expect(ran).toEqual(['third', 'second', 'first'])
  })

  it('R8 is ignored once the call has ended', async () => {
    let late = (): void => {}
    const ran: string[] = []
    const flow = replayFlow(async (ctx) => {
      late = () => ctx.defer(() => void ran.push('late'))
      await ctx.ask('q', textQuestion())
    })
    await flow.round()
    late()
    expect([ran, flow.faults]).toEqual([[], []])
  })
})

describe('a timeout', () => {
  it('names the step', async () => {
    const slow: Handler = (ctx) => ctx.step('slow', () => new Promise(() => {}), { timeout: 1 })
    expect(await errorOf(slow)).toBe('TimeoutError: The step "slow" did not settle within 1 ms.')
  })
})
