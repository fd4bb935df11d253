import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  accept,
  askedKeys,
  deferredPromise,
  type FlowOptions,
  type Handler,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { InputCancelled, InputDeclined } from '../errors.ts'
import { idle } from '../lib/clock.ts'
import type { Context } from '../tool/context.ts'
import type { Arrival } from './input.ts'

describe('a run that asks', () => {
  it('refuses a message that is not a string before anybody is asked', async () => {
    const questions: Handler[] = [
      (ctx) => ctx.ask('q', { ...textQuestion(), message: 5 as never }),
      (ctx) => ctx.confirm('q', undefined as never),
      (ctx) => ctx.visit('q', { message: {} as never, url: 'https://example.com/' }),
    ]
    for (const question of questions) {
      const { ending } = await replayFlow(question).round()
      expect(ending.kind === 'threw' && String(ending.error)).toMatch(
        /message of a question must be a string|takes a name and a string/,
      )
    }
  })

  it('R8 suspends at a question and resumes with the answer', async () => {
    const flow = replayFlow(async (ctx) => `Hello ${(await ctx.ask('name', textQuestion())).value}`)
    expect(askedKeys(await flow.round())).toEqual(['name'])
    expect(returned(await flow.round({ name: accept({ value: 'Ada' }) }))).toBe('Hello Ada')
  })

  it('R11 asks again if the schema of the author throws, and reports the error', async () => {
    const broken = z.object({
      value: z.string().refine(() => {
        throw new Error('a bug of the author')
      }),
    })
    const flow = replayFlow((ctx) => ctx.ask('q', { message: 'Value?', schema: broken }))
    await flow.round()
    expect(askedKeys(await flow.round({ q: accept({ value: 'x' }) }))).toEqual(['q'])
    expect(flow.faults.map(String)).toEqual(['Error: a bug of the author'])
  })

  it('sends the questions of one moment in one round, including nested ones and those beside steps', async () => {
    const ran: string[] = []
    const flow = replayFlow(async (ctx) => {
      const inner = async () => {
        await Promise.resolve()
        const [x, y] = await Promise.all([ctx.ask('x', textQuestion()), ctx.ask('y', textQuestion())])
        return `${x.value}${y.value}`
      }
      const afterStep = async () => {
        const n = await ctx.step('count', async () => {
          ran.push('count')
          await new Promise<void>((resolve) => idle(resolve))
          return 7
        })
        return `${n}${(await ctx.ask('z', textQuestion())).value}`
      }
      return (await Promise.all([inner(), afterStep(), ctx.ask('w', textQuestion())])).map(String)
    })
    expect(askedKeys(await flow.round()).sort()).toEqual(['w', 'x', 'y', 'z'])
    const answers = Object.fromEntries(['w', 'x', 'y', 'z'].map((key) => [key, accept({ value: key })]))
    expect(returned(await flow.round(answers))).toEqual(['xy', '7z', '[object Object]'])
    expect(ran).toEqual(['count'])
  })

  it('finishes and records a step that runs while a question is open', async () => {
    const gate = deferredPromise()
    let runs = 0
    const flow = replayFlow(async (ctx) => {
      const [answer, n] = await Promise.all([
        ctx.ask('q', textQuestion()),
        ctx.step('slow', async () => {
          runs += 1
          await gate.promise
          return 42
        }),
      ])
      return `${answer.value} ${n}`
    })
    const first = flow.round()
    await new Promise<void>((resolve) => idle(() => idle(resolve)))
    gate.resolve()
    expect((await first).journal.entries.map((entry) => entry.key)).toEqual(['slow'])
    expect(returned(await flow.round({ q: accept({ value: 'a' }) }))).toBe('a 42')
    expect(runs).toBe(1)
  })

  it('B18 distinguishes a decline, a cancel and a missing answer', async () => {
    const flow = () => replayFlow(async (ctx) => (await ctx.elicit('q', textQuestion())).action)
    for (const action of ['decline', 'cancel']) {
      const one = flow()
      await one.round()
      expect(returned(await one.round({ q: { action } }))).toBe(action)
    }
    const missing = flow()
    await missing.round()
    expect(askedKeys(await missing.round({}))).toEqual(['q'])
  })

  it('B18 throws a decline or a cancel in the handler, which may catch it, and does not ask again', async () => {
    for (const [action, kind] of [
      ['decline', InputDeclined],
      ['cancel', InputCancelled],
    ] as const) {
      const flow = replayFlow((ctx) => ctx.ask('q', textQuestion()))
      await flow.round()
      const { ending } = await flow.round({ q: { action } })
      expect(ending.kind === 'threw' && ending.error).toBeInstanceOf(kind)
    }
  })

  it('records a decline: the next round does not ask again', async () => {
    const flow = replayFlow(async (ctx) => {
      const first = await ctx.elicit('first', textQuestion())
      const second = await ctx.ask('second', textQuestion())
      return `${first.action} ${second.value}`
    })
    await flow.round()
    expect(askedKeys(await flow.round({ first: { action: 'decline' } }))).toEqual(['second'])
    expect(returned(await flow.round({ second: accept({ value: 'x' }) }))).toBe('decline x')
  })

  it('B17 asks again three times, saying what was wrong, and then refuses the call', async () => {
    const flow = replayFlow(async (ctx) => (await ctx.ask('q', textQuestion('Your name?'))).value)
    await flow.round()
    for (let i = 0; i < 3; i++) {
      const { ending } = await flow.round({ q: accept({ value: 5 }) })
      if (ending.kind !== 'asking') throw new Error('expected the question again')
      const request = ending.questions.get('q')?.request
      expect(request?.method === 'elicitation/create' && request.params.message).toMatch(
        /^Value must be a text\. Your name\?$/,
      )
    }
    expect(refusal(await flow.round({ q: accept({ value: 5 }) }))).toBe('INPUT_REJECTED')
  })

  it('accepts a valid answer after an invalid one', async () => {
    const flow = replayFlow(async (ctx) => (await ctx.ask('q', textQuestion())).value)
    await flow.round()
    await flow.round({ q: accept({ value: 5 }) })
    expect(returned(await flow.round({ q: accept({ value: 'five' }) }))).toBe('five')
  })

  it('B15 P12 ignores answers to questions that were not asked', async () => {
    const flow = replayFlow(async (ctx) => {
      const a = await ctx.ask('a', textQuestion())
      const b = await ctx.ask('b', textQuestion())
      return `${a.value}${b.value}`
    })
    await flow.round()
    const early = await flow.round({
      a: accept({ value: '1' }),
      b: accept({ value: 'smuggled' }),
      c: accept({}),
    })
    expect(askedKeys(early)).toEqual(['b'])
    expect(returned(await flow.round({ b: accept({ value: '2' }) }))).toBe('12')
  })

  it('B10 ends the call if the client cannot be asked, and no catch of the handler sees it', async () => {
    const kinds: [string, (ctx: Parameters<Parameters<typeof replayFlow>[0]>[0]) => Promise<unknown>][] = [
      ['form', (ctx) => ctx.ask('q', textQuestion())],
      ['confirm', (ctx) => ctx.confirm('q', 'Delete?')],
      ['url', (ctx) => ctx.visit('q', { message: 'Open', url: 'https://example.com/' })],
      ['sampling', (ctx) => ctx.sample('q', { messages: [], maxTokens: 1 })],
      ['roots', (ctx) => ctx.roots()],
    ]
    for (const [name, asks] of kinds) {
      const flow = replayFlow((ctx) => asks(ctx).catch(() => 'continued unconfirmed'), { capabilities: {} })
      expect([name, refusal(await flow.round())]).toEqual([name, 'PEER_CAPABILITY'])
    }
    const formOnly = replayFlow((ctx) => ctx.visit('q', { message: 'Open', url: 'https://example.com/' }), {
      capabilities: { elicitation: {} },
    })
    expect(refusal(await formOnly.round())).toBe('PEER_CAPABILITY')
  })

  it('T4 refuses URLs that nobody should open', async () => {
    for (const url of [
      'javascript:alert(1)',
      'http://example.com/',
      'https://user:pw@example.com/',
      'nonsense',
    ]) {
      const { ending } = await replayFlow((ctx) => ctx.visit('q', { message: 'Open', url })).round()
      expect(ending.kind === 'threw' && ending.error).toBeInstanceOf(TypeError)
    }
    expect(
      askedKeys(
        await replayFlow((ctx) => ctx.visit('q', { message: 'Open', url: 'http://127.0.0.1:1/' })).round(),
      ),
    ).toEqual(['q'])
  })

  it('asks for a completion and for roots, and checks the shape of the responses', async () => {
    const flow = replayFlow(async (ctx) => {
      const [message, roots] = await Promise.all([
        ctx.sample('capital', { messages: [], maxTokens: 10 }),
        ctx.roots(),
      ])
      return [message.content, roots[0]?.uri]
    })
    expect(askedKeys(await flow.round())).toEqual(['capital', 'roots'])
    const wrong = await flow.round({ capital: { nonsense: 1 }, roots: { roots: [{}] } })
    expect(askedKeys(wrong)).toEqual(['capital', 'roots'])
    const right = await flow.round({
      capital: { role: 'assistant', content: { type: 'text', text: 'Paris' }, model: 'm' },
      roots: { roots: [{ uri: 'file:///home' }] },
    })
    expect(returned(right)).toEqual([{ type: 'text', text: 'Paris' }, 'file:///home'])
  })
})

