import { describe, expect, it } from 'vitest'
import {
  accept,
  askedKeys,
  deferredPromise,
  type Handler,
  type ReplayFlow,
  type RoundOptions,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { RondoError } from '../errors.ts'
import type { Entry } from '../journal/journal.ts'
import type { Context } from '../tool/context.ts'
import type { Arrival, ReplayInput } from './input.ts'

const PARKS: RoundOptions = { sleeping: { parks: true } }

/** Waits until the handler, and everything that it has begun, has nothing left to do. */
async function moment(): Promise<void> {
  for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve))
}

describe('a call that costs as little as it can', () => {
  it('sets no timer if its handler neither waits nor defers anything', async () => {
    let timers = 0
    const after = () => {
      timers += 1
      return () => {}
    }
    const flow = replayFlow(async (ctx) => {
      await ctx.step('s', () => 1)
      await ctx.ask('q', textQuestion())
      return 'done'
    })
    const platform = { after, rest: after }
    await flow.round(undefined, { platform })
    expect(returned(await flow.round({ q: accept({ value: '' }) }, { platform }))).toBe('done')
    expect(timers).toBe(0)
  })

  it('leaves no timer behind, however it ends', async () => {
    const endings: Record<string, [Handler, RoundOptions?]> = {
      asking: [(ctx) => ctx.ask('q', { ...textQuestion(), within: '1 min' })],
      sleeping: [(ctx) => ctx.sleep('nap', '1 min'), PARKS],
      'sleeping beside work': [
        (ctx) => Promise.all([ctx.sleep('nap', '1 min'), ctx.step('s', () => 1)]),
        PARKS,
      ],
      returned: [(ctx) => Promise.race([ctx.sleep('nap', '5 s'), ctx.step('s', () => 1)])],
      deferred: [(ctx) => ctx.defer(() => {})],
      'timed work': [(ctx) => ctx.step('s', () => 1, { timeout: '5 s' })],
    }
    for (const [name, [handler, options]] of Object.entries(endings)) {
      const open = new Set<object>()
      const after = (ms: number, fn: () => void): (() => void) => {
        const timer = setTimeout(fn, ms)
        open.add(timer)
        return () => {
          clearTimeout(timer)
          open.delete(timer)
        }
      }
      await replayFlow(handler).round(undefined, { ...options, platform: { after, rest: after } })
      await moment()
      expect([name, open.size]).toEqual([name, 0])
    }
  })

  it('keeps no operations that nobody looks at', async () => {
    const handler: Handler = (ctx) => ctx.step('s', () => 1)
    const watched = await replayFlow(handler).round()
    expect(watched.operations).toMatchObject([{ kind: 'step', key: 's' }])
    const report = await replayFlow(handler).round(undefined, { input: { unwatched: true } })
    expect(returned(report)).toBe(1)
    expect(report.operations).toEqual([])
  })
})

describe('R9 limits', () => {
  it('R9 lets as many questions be open as the limit says, and no more', async () => {
    const asks =
      (count: number): Handler =>
      (ctx) =>
        Promise.all(Array.from({ length: count }, (_, i) => ctx.ask(`q${i}`, textQuestion())))
    const limits = { maxQuestions: 2 }
    expect(askedKeys(await replayFlow(asks(2), { limits }).round())).toHaveLength(2)
    expect(refusal(await replayFlow(asks(3), { limits }).round())).toBe('LIMIT_QUESTIONS')
  })

  it('R9 accepts a name of 128 characters, and quotes the beginning of a longer one', async () => {
    const ends = async (length: number) =>
      (await replayFlow((ctx) => ctx.step('k'.repeat(length), () => 1)).round()).ending
    expect(await ends(128)).toEqual({ kind: 'returned', value: 1 })
    expect(await ends(129)).toMatchObject({
      kind: 'threw',
      error: { message: expect.stringContaining(`got "${'k'.repeat(128)}"…, which has 129. `) },
    })
    const { ending } = await replayFlow((ctx) => ctx.step('', () => 1)).round()
    expect(ending).toMatchObject({ error: { message: expect.stringContaining('got "". The next') } })
  })

  it('R9 R3 counts a recorded answer whose question is reworded', async () => {
    const asks =
      (message: string): Handler =>
      async (ctx) => {
        await ctx.ask('q', textQuestion(message))
        await ctx.ask('last', textQuestion())
      }
    const flow = replayFlow(asks('One?'), { limits: { maxReasks: 0 } })
    await flow.round()
    await flow.round({ q: accept({ value: '' }) })
    expect(refusal(await flow.round({}, { handler: asks('Two?') }))).toBe('REPLAY_QUESTION_CHANGES')
  })
})

