import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  accept,
  askedKeys,
  deferredPromise,
  type Handler,
  type RoundOptions,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { type Arrival, CAN_LEAVE } from './input.ts'
import type { OpenQuestion } from './run-state.ts'

/** Waits until the handler, and everything that it has begun, has nothing left to do. */
async function moment(): Promise<void> {
  for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve))
}

/** A carrier that can show questions while the handler works, and what it showed each time. */
function showing(): { readonly shown: string[][]; readonly publish: RoundOptions['input'] & object } {
  const shown: string[][] = []
  const publish = async (questions: ReadonlyMap<string, OpenQuestion>) =>
    void shown.push([...questions.keys()])
  return { shown, publish: { publish } }
}

describe('a run that has ended', () => {
  it('delivers nothing more to the handler', async () => {
    const seen: string[] = []
    const flow = replayFlow(async (ctx) => {
      const [a, b] = ['a', 'b'].map((name) => ctx.step(name, () => name).then((value) => seen.push(value)))
      await a
      if (seen.length === 1) return 'first'
      await b
      await ctx.ask('q', textQuestion())
    })
    // In the first run both results are known; the replay returns after the first of them.
    const both: Handler = async (ctx) => {
      await Promise.all([ctx.step('a', () => 'a'), ctx.step('b', () => 'b')])
      await ctx.ask('q', textQuestion())
    }
    await flow.round(undefined, { handler: both })
    expect(returned(await flow.round())).toBe('first')
    await moment()
    expect(seen).toEqual(['a'])
  })

  it('passes no checkpoint after its handler has thrown', async () => {
    const seen: string[] = []
    const { ending } = await replayFlow(async (ctx) => {
      void ctx.checkpoint().then(() => seen.push('passed'))
      throw new Error('mine')
    }).round()
    expect(ending).toMatchObject({ kind: 'threw' })
    await moment()
    expect(seen).toEqual([])
  })

  it('R8 names the question, the step or the effect that a race has left open', async () => {
    const left: Record<string, Handler> = {
      asked: (ctx) => Promise.race([ctx.ask('asked', textQuestion()), ctx.step('s', () => 1)]),
      unbegun: (ctx) => Promise.race([ctx.step('unbegun', () => 1), Promise.resolve()]),
      held: (ctx) => Promise.race([ctx.effect('held', () => 1), ctx.step('s', () => 1)]),
    }
    for (const [name, handler] of Object.entries(left)) {
      const report = await replayFlow(handler).round()
      expect(refusal(report)).toBe('REPLAY_NOT_AWAITED')
      expect(report.ending).toMatchObject({
        error: { message: expect.stringContaining(`returned while "${name}" was still open`) },
      })
    }
  })

  it('turn 3: waits for all the work that still runs', async () => {
    const gates = [deferredPromise(), deferredPromise()]
    let ended = false
    const flow = replayFlow((ctx) =>
      Promise.race([
        ctx.step('fast', () => 'fast'),
        ...gates.map(({ promise }, i) => ctx.step(`slow ${i}`, () => promise)),
      ]),
    )
    const round = flow.round().finally(() => {
      ended = true
    })
    await moment()
    gates[0]?.resolve()
    await moment()
    expect(ended).toBe(false)
    gates[1]?.resolve()
    expect(returned(await round)).toBe('fast')
  })

  it('shows no question after it was refused', async () => {
    const gate = deferredPromise()
    const { shown, publish } = showing()
    const flow = replayFlow(
      (ctx) => {
        const asked = ctx.ask('q', textQuestion())
        void ctx.ask('unread', textQuestion())
        return Promise.all([ctx.step('slow', () => gate.promise), ctx.effect('e', () => 1), asked])
      },
      { anchored: true },
    )
    const round = flow.round(undefined, { input: publish })
    await moment()
    gate.resolve()
    expect(refusal(await round)).toBe('REPLAY_NOT_AWAITED')
    expect(shown).toEqual([])
  })
})

describe('a run that waits for something else', () => {
  it('continues when a promise of the author settles', async () => {
    const gate = deferredPromise()
    const flow = replayFlow(async (ctx) => {
      const one = await ctx.step('one', () => 1)
      await gate.promise
      return one + (await ctx.step('two', () => 2))
    })
    const round = flow.round()
    await moment()
    gate.resolve()
    expect(returned(await round)).toBe(3)
  })

  it('turn 1: delivers what was recorded before an answer that is still being read', async () => {
    let gate = deferredPromise()
    const schema = z.object({ value: z.string().refine(() => gate.promise.then(() => true)) })
    const flow = replayFlow(async (ctx) => {
      const first = ctx.step('first', () => 1).then(() => gate.resolve())
      const [, { value }] = await Promise.all([first, ctx.ask('q', { message: 'Value?', schema })])
      await ctx.ask('last', textQuestion())
      return value
    })
    await flow.round()
    await flow.round({ q: accept({ value: 'x' }) })
    gate = deferredPromise()
    expect(returned(await flow.round({ last: accept({ value: '' }) }))).toBe('x')
  })
})

