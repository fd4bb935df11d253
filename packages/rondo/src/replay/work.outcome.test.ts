import { AsyncLocalStorage } from 'node:async_hooks'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  accept,
  askedKeys,
  deferredPromise,
  type Handler,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { type ErrorCode, RondoError } from '../errors.ts'
import type { ReplayInput, Scope } from './input.ts'
import { originOf } from './work.ts'

/** Waits until the handler, and everything that it has begun, has nothing left to do. */
async function moment(): Promise<void> {
  for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve))
}

describe('the outcome of a step', () => {
  it('R7 is recorded without a value if it has none', async () => {
    const { journal } = await replayFlow((ctx) => ctx.step('s', () => {})).round()
    expect(journal.entries).toStrictEqual([{ kind: 'step', key: 's', at: 1_000_000 }])
  })

  it.each<ErrorCode>(['STORE_UNAVAILABLE', 'STORE_BUSY', 'REPLAY_NOT_JSON'])(
    'R7 is unknown after %s, so the call ends and nothing is recorded',
    async (code) => {
      const report = await replayFlow((ctx) =>
        ctx.step('s', () => Promise.reject(new RondoError(code))).catch(() => 'caught'),
      ).round()
      expect(refusal(report)).toBe(code)
      expect(report.journal.entries).toEqual([])
    },
  )

  it.each<[string, unknown]>([
    ['another error of ours', new RondoError('PEER_CAPABILITY')],
    ['an error that looks like one', Object.assign(new Error('x'), { code: 'STORE_BUSY' })],
  ])('R7 is recorded after %s', async (_what, thrown) => {
    const report = await replayFlow((ctx) =>
      ctx.step('s', () => Promise.reject(thrown)).catch(() => 'caught'),
    ).round()
    expect(returned(report)).toBe('caught')
    expect(report.journal.entries).toHaveLength(1)
  })

  it('R7 is not recorded after the handler has returned', async () => {
    const gate = deferredPromise()
    const written: string[] = []
    const flow = replayFlow((ctx) =>
      Promise.race([ctx.step('fast', () => 1), ctx.step('slow', () => gate.promise)]),
    )
    const running = flow.round(undefined, { persist: async ({ key }) => void written.push(key) })
    await moment()
    gate.resolve()
    const { ending, journal } = await running
    expect(ending.kind).toBe('returned')
    expect(journal.entries.map(({ key }) => key)).toEqual(['fast'])
    expect(written).toEqual(['fast'])
  })

  it('has only the members that were thrown', async () => {
    const seen: unknown[] = []
    const throws =
      (thrown: unknown): Handler =>
      (ctx) =>
        ctx.step('s', () => Promise.reject(thrown)).catch((error: Error) => seen.push(error))
    for (const thrown of [
      new Error('plain'),
      Object.assign(new Error('coded'), { code: 7 }),
      'text',
      undefined,
    ])
      await replayFlow(throws(thrown)).round()
    const [plain, coded, text, nothing] = seen as [Error, Error, Error, Error]
    expect(plain).not.toHaveProperty('code')
    expect(coded).toMatchObject({ message: 'coded', code: 7 })
    expect(text).toMatchObject({ name: 'Error', message: 'text' })
    // What is no error has no place where it came from.
    for (const error of [text, nothing]) expect(originOf(error)).toBe(error)
  })
})

describe('an answer in a replay', () => {
  it('is counted as replayed', async () => {
    const flow = replayFlow(async (ctx) => {
      await ctx.ask('a', textQuestion())
      await ctx.ask('b', textQuestion())
      await ctx.ask('c', textQuestion())
    })
    for (const answers of [undefined, { a: accept({ value: '' }) }]) await flow.round(answers)
    const { replayed, executed } = await flow.round({ b: accept({ value: '' }) })
    expect([replayed, executed]).toEqual([1, 0])
    expect((await flow.round()).replayed).toBe(2)
  })

  it('B17 is asked again if its validation has become stricter', async () => {
    const asks =
      (isStrict: boolean): Handler =>
      async (ctx) => {
        const schema = z.object({
          value: z.string().refine((value) => !isStrict || value === 'right', 'Wrong'),
        })
        const { value } = await ctx.ask('q', { message: 'Which?', schema })
        await ctx.ask('last', textQuestion())
        return value
      }
    const flow = replayFlow(asks(false), { limits: { maxReasks: 1 } })
    await flow.round()
    await flow.round({ q: accept({ value: 'loose' }) })
    const report = await flow.round({}, { handler: asks(true) })
    expect(askedKeys(report)).toEqual(['q'])
    expect(report.ending).toMatchObject({ questions: new Map([['q', expect.anything()]]) })
    expect(flow.journal).toMatchObject({
      entries: [],
      reasks: { q: { misfits: 1, problem: expect.any(String) } },
    })
    expect(askedKeys(await flow.round({ q: accept({ value: 'right' }) }, { handler: asks(true) }))).toEqual([
      'last',
    ])
    const impatient = replayFlow(asks(false), { limits: { maxReasks: 0 } })
    await impatient.round()
    await impatient.round({ q: accept({ value: 'loose' }) })
    expect(refusal(await impatient.round({}, { handler: asks(true) }))).toBe('INPUT_REJECTED')
  })

  it('B17 is offered again if the validation of an offer has become stricter', async () => {
    const offers =
      (isStrict: boolean): Handler =>
      async (ctx) => {
        const schema = z.object({
          value: z.string().refine((value) => !isStrict || value === 'right', 'Wrong'),
        })
        const { action } = await ctx.offer('tip', { message: 'Any tip?', schema })
        await ctx.ask('last', textQuestion())
        return action
      }
    const flow = replayFlow(offers(false))
    const shown: string[] = []
    const input: Partial<ReplayInput> = {
      hooks: { open: async () => 'id', close: async () => {} },
      async publish(questions) {
        for (const { request, digest } of questions.values()) {
          shown.push((request.params as { message: string }).message)
          flow.asked = { tip: digest }
        }
      },
    }
    await flow.round(undefined, { input })
    const asked = replayFlow((ctx) =>
      ctx.ask('tip', { message: 'Any tip?', schema: z.object({ value: z.string() }) }),
    )
    await asked.round()
    flow.asked = asked.asked
    expect(askedKeys(await flow.round({ tip: accept({ value: 'loose' }) }, { input }))).toEqual(['last'])
    const { ending, journal } = await flow.round({}, { handler: offers(true), input })
    expect(ending).toMatchObject({ kind: 'asking', events: new Set(['tip']) })
    expect(journal.entries).toEqual([])
    expect(shown).toEqual(['Any tip?', 'Value: Wrong. Any tip?'])
  })
})