describe('R4 by name', () => {
  it('R4 writes nothing for an operation whose name is taken', async () => {
    const kept: string[] = []
    const flow = replayFlow((ctx) => Promise.all([ctx.step('s', () => 1), ctx.sleep('s', '1 min')]))
    const persistDeadline = async (key: string) => void kept.push(key)
    expect(refusal(await flow.round(undefined, { ...PARKS, persistDeadline }))).toBe('REPLAY_NAME_REUSED')
    expect(kept).toEqual([])
  })

  it('R4 keeps what was recorded under a name whose kind has changed', async () => {
    const flow = replayFlow(async (ctx) => {
      await ctx.step('s', () => 1)
      await ctx.ask('q', textQuestion())
    })
    await flow.round()
    const report = await flow.round({}, { handler: (ctx) => ctx.ask('s', textQuestion()) })
    expect(refusal(report)).toBe('REPLAY_KIND_CHANGED')
    expect(report.journal.entries).toMatchObject([{ kind: 'step', key: 's', value: 1 }])
  })

  it('R8 writes nothing for what a suspended handler still calls', async () => {
    const kept: string[] = []
    const gate = deferredPromise()
    const flow = replayFlow(async (ctx) => {
      await Promise.race([ctx.ask('q', textQuestion()), gate.promise])
      await ctx.sleep('nap', '1 min')
    })
    const persistDeadline = async (key: string) => void kept.push(key)
    expect(askedKeys(await flow.round(undefined, { ...PARKS, persistDeadline }))).toEqual(['q'])
    gate.resolve()
    await moment()
    expect(kept).toEqual([])
    expect(flow.faults).toEqual([])
  })

  it('R8 does not report what a suspended handler calls after it has returned', async () => {
    const gate = deferredPromise()
    const flow = replayFlow(async (ctx) => {
      void gate.promise.then(moment).then(() => ctx.step('late', () => 1))
      await Promise.race([ctx.ask('q', textQuestion()), gate.promise])
    })
    expect(askedKeys(await flow.round())).toEqual(['q'])
    gate.resolve()
    await moment()
    await moment()
    expect(flow.faults).toEqual([])
  })
})

describe('answers that arrive while the handler runs', () => {
  /** Runs a task whose two questions are open while a step runs. */
  async function turn(
    during: (tell: (arrived: Arrival) => boolean, digests: Record<string, string>) => unknown,
  ) {
    const gate = deferredPromise()
    const digests: Record<string, string> = {}
    let tell: (arrived: Arrival) => boolean = () => false
    const flow: ReplayFlow = replayFlow(async (ctx) => {
      const [a, b] = await Promise.all([
        ctx.ask('a', textQuestion('A?')),
        ctx.ask('b', textQuestion('B?')),
        ctx.step('slow', () => gate.promise),
      ])
      return [a.value, b.value]
    })
    const running = flow.round(undefined, {
      onArrival: (arrival) => {
        tell = arrival
      },
      input: {
        async publish(questions) {
          for (const [key, { digest }] of questions) digests[key] = digest
        },
      },
    })
    await moment()
    await during(tell, digests)
    await moment()
    gate.resolve()
    const report = await running
    return { report, flow, tell }
  }

  it('G4 are taken, each by its own question', async () => {
    const { report, tell } = await turn((arrive, digests) => {
      for (const [key, digest] of Object.entries(digests).reverse())
        expect(arrive({ question: key, digest, answer: accept({ value: `for ${key}` }) })).toBe(true)
    })
    expect(returned(report)).toEqual(['for a', 'for b'])
    expect(tell({ question: 'a', digest: '', answer: null })).toBe(false)
  })

  it('turn 1: have the time at which they are taken, so the times of a journal never go back', async () => {
    const gate = deferredPromise()
    let tell: (arrived: Arrival) => boolean = () => false
    const other = replayFlow((ctx) => ctx.ask('q', textQuestion()))
    await other.round()
    const flow = replayFlow(async (ctx) => {
      await ctx.step('slow', () => gate.promise)
      await ctx.ask('q', textQuestion())
      return 'done'
    })
    const running = flow.round(undefined, {
      onArrival: (arrival) => {
        tell = arrival
      },
    })
    await moment()
    tell({ question: 'q', digest: other.asked.q ?? '', answer: accept({ value: '' }) })
    flow.clock.now += 5
    gate.resolve()
    const { journal } = await running
    expect(journal.entries.map(({ key, at }) => [key, at])).toEqual([
      ['slow', 1_000_005],
      ['q', 1_000_005],
    ])
  })

  it('B15 ignores an answer that is not there', async () => {
    const flow = replayFlow((ctx) => ctx.ask('q', textQuestion()))
    await flow.round()
    expect(askedKeys(await flow.round({ q: undefined }))).toEqual(['q'])
    expect(flow.journal.reasks).toEqual({})
    expect(flow.journal.kept).toBeUndefined()
  })

  it('G2 asks a question again that has no time limit any more', async () => {
    const asks =
      (within?: string): Handler =>
      (ctx) =>
        ctx.ask('q', { ...textQuestion(), within })
    const flow = replayFlow(asks('1 min'))
    await flow.round()
    flow.clock.now += 60_000
    expect(askedKeys(await flow.round({ q: accept({ value: 'late' }) }, { handler: asks() }))).toEqual(['q'])
  })
})