describe('R3 asked and answered', () => {
  it('R3 accepts a valid answer without any state for a plain ask, but never for a confirmation', async () => {
    const plain = replayFlow(async (ctx) => (await ctx.ask('q', textQuestion())).value)
    expect(returned(await plain.round({ q: accept({ value: 'early' }) }))).toBe('early')
    const confirm = replayFlow((ctx) => ctx.confirm('q', 'Delete everything?'))
    expect(askedKeys(await confirm.round({ q: accept({ confirm: true }) }))).toEqual(['q'])
    expect(returned(await confirm.round({ q: accept({ confirm: true }) }))).toBe(true)
  })

  it('R3 confirms only on an explicit yes', async () => {
    for (const [answer, expected] of [
      [accept({ confirm: true }), true],
      [accept({ confirm: false }), false],
      [{ action: 'decline' }, false],
      [{ action: 'cancel' }, false],
    ] as const) {
      const flow = replayFlow((ctx) => ctx.confirm('q', 'Delete?'))
      await flow.round()
      expect(returned(await flow.round({ q: answer }))).toBe(expected)
    }
    const odd = replayFlow((ctx) => ctx.confirm('q', 'Delete?'))
    await odd.round()
    expect(askedKeys(await odd.round({ q: accept({ confirm: 'true' }) }))).toEqual(['q'])
    expect(askedKeys(await odd.round({ q: accept({}) }))).toEqual(['q'])
  })

  it('R3 asks a reworded question again instead of using the answer to the old one', async () => {
    const confirm = (what: string) => (ctx: Parameters<Parameters<typeof replayFlow>[0]>[0]) =>
      ctx.confirm('sure', `Delete ${what}?`)
    const flow = replayFlow(confirm('a file'))
    await flow.round()
    const reworded = await flow.round({ sure: accept({ confirm: true }) }, { handler: confirm('everything') })
    expect(askedKeys(reworded)).toEqual(['sure'])
  })

  it('R3 invalidates a recorded answer whose question has been reworded', async () => {
    const version = (wording: string) => async (ctx: Parameters<Parameters<typeof replayFlow>[0]>[0]) => {
      const sure = await ctx.confirm('sure', wording)
      const name = await ctx.ask('name', textQuestion())
      return `${sure} ${name.value}`
    }
    const flow = replayFlow(version('Delete one?'))
    await flow.round()
    await flow.round({ sure: accept({ confirm: true }) })
    const next = await flow.round({ name: accept({ value: 'x' }) }, { handler: version('Delete all?') })
    expect(askedKeys(next)).toEqual(['sure'])
    expect(next.journal.entries).toEqual([])
  })

  it('R3 fails after three attempts if the question changes on every replay', async () => {
    let n = 0
    const flow = replayFlow((ctx) => ctx.ask('q', textQuestion(`It is ${n++} o'clock. Go on?`)))
    await flow.round()
    for (let i = 0; i < 3; i++)
      expect(askedKeys(await flow.round({ q: accept({ value: 'y' }) }))).toEqual(['q'])
    const last = await flow.round({ q: accept({ value: 'y' }) })
    expect(refusal(last)).toBe('REPLAY_QUESTION_CHANGES')
  })
})

