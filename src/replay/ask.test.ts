import { describe, expect, it } from 'vitest'
import {
  accept,
  askedKeys,
  deferredPromise,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../test/support/replay-flow.ts'
import { InputCancelled, InputDeclined } from '../errors.ts'
import { idle } from '../lib/idle.ts'

describe('asking', () => {
  it('R8 suspends at a question and goes on with the answer', async () => {
    const flow = replayFlow(async (ctx) => `Hello ${(await ctx.ask('name', textQuestion())).value}`)
    expect(askedKeys(await flow.round())).toEqual(['name'])
    expect(returned(await flow.round({ name: accept({ value: 'Ada' }) }))).toBe('Hello Ada')
  })

  it('sends the questions of one moment in one round, nested and beside steps', async () => {
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

  it('finishes and remembers a step that runs while a question is open', async () => {
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

  it('B18 tells decline, cancel and a missing answer apart', async () => {
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

  it('B18 throws a decline and a cancel at the author, who may catch them, and never asks again', async () => {
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

  it('remembers a decline: the next round does not ask again', async () => {
    const flow = replayFlow(async (ctx) => {
      const first = await ctx.elicit('first', textQuestion())
      const second = await ctx.ask('second', textQuestion())
      return `${first.action} ${second.value}`
    })
    await flow.round()
    expect(askedKeys(await flow.round({ first: { action: 'decline' } }))).toEqual(['second'])
    expect(returned(await flow.round({ second: accept({ value: 'x' }) }))).toBe('decline x')
  })

  it('B17 asks again and says what was wrong, three times, and then gives up', async () => {
    const flow = replayFlow(async (ctx) => (await ctx.ask('q', textQuestion('Your name?'))).value)
    await flow.round()
    for (let i = 0; i < 3; i++) {
      const { ending } = await flow.round({ q: accept({ value: 5 }) })
      if (ending.kind !== 'asking') throw new Error('should ask again')
      const request = ending.questions.get('q')?.request
      expect(request?.method === 'elicitation/create' && request.params.message).toMatch(/.+\n\nYour name\?$/)
    }
    expect(refusal(await flow.round({ q: accept({ value: 5 }) }))).toBe('INPUT_REJECTED')
  })

  it('takes a good answer after a bad one', async () => {
    const flow = replayFlow(async (ctx) => (await ctx.ask('q', textQuestion())).value)
    await flow.round()
    await flow.round({ q: accept({ value: 5 }) })
    expect(returned(await flow.round({ q: accept({ value: 'five' }) }))).toBe('five')
  })

  it('B15 P12 ignores answers to what was not asked', async () => {
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

  it('B10 ends the call where the client cannot be asked, past any catch of the author', async () => {
    const kinds: [string, (ctx: Parameters<Parameters<typeof replayFlow>[0]>[0]) => Promise<unknown>][] = [
      ['form', (ctx) => ctx.ask('q', textQuestion())],
      ['confirm', (ctx) => ctx.confirm('q', 'Delete?')],
      ['url', (ctx) => ctx.visit('q', { message: 'Open', url: 'https://example.com/' })],
      ['sampling', (ctx) => ctx.sample('q', { messages: [], maxTokens: 1 })],
      ['roots', (ctx) => ctx.roots()],
    ]
    for (const [name, asks] of kinds) {
      const flow = replayFlow((ctx) => asks(ctx).catch(() => 'went on unconfirmed'), { capabilities: {} })
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

  it('asks a model and for roots, and checks the shape of what comes back', async () => {
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
  it('R3 takes an answer without any state for a plain ask that it fits, never for a confirmation', async () => {
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

  it('R3 asks a reworded question again instead of taking the old answer for it', async () => {
    const confirm = (what: string) => (ctx: Parameters<Parameters<typeof replayFlow>[0]>[0]) =>
      ctx.confirm('sure', `Delete ${what}?`)
    const flow = replayFlow(confirm('a file'))
    await flow.round()
    const reworded = await flow.round({ sure: accept({ confirm: true }) }, { handler: confirm('everything') })
    expect(askedKeys(reworded)).toEqual(['sure'])
  })

  it('R3 voids a recorded answer whose question was reworded since', async () => {
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

  it('R3 fails after three times when the question changes on every replay', async () => {
    let n = 0
    const flow = replayFlow((ctx) => ctx.ask('q', textQuestion(`It is ${n++} o'clock. Go on?`)))
    await flow.round()
    for (let i = 0; i < 3; i++)
      expect(askedKeys(await flow.round({ q: accept({ value: 'y' }) }))).toEqual(['q'])
    const last = await flow.round({ q: accept({ value: 'y' }) })
    expect(refusal(last)).toBe('REPLAY_QUESTION_CHANGES')
  })
})