describe('a journal that is written while the handler runs', () => {
  const one: Handler = (ctx) => ctx.step('s', () => 1)

  it('R7 is durable before the handler has the result', async () => {
    const gate = deferredPromise()
    const written: Entry[] = []
    const seen: unknown[] = []
    const flow = replayFlow(async (ctx) => {
      seen.push(await ctx.step('s', () => 1))
      return 'done'
    })
    const running = flow.round(undefined, {
      persist: (entry) => {
        written.push(entry)
        return gate.promise
      },
    })
    await moment()
    expect(written).toMatchObject([{ key: 's' }])
    expect(seen).toEqual([])
    gate.resolve()
    expect(returned(await running)).toBe('done')
    expect(seen).toEqual([1])
  })

  it.each<[string, unknown, string]>([
    ['an error of the store', new RondoError('STORE_UNAVAILABLE'), 'STORE_UNAVAILABLE'],
    ['any other error', new Error('away'), 'SERVER_INTERNAL'],
  ])('R7 ends the call if it cannot be: %s', async (_what, error, code) => {
    const report = await replayFlow(one).round(undefined, { persist: () => Promise.reject(error) })
    expect(refusal(report)).toBe(code)
    const { cause } = (report.ending as { error: Error }).error
    expect(cause).toBe(code === 'SERVER_INTERNAL' ? error : undefined)
  })

  it('R9 names the entry that is too large, and says what to do', async () => {
    const error = new RondoError('LIMIT_STATE_BYTES', 'It has 99 bytes.')
    const report = await replayFlow(one).round(undefined, { persist: () => Promise.reject(error) })
    expect(report.ending).toMatchObject({
      error: {
        code: 'LIMIT_STATE_BYTES',
        message: expect.stringContaining(
          'The step "s" cannot be recorded: It has 99 bytes. Return less from steps',
        ),
        cause: error,
      },
    })
  })
})