describe('a client that cannot show the question', () => {
  const schema = {
    type: 'object',
    properties: {
      region: {
        type: 'string',
        oneOf: [
          { const: 'eu', title: 'Europe' },
          { const: 'us', title: 'us' },
        ],
      },
      note: { type: 'string' },
    },
    required: ['region'],
  }
  const region = { message: 'Where should it\u001b[2J live?', schema, orArgument: 'region' }
  const sentenceOf = async (
    handler: Handler,
    options: FlowOptions = { capabilities: {} },
  ): Promise<string> => {
    const { ending } = await replayFlow(handler, options).round()
    return ending.kind === 'refused' ? ending.error.sentence : ''
  }

  it('B10 reads the question, its choices, that nothing was done, and what to do', async () => {
    expect(await sentenceOf((ctx) => ctx.ask('region', region))).toBe(
      'This client cannot be asked: it lacks the capability elicitation.form. ' +
        'The tool asks the user: "Where should it[2J live?" ' +
        'The answer has region: one of eu (Europe), us; note (optional): a text. ' +
        'Nothing was done. Ask the user, then call again with the argument "region".',
    )
    expect(await sentenceOf((ctx) => ctx.confirm('sure', 'Delete it?'))).toBe(
      'This client cannot be asked: it lacks the capability elicitation.form. ' +
        'The tool asks the user: "Delete it?" The answer has confirm: yes or no. ' +
        'Nothing was done. No argument can stand in for the answer. ' +
        'Do not call it again here; tell the user that this host cannot show questions.',
    )
  })

  it('B10 reads every question of the moment, and the arguments for all of them or none', async () => {
    const sure = (ctx: Pick<Context, 'confirm'>) => ctx.confirm('sure', 'Delete it?')
    const size = { message: 'How large?', schema: z.object({ size: z.int() }), orArgument: ['size', 'unit'] }
    expect(await sentenceOf((ctx) => Promise.all([ctx.ask('region', region), sure(ctx)]))).toMatch(
      /"Where should it.*"Delete it\?".* Nothing was done\. No argument can stand in.*Do not call it again here/,
    )
    expect(
      await sentenceOf((ctx) => Promise.all([ctx.ask('region', region), ctx.ask('size', size)])),
    ).toMatch(/"Where should it.*"How large\?".* call again with the arguments "region", "size", "unit"\.$/)
    const page = { message: 'Sign in', url: 'https://example.com/' }
    expect(await sentenceOf((ctx) => Promise.all([sure(ctx), ctx.visit('page', page), ctx.roots()]))).toMatch(
      /lacks the capability elicitation\.form, elicitation\.url, roots\..*this host cannot do what the tool needs\.$/,
    )
  })

  it('B10 reads of four questions, and how many more there are', async () => {
    const text = await sentenceOf((ctx) =>
      Promise.all(Array.from({ length: 7 }, (_, i) => ctx.confirm(`q${i}`, `Question ${i}?`))),
    )
    expect(text.match(/Question \d\?/g)).toHaveLength(4)
    expect(text).toContain('There are more questions: 3.')
  })

  it('R5 begins no work in the moment in which a question cannot be asked', async () => {
    const ran: string[] = []
    const handler: Handler = (ctx) =>
      Promise.all([
        ctx.effect('before', () => void ran.push('before')),
        ctx.confirm('sure', 'Delete it?'),
        ctx.effect('after', () => void ran.push('after')),
      ])
    expect(await sentenceOf(handler, { capabilities: {}, anchored: true })).toContain('"Delete it?"')
    expect(ran).toEqual([])
  })

  it('B10 ends with the question even if the handler fails or returns in the same moment', async () => {
    const fails: Handler = (ctx) =>
      Promise.all([ctx.confirm('sure', 'Delete it?'), Promise.reject(new Error())])
    expect(await sentenceOf(fails)).toContain('"Delete it?"')
  })

  it('T4 does not see the link, which is for its user alone', async () => {
    const page = { message: 'Sign in', url: 'https://example.com/secret-handle' }
    const text = await sentenceOf((ctx) => ctx.visit('page', page))
    expect(text).toMatch(
      /elicitation\.url.*The tool wants the user to open a page: "Sign in" Nothing was done\./,
    )
    expect(text).not.toContain('secret-handle')
  })

  it('reads that an effect has run, in this round or in an earlier one', async () => {
    const handler: Handler = async (ctx) => {
      await ctx.effect('pay', () => 'paid')
      if (ctx.round === 1 && ctx.can('form')) await ctx.ask('first', textQuestion())
      return ctx.ask('region', region)
    }
    const options = { capabilities: {}, anchored: true }
    const done = /Some of the work of this call is done already; a new call may repeat it\. Ask the user/
    expect(await sentenceOf(handler, options)).toMatch(done)
    const both: Handler = (ctx) => Promise.all([ctx.effect('pay', () => 1), ctx.ask('region', region)])
    expect(await sentenceOf(both, options)).toMatch(
      /Some of the work of this call may be done already; a new call may repeat it\. Ask the user/,
    )
    const entry = { kind: 'effect' as const, key: 'pay', at: 1, result: 'paid' }
    expect(
      await sentenceOf((ctx) => ctx.ask('region', region), {
        ...options,
        journal: { entries: [entry as never] },
      }),
    ).toMatch(done)
  })

  it('reads a text of limited length', async () => {
    const properties = Object.fromEntries(
      Array.from({ length: 150 }, (_, i) => [
        `${i}`.repeat(50),
        { type: 'string', enum: ['x'.repeat(900), 'y'] },
      ]),
    )
    const text = await sentenceOf((ctx) =>
      ctx.ask('a', { message: 'm'.repeat(9999), schema: { type: 'object', properties } }),
    )
    expect(text.length).toBeLessThan(2000)
  })

  it('B17 is asked twice if it accepts without filling in the form, and then reads why the call ended', async () => {
    for (const answer of [{ action: 'accept' }, { action: 'accept', content: {} }]) {
      const flow = replayFlow((ctx) => ctx.ask('region', region))
      await flow.round()
      const again = await flow.round({ region: answer })
      expect(askedKeys(again)).toEqual(['region'])
      const { ending } = await flow.round({ region: answer })
      expect(ending).toMatchObject({
        kind: 'refused',
        error: {
          code: 'INPUT_REJECTED',
          sentence: expect.stringMatching(
            /^This client accepted "region" twice without filling in the form: it seems unable to show it\. The tool asks the user: .* Ask the user, then call again with the argument "region"\.$/,
          ),
        },
      })
    }
  })

  it('R3 never treats an empty accept as a yes', async () => {
    const flow = replayFlow((ctx) => ctx.confirm('sure', 'Delete it?'))
    await flow.round()
    await flow.round({ sure: { action: 'accept', content: {} } })
    expect(refusal(await flow.round({ sure: { action: 'accept', content: {} } }))).toBe('INPUT_REJECTED')
  })

  it('is asked again if it fills in something, even something invalid', async () => {
    const flow = replayFlow((ctx) => ctx.ask('region', region))
    await flow.round()
    await flow.round({ region: { action: 'accept', content: {} } })
    await flow.round({ region: accept({ region: 'mars' }) })
    await flow.round({ region: { action: 'accept', content: {} } })
    expect(returned(await flow.round({ region: accept({ region: 'Europe' }) }))).toEqual({ region: 'eu' })
  })
})

it('R2 the journal records a choice by its value, however the client spelled it', async () => {
  const schema = {
    type: 'object',
    properties: {
      tags: {
        type: 'array',
        items: {
          anyOf: [
            { const: 'a', title: 'Ah' },
            { const: 'b', title: 'Be' },
          ],
        },
      },
    },
  }
  const recorded: unknown[] = []
  for (const tags of [['a', 'b'], ['Ah', 'Be'], 'Ah, Be', '["a","Be"]']) {
    const flow = replayFlow(async (ctx) => {
      const answer = await ctx.ask('tags', { message: 'Which?', schema })
      await ctx.ask('more', textQuestion())
      return answer
    })
    await flow.round()
    await flow.round({ tags: accept({ tags: tags as never, other: 'dropped' }) })
    recorded.push((flow.journal.entries[0] as { answer?: unknown }).answer)
    expect(returned(await flow.round({ more: accept({ value: 'x' }) }))).toEqual({ tags: ['a', 'b'] })
  }
  expect(new Set(recorded.map((answer) => JSON.stringify(answer)))).toEqual(
    new Set(['{"action":"accept","content":{"tags":["a","b"]}}']),
  )
})

it('R3 the id of a page to visit is derived from the flow, and is no part of the digest', async () => {
  const visit: Handler = (ctx) => ctx.visit('page', { message: 'Sign in', url: 'https://example.com/' })
  const ask = async (options?: FlowOptions) => {
    const flow = replayFlow(visit, options)
    const { ending } = await flow.round()
    const again = await flow.round()
    expect(again.ending).toEqual(ending)
    if (ending.kind !== 'asking') throw new Error('expected a question')
    const { request, digest } = ending.questions.get('page') ?? {}
    const params = request?.params as { elicitationId?: string } | undefined
    return { digest, id: params?.elicitationId }
  }
  const [one, other] = [await ask(), await ask({ journal: { seed: 'another' } })]
  expect(one.id).toMatch(/^[0-9a-f]{32}$/)
  expect(other.id).not.toBe(one.id)
  expect(other.digest).toBe(one.digest)
})

describe('an answer that arrives while the handler runs', () => {
  const digestOf = async (question = textQuestion()): Promise<string> => {
    const flow = replayFlow((ctx) => ctx.ask('q', question))
    await flow.round()
    return flow.asked.q ?? ''
  }
  const moment = () => new Promise<void>((resolve) => idle(() => idle(resolve)))
  const hooks = { open: async () => 'id', close: async () => {} }

  /** Runs a turn of a task. `during` is called while the step `slow` runs, and passes on what arrives. */
  async function turn(
    handler: (ctx: Parameters<Handler>[0], slow: () => Promise<void>, now: { now: number }) => unknown,
    during: (tell: (answer: unknown, digest: string) => boolean) => unknown,
  ) {
    const gate = deferredPromise()
    let arrival: (arrived: Arrival) => boolean = () => false
    const flow: ReturnType<typeof replayFlow> = replayFlow((ctx) =>
      handler(ctx, () => ctx.step('slow', () => gate.promise), flow.clock),
    )
    const running = flow.round(undefined, {
      input: { hooks },
      sleeping: { parks: true },
      onArrival: (tell) => {
        arrival = tell
      },
    })
    await moment()
    await during((answer, digest) => arrival({ question: 'q', digest, answer }))
    await moment()
    gate.resolve()
    const report = await running
    return { ...report, answers: report.journal.entries.filter(({ key }) => key === 'q') }
  }

  it('G4 is taken, even if it arrives before the handler asks', async () => {
    const digest = await digestOf()
    for (const first of ['ask', 'arrive']) {
      const report = await turn(
        async (ctx, slow) => {
          if (first === 'arrive') await slow()
          const [{ value }] = await Promise.all([
            ctx.ask('q', textQuestion()),
            first === 'ask' ? slow() : undefined,
          ])
          return value
        },
        (tell) => expect(tell(accept({ value: 'x' }), digest)).toBe(true),
      )
      expect(returned(report)).toBe('x')
      expect(report.answers).toHaveLength(1)
    }
  })

  it('R3 does not count for a question with other words', async () => {
    const digest = await digestOf(textQuestion('Delete one?'))
    const asks: Handler[] = [
      (ctx) => ctx.ask('q', textQuestion('Delete all?')),
      (ctx) => ctx.offer('q', textQuestion('Delete all?')).peek(),
    ]
    for (const asking of asks) {
      const report = await turn(
        (ctx, slow) => Promise.all([asking(ctx), slow()]),
        (tell) => tell(accept({ value: 'x' }), digest),
      )
      expect(report.answers).toEqual([])
    }
  })

  it('G2 ends the time limit of its question', async () => {
    const digest = await digestOf()
    const { ending } = await turn(
      async (ctx, slow) => {
        await Promise.all([ctx.ask('q', { ...textQuestion(), within: 60_000 }), slow()])
        return ctx.ask('next', textQuestion())
      },
      (tell) => tell(accept({ value: 'x' }), digest),
    )
    expect(ending).toMatchObject({ kind: 'asking' })
    expect(ending).not.toHaveProperty('wakeAt')
  })

  it('G2 is not recorded beside the end of its time', async () => {
    const digest = await digestOf()
    const expired = deferredPromise()
    const report = await turn(
      async (ctx, slow, clock) => {
        const asked = ctx.ask('q', { ...textQuestion(), within: 1 }).catch((error: Error) => {
          expired.resolve()
          return error.name
        })
        clock.now += 1
        const [outcome] = await Promise.all([asked, slow()])
        return outcome
      },
      async (tell) => {
        await expired.promise
        tell(accept({ value: 'x' }), digest)
      },
    )
    expect(returned(report)).toBe('InputExpired')
    expect(report.answers).toEqual([expect.objectContaining({ expired: true })])
  })

  it('G5 is not recorded for an offer that was withdrawn', async () => {
    const digest = await digestOf()
    const controls: number[] = []
    for (const isWithdrawn of [true, false]) {
      const report = await turn(
        async (ctx, slow) => {
          const offer = ctx.offer('q', textQuestion())
          if (isWithdrawn) offer.withdraw()
          await slow()
        },
        (tell) => tell(accept({ value: 'x' }), digest),
      )
      controls.push(report.answers.length)
    }
    expect(controls).toEqual([0, 1])
  })
})