describe('questions beside work', () => {
  it('are shown while the work goes on, each once', async () => {
    const gates = [deferredPromise(), deferredPromise(), deferredPromise()]
    const { shown, publish } = showing()
    const flow = replayFlow((ctx) =>
      Promise.all([
        ctx.ask('first', textQuestion()),
        ctx.step('a', () => gates[0]?.promise).then(() => ctx.ask('second', textQuestion())),
        ctx.step('b', () => gates[1]?.promise),
        ctx.step('c', () => gates[2]?.promise),
      ]),
    )
    const round = flow.round(undefined, { input: publish })
    for (const gate of gates) {
      await moment()
      gate.resolve()
    }
    expect(askedKeys(await round)).toEqual(['first', 'second'])
    expect(shown).toEqual([['first'], ['second']])
  })

  it('are not shown if nothing else runs: then they go out with the end of the run', async () => {
    const { shown, publish } = showing()
    expect(
      askedKeys(await replayFlow((ctx) => ctx.ask('q', textQuestion())).round(undefined, { input: publish })),
    ).toEqual(['q'])
    expect(shown).toEqual([])
  })

  it('go out at once where nothing can be shown meanwhile', async () => {
    const gate = deferredPromise()
    const flow = replayFlow((ctx) =>
      Promise.all([ctx.ask('q', textQuestion()), ctx.step('slow', () => gate.promise)]),
    )
    const round = flow.round()
    await moment()
    gate.resolve()
    expect(askedKeys(await round)).toEqual(['q'])
  })

  it('an answer that arrives meanwhile closes its question', async () => {
    const gate = deferredPromise()
    let tell: (arrived: Arrival) => boolean = () => false
    let digest = ''
    const flow = replayFlow((ctx) =>
      Promise.all([
        ctx.ask('q', textQuestion()).then(({ value }) => value),
        ctx.step('slow', () => gate.promise).then(() => ctx.ask('last', textQuestion())),
      ]),
    )
    const round = flow.round(undefined, {
      onArrival: (arrival) => {
        tell = arrival
      },
      input: {
        publish: async (questions) => {
          digest = questions.get('q')?.digest ?? ''
        },
      },
    })
    await moment()
    expect(tell({ question: 'q', digest, answer: accept({ value: 'x' }) })).toBe(true)
    await moment()
    gate.resolve()
    const report = await round
    expect(askedKeys(report)).toEqual(['last'])
    expect(report.journal.entries.map(({ key }) => key)).toEqual(['q', 'slow'])
  })
})

describe('a call that is released', () => {
  it('turn 3: records the work that runs when it stops at a checkpoint', async () => {
    const gate = deferredPromise()
    const flow = replayFlow((ctx) =>
      Promise.all([
        ctx.step('slow', () => gate.promise),
        ctx.step('fast', () => 1).then(() => ctx.checkpoint()),
      ]),
    )
    const round = flow.round(undefined, { mayMove: (executed) => (executed > 0 ? 'drain' : undefined) })
    await moment()
    gate.resolve()
    const { ending, journal } = await round
    expect(ending).toEqual({ kind: 'moved', reason: 'drain' })
    expect(journal.entries.map(({ key }) => key).sort()).toEqual(['fast', 'slow'])
  })

  it('asks what is open instead of a move without a question', async () => {
    const flow = replayFlow((ctx) =>
      Promise.all([ctx.ask('q', textQuestion()), ctx.step('a', () => 1).then(() => ctx.step('b', () => 2))]),
    )
    const report = await flow.round(undefined, {
      mayMove: (executed) => (executed > 0 ? 'drain' : undefined),
    })
    expect(askedKeys(report)).toEqual(['q'])
  })

  it('becomes a task if it was to, even if its instance wants to release it meanwhile', async () => {
    const flow = replayFlow((ctx) => Promise.all([ctx.background(), ctx.step('work', () => 1)]))
    const { ending } = await flow.round(undefined, {
      mayMove: (executed) => (executed > 0 ? 'drain' : undefined),
      input: { background: CAN_LEAVE },
    })
    expect(ending).toEqual({ kind: 'background' })
  })
})

describe('an effect before the client holds the id of the flow', () => {
  it('R6 is held back, even beside a checkpoint', async () => {
    let ran = 0
    const flow = replayFlow((ctx) => Promise.all([ctx.effect('e', () => void ran++), ctx.checkpoint()]))
    expect((await flow.round()).ending).toEqual({ kind: 'moved', reason: 'effect' })
    expect(ran).toBe(0)
    await flow.round()
    expect(ran).toBe(1)
  })

  it('R6 begins as soon as an answer shows that the client has it', async () => {
    const gate = deferredPromise()
    const ran = deferredPromise()
    let tell: (arrived: Arrival) => boolean = () => false
    const flow = replayFlow((ctx) =>
      Promise.all([
        ctx.effect('e', () => ran.resolve()),
        ctx.ask('q', textQuestion()),
        ctx.step('slow', () => gate.promise),
      ]),
    )
    const round = flow.round(undefined, {
      onArrival: (arrival) => {
        tell = arrival
      },
    })
    await moment()
    tell({ question: 'another', digest: '', answer: null })
    await ran.promise
    gate.resolve()
    const report = await round
    expect(askedKeys(report)).toEqual(['q'])
    expect(report.journal.entries.map(({ key }) => key)).toEqual(['e', 'slow'])
  })
})