describe('what a replay reports', () => {
  it('is reported from the first news on, even if recorded results follow', async () => {
    const logged = ({ notified }: ReplayFlow) => notified.map(({ params }) => params.data)
    const flow = replayFlow(async (ctx) => {
      await ctx.step('old', () => 1)
      await ctx.ask('q', textQuestion())
    })
    const input = { logLevel: 'debug' as const }
    await flow.round(undefined, { input })
    const handler: Handler = async (ctx: Context) => {
      ctx.log('info', 'before')
      await ctx.step('new', () => 1)
      ctx.log('info', 'new')
      await ctx.step('old', () => 1)
      ctx.log('info', 'after')
      await ctx.ask('q', textQuestion())
    }
    await flow.round({}, { handler, input })
    expect(logged(flow)).toEqual(['new', 'after'])
  })

  it('M5 are the labels of a run that only repeats what was recorded before a crash', async () => {
    const written: Record<string, string>[] = []
    const keep = async (labels: ReadonlyMap<string, string>) => void written.push(Object.fromEntries(labels))
    const entries: Entry[] = [
      { kind: 'step', key: 'a', at: 1, value: 1 },
      { kind: 'step', key: 'b', at: 1, value: 2 },
    ]
    const handler: Handler = async (ctx) => {
      ctx.label({ order: '1' })
      await ctx.step('a', () => 1)
      await ctx.step('b', () => 1)
      return 'done'
    }
    const flow = replayFlow(handler, { journal: { entries } })
    expect(returned(await flow.round(undefined, { input: { labelling: { keep } } }))).toBe('done')
    expect(written).toEqual([{ order: '1' }])
    const dev = replayFlow(handler, { dev: true })
    await dev.round(undefined, { input: { labelling: { keep } } })
    expect(written).toHaveLength(2)
  })

  it('is nothing to a trace that does not want to know', async () => {
    const trace: ReplayInput['trace'] = { called: () => {}, keyed: () => {} }
    const flow = replayFlow(
      async (ctx) => {
        ctx.status('working')
        return ctx.effect('e', ({ attempt }) => (attempt === 1 ? Promise.reject(new Error('x')) : 'done'), {
          retry: { delay: 0 },
        })
      },
      { anchored: true },
    )
    expect(returned(await flow.round(undefined, { input: { trace } }))).toBe('done')
  })
})

describe('R11 a mistake of the author that the call does not end with', () => {
  const mistakes: Record<string, Handler> = {
    'a listener that throws': (ctx) => {
      ctx.signal.addEventListener('abort', () => {
        throw new Error('mine')
      })
      return 'done'
    },
    'a deferred function that throws': (ctx) => {
      ctx.defer(() => {
        throw new Error('mine')
      })
      return 'done'
    },
  }

  it.each(Object.entries(mistakes))('R11 is reported: %s', async (_what, handler) => {
    const flow = replayFlow(handler)
    expect(returned(await flow.round())).toBe('done')
    expect(flow.faults).toEqual([new Error('mine')])
  })

  it.each(Object.entries(mistakes))('R11 is ignored where nobody is told: %s', async (_what, handler) => {
    const report = await replayFlow(handler).round(undefined, { input: { onAsideError: undefined } })
    expect(returned(report)).toBe('done')
  })

  it('R11 is ignored where whoever is told throws', async () => {
    const onAsideError = (): void => {
      throw new Error('the log is full')
    }
    const handler = mistakes['a deferred function that throws'] as Handler
    expect(returned(await replayFlow(handler).round(undefined, { input: { onAsideError } }))).toBe('done')
  })
})

describe('N1 an effect beside a question', () => {
  it('N1 begins after a question that was declined, although nothing awaits the effect yet', async () => {
    const flow = replayFlow(
      async (ctx) => {
        await ctx.ask('q', textQuestion()).catch(() => {})
        const effect = ctx.effect('e', () => 'done')
        await ctx.step('s', () => 1)
        return effect
      },
      { anchored: true },
    )
    await flow.round()
    expect(returned(await flow.round({ q: { action: 'decline' } }))).toBe('done')
  })

  it('N1 begins if the question before it settles while it waits for its turn', async () => {
    const flow = replayFlow(
      async (ctx) => {
        const asked = ctx.ask('q', textQuestion()).catch(() => 'declined')
        const effect = ctx.effect('e', () => 'done')
        const outcome = await asked
        return [outcome, await effect]
      },
      { anchored: true },
    )
    await flow.round(undefined, { mayMove: () => 'drain' })
    expect(returned(await flow.round({ q: { action: 'decline' } }))).toEqual(['declined', 'done'])
  })

  it('N1 is reported only if a confirmation lost the race, not another question', async () => {
    const outrun: string[][] = []
    const flow = replayFlow(
      async (ctx) => {
        await Promise.race([ctx.ask('name', textQuestion()), ctx.step('other', () => true)])
        await ctx.effect('act', () => 1)
        return 'done'
      },
      { anchored: true },
    )
    await flow.round(undefined, { onOutrun: (...pair) => void outrun.push(pair) })
    expect(outrun).toEqual([])
  })
})