describe('telemetry', () => {
  it('observes each attempt, with its number, and each result that is replayed', async () => {
    const seen: unknown[] = []
    const observed = {
      replayed: (kind: string, key: string) => void seen.push(`${kind} ${key} replayed`),
      work(kind: string, key: string, act: () => unknown, attempt: number) {
        seen.push(`${kind} ${key} ${attempt}`)
        return act()
      },
    }
    const flow = replayFlow(
      async (ctx) => {
        await ctx.step('look', ({ attempt }) => (attempt === 1 ? Promise.reject(new Error('x')) : 1), {
          retry: { delay: 0 },
        })
        await ctx.effect('pay', () => 1)
        await ctx.ask('q', textQuestion())
      },
      { anchored: true },
    )
    const input = { observed: observed as never }
    await flow.round(undefined, { input })
    await flow.round({}, { input })
    expect(seen).toEqual([
      'step look 1',
      'step look 2',
      'effect pay 1',
      'step look replayed',
      'effect pay replayed',
    ])
  })
})

describe('the storage that marks running work', () => {
  function createScope(disable?: () => void) {
    const storage = new AsyncLocalStorage<object>()
    let disabled = 0
    const scope: Scope = {
      running: 0,
      storage: {
        run: (mark, fn) => storage.run(mark, fn),
        getStore: () => storage.getStore(),
        disable() {
          disabled += 1
          disable?.()
        },
      },
    }
    return { scope, disabled: () => disabled }
  }

  it('is disabled when no work runs any more, because it slows down every promise', async () => {
    const gates = [deferredPromise(), deferredPromise()]
    const { scope, disabled } = createScope()
    const flow = replayFlow((ctx) =>
      Promise.allSettled([
        ctx.step('a', () => gates[0]?.promise),
        ctx.step('b', () => gates[1]?.promise.then(() => Promise.reject(new Error('x')))),
      ]),
    )
    const running = flow.round(undefined, { platform: { scope } })
    await moment()
    expect([scope.running, disabled()]).toEqual([2, 0])
    gates[0]?.resolve()
    await moment()
    expect([scope.running, disabled()]).toEqual([1, 0])
    gates[1]?.resolve()
    await running
    expect([scope.running, disabled()]).toEqual([0, 1])
  })

  it('stays enabled on platforms that cannot disable it', async () => {
    const { scope } = createScope(() => {
      throw new Error('not implemented')
    })
    const flow = replayFlow((ctx) => ctx.step('s', () => 1))
    expect(returned(await flow.round(undefined, { platform: { scope } }))).toBe(1)
  })
})

describe('a run in which nothing new may happen', () => {
  it('R9 M1 is not stopped by a full journal, because it looks for everything that is recorded', async () => {
    const handler: Handler = (ctx) => Promise.all([ctx.ask('q', textQuestion()), ctx.step('s', () => 1)])
    for (const [frozen, kind] of [
      [false, 'refused'],
      [true, 'returned'],
    ] as const) {
      const flow = replayFlow(handler, { limits: { maxEntries: 1 } })
      await flow.round()
      const { ending } = await flow.round({ q: accept({ value: 'x' }) }, { input: { frozen } })
      expect(ending.kind).toBe(kind)
    }
  })

  it('shows and withdraws nothing', async () => {
    const seen: string[] = []
    const input: Partial<ReplayInput> = {
      frozen: true,
      hooks: { open: async () => 'id', close: async () => {} },
      publish: async () => void seen.push('shown'),
      withdraw: async () => void seen.push('withdrawn'),
    }
    const flow = replayFlow((ctx) => void ctx.offer('tip', textQuestion()).withdraw())
    expect((await flow.round(undefined, { input })).ending.kind).toBe('returned')
    expect(seen).toEqual([])
  })
})
