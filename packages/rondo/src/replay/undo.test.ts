import { describe, expect, it } from 'vitest'
import {
  accept,
  askedKeys,
  deferredPromise,
  type ReplayFlow,
  type RoundOptions,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { RondoError } from '../errors.ts'
import type { BegunEffect, Journal } from '../journal/journal.ts'
import type { Context, EffectOptions } from '../tool/context.ts'
import type { ReplayInput, Undoable, UndoNews } from './input.ts'
import type { RunReport } from './run-state.ts'

/** Waits until the handler, and everything that it has begun, has nothing left to do. */
async function moment(): Promise<void> {
  for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve))
}

interface Kept {
  readonly news: UndoNews
  readonly begun: readonly string[]
  readonly entries: readonly string[]
}

interface Undone {
  readonly name: string
  readonly result: unknown
  readonly key: string
  readonly effectKey: string
  readonly ran: string
}

/** A call whose carrier keeps what can be undone, and what happened in it. */
interface Trip {
  readonly flow: ReplayFlow
  readonly kept: Kept[]
  readonly begun: (readonly [BegunEffect, string | undefined])[]
  readonly undone: Undone[]
  round(
    answers?: Record<string, unknown>,
    input?: Partial<ReplayInput>,
    undoing?: Partial<ReplayInput['undoing'] & object>,
    platform?: RoundOptions['platform'],
  ): Promise<RunReport>
}

type Book = (ctx: Context, name: string, options?: EffectOptions, act?: () => unknown) => Promise<unknown>

function createTrip(handler: (ctx: Context, book: Book) => unknown): Trip {
  const kept: Kept[] = []
  const begun: (readonly [BegunEffect, string | undefined])[] = []
  const undone: Undone[] = []
  const book: Book = (ctx, name, options, act = () => ({ name })) => {
    const undo: EffectOptions['undo'] = (result, { key, effectKey, ran }) =>
      void undone.push({ name, result, key, effectKey, ran })
    return ctx.effect(name, act, { undo, ...options } as never)
  }
  const flow = replayFlow((ctx) => handler(ctx, book), { anchored: true })
  return {
    flow,
    kept,
    begun,
    undone,
    round: (answers, input, undoing, platform) =>
      flow.round(answers, {
        platform,
        input: {
          undoing: {
            isLinear: true,
            keep: async (journal: Journal, news: UndoNews) =>
              void kept.push({
                news,
                begun: journal.begun?.map(({ key }) => key) ?? [],
                entries: journal.entries.map(({ key }) => key),
              }),
            ...undoing,
          } as never,
          persistBegun: async (...args) => void begun.push(args),
          ...input,
        },
      }),
  }
}

describe('an effect that can be undone', () => {
  it('undo 1: is known before it begins, and its result before the handler has it', async () => {
    const seen: string[][] = []
    const trip = createTrip(async (ctx, book) => {
      const look = (): void => void seen.push(trip.kept.map(({ news }) => news))
      await book(ctx, 'flight', {}, look)
      look()
      await book(ctx, 'hotel')
      return 'booked'
    })
    expect(returned(await trip.round())).toBe('booked')
    expect(seen).toEqual([['intent'], ['intent', 'outcome']])
    expect(trip.kept).toEqual([
      { news: 'intent', begun: ['flight'], entries: [] },
      { news: 'outcome', begun: ['flight'], entries: ['flight'] },
      { news: 'intent', begun: ['flight', 'hotel'], entries: ['flight'] },
      { news: 'outcome', begun: ['flight', 'hotel'], entries: ['flight', 'hotel'] },
    ])
    expect(trip.begun.map(([{ key }]) => key)).toEqual(['flight', 'hotel'])
    expect(trip.begun[0]?.[0].effectKey).toMatch(/^[0-9a-f]{32}$/)
    expect(trip.undone).toEqual([])
  })

  it('undo 1: is noted once, and its intent is written before each attempt', async () => {
    let attempts = 0
    const trip = createTrip((ctx, book) =>
      book(ctx, 'flight', { retry: { delay: 0 } }, () => {
        attempts += 1
        if (attempts < 3) throw new Error('full')
        return attempts
      }),
    )
    expect(returned(await trip.round())).toBe(3)
    expect(trip.kept.map(({ news }) => news)).toEqual(['intent', 'intent', 'intent', 'outcome'])
    expect(trip.begun).toHaveLength(1)
  })

  it('undo 1: is noted with the branch whose slot it claims if it runs once, and without one otherwise', async () => {
    for (const isOnce of [true, false]) {
      const claimed: string[] = []
      const once: ReplayInput['once'] = async (_key, branch, act) => {
        claimed.push(branch)
        return act()
      }
      const trip = createTrip(async (ctx, book) => {
        await ctx.ask('q', textQuestion())
        return book(ctx, 'flight', isOnce ? { once: true } : {})
      })
      await trip.round(undefined, { once })
      expect((await trip.round({ q: accept({ value: 'x' }) }, { once })).ending.kind).toBe('returned')
      expect(claimed).toHaveLength(isOnce ? 1 : 0)
      expect(trip.begun[0]?.[0].branch).toBe(claimed[0])
    }
  })

  it('undo 1: keeps a failure like a result', async () => {
    const trip = createTrip((ctx, book) =>
      book(ctx, 'flight', {}, () => {
        throw new Error('full')
      }),
    )
    expect((await trip.round()).ending).toMatchObject({ kind: 'threw', error: { message: 'full' } })
    expect(trip.kept).toEqual([
      { news: 'intent', begun: ['flight'], entries: [] },
      { news: 'outcome', begun: ['flight'], entries: ['flight'] },
    ])
  })

  it.each<[UndoNews, string[]]>([
    ['intent', []],
    ['outcome', ['ran']],
  ])('undo 1: ends the call if its %s cannot be kept', async (failing, ran) => {
    const seen: string[] = []
    const trip = createTrip((ctx, book) => book(ctx, 'flight', {}, () => void seen.push('ran')))
    const keep = async (_journal: Journal, news: UndoNews): Promise<void> => {
      if (news === failing) throw new RondoError('STORE_UNAVAILABLE')
    }
    const report = await trip.round(undefined, {}, { keep })
    expect(refusal(report)).toBe('STORE_UNAVAILABLE')
    expect(seen).toEqual(ran)
    expect(report.journal.entries).toEqual([])
  })

  it('undo 1: works where nothing else is told about its beginning', async () => {
    const trip = createTrip((ctx, book) => book(ctx, 'flight', {}, () => 'booked'))
    expect(returned(await trip.round(undefined, { persistBegun: undefined }))).toBe('booked')
  })

  it('undo 1: keeps no result that cannot be recorded', async () => {
    const trip = createTrip((ctx, book) => book(ctx, 'flight', {}, () => new Map()))
    expect(refusal(await trip.round())).toBe('REPLAY_NOT_JSON')
    expect(trip.kept.map(({ news }) => news)).toEqual(['intent'])
  })

  it('is held back in a call whose states may count twice', async () => {
    let ran = 0
    const trip = createTrip((ctx, book) =>
      Promise.all([book(ctx, 'flight', {}, () => ran++), ctx.effect('other', () => 1)]),
    )
    const { ending, journal } = await trip.round(undefined, {}, { isLinear: false })
    expect(ending).toEqual({ kind: 'moved', reason: 'effect' })
    expect(ran).toBe(0)
    expect(journal.entries.map(({ key }) => key)).toEqual(['other'])
    expect((await trip.round()).ending.kind).toBe('returned')
    expect(ran).toBe(1)
  })

  it('names a line of history that depends on the answers before it', async () => {
    const lineages: unknown[] = []
    for (const value of ['a', 'b']) {
      const trip = createTrip(async (ctx, book) => {
        await ctx.ask('q', textQuestion())
        await book(ctx, 'flight')
        await ctx.ask('more', textQuestion())
        await book(ctx, 'hotel')
      })
      await trip.round()
      await trip.round({ q: accept({ value }) })
      const { lineage } = trip.flow.journal
      await trip.round({ more: accept({ value: 'c' }) })
      expect(trip.begun.map(([, line]) => line)).toEqual([lineage, lineage])
      lineages.push(lineage)
    }
    expect(lineages[0]).toMatch(/^[\w-]{43}$/)
    expect(lineages[1]).not.toBe(lineages[0])
  })

  it.each<[string, ReplayInput['undoing'], string]>([
    ['no store', undefined, 'An effect with { undo } needs a store: this call has none.'],
    ['a store that cannot', { missing: 'Not here' }, 'An effect with { undo } needs a store: Not here.'],
  ])('needs a store that keeps it: %s', async (_what, undoing, sentence) => {
    let ran = 0
    const trip = createTrip((ctx, book) => book(ctx, 'flight', {}, () => ran++))
    const { ending } = await trip.round(undefined, { undoing })
    expect(ending).toMatchObject({ kind: 'threw', error: expect.any(TypeError) })
    expect(String((ending as { error: unknown }).error)).toContain(sentence)
    expect(ran).toBe(0)
  })

  it('has a name that leaves room for the name of its undo', async () => {
    const ends = (length: number) => createTrip((ctx, book) => book(ctx, 'k'.repeat(length))).round()
    expect((await ends(120)).ending.kind).toBe('returned')
    expect((await ends(121)).ending).toMatchObject({
      kind: 'threw',
      error: { message: expect.stringContaining('at most 120 characters long; got 121') },
    })
  })

  it('R4 takes the name of its undo too, whichever of the two comes first', async () => {
    const before = createTrip(async (ctx, book) => {
      await ctx.step('flight.undo', () => 1)
      await book(ctx, 'flight')
    })
    const after = createTrip(async (ctx, book) => {
      await book(ctx, 'flight')
      await ctx.step('other.undo', () => 1)
      await ctx.step('flight.undo', () => 1)
    })
    for (const trip of [before, after]) expect(refusal(await trip.round())).toBe('REPLAY_NAME_REUSED')
    expect(before.kept).toEqual([])
    expect((await after.round()).ending).toMatchObject({
      error: { message: expect.stringContaining('"flight.undo" is used twice in one run (undo, then step)') },
    })
  })
})

describe('ctx.undo', () => {
  const both = async (ctx: Context, book: Book): Promise<unknown> => {
    await book(ctx, 'flight')
    await book(ctx, 'hotel', {}, () => {})
    await book(ctx, 'car', {}, () => {
      throw new Error('none left')
    }).catch(() => {})
    return ctx.undo()
  }

  it('undo 2: undoes the effects in reverse order, and passes on what is known of each', async () => {
    const trip = createTrip(both)
    const report = await trip.round()
    expect(returned(report)).toEqual({ undone: ['car', 'hotel', 'flight'], failed: [] })
    expect(trip.undone).toMatchObject([
      { name: 'car', result: undefined, ran: 'maybe' },
      { name: 'hotel', result: undefined, ran: 'yes' },
      { name: 'flight', result: { name: 'flight' }, ran: 'yes' },
    ])
    const effectKeys = trip.begun.map(([{ effectKey }]) => effectKey).reverse()
    expect(trip.undone.map(({ effectKey }) => effectKey)).toEqual(effectKeys)
    const keys = trip.undone.map(({ key }) => key)
    for (const key of keys) expect(key).toMatch(/^[0-9a-f]{32}$/)
    expect(new Set([...keys, ...effectKeys]).size).toBe(6)
    expect(trip.kept.at(-1)).toEqual({
      news: 'undo',
      begun: ['flight', 'hotel', 'car'],
      entries: ['flight', 'hotel', 'car', 'car.undo', 'hotel.undo', 'flight.undo'],
    })
  })

  it('undo 4: does not undo again in a replay, nor when it is called twice', async () => {
    const trip = createTrip(async (ctx, book) => {
      const first = await both(ctx, book)
      const second = await ctx.undo()
      await book(ctx, 'train')
      const third = await ctx.undo()
      await ctx.ask('q', textQuestion())
      return [first, second, third]
    })
    expect(askedKeys(await trip.round())).toEqual(['q'])
    expect(trip.undone).toHaveLength(4)
    expect(returned(await trip.round({ q: accept({ value: '' }) }))).toEqual([
      { undone: ['car', 'hotel', 'flight'], failed: [] },
      { undone: [], failed: [] },
      { undone: ['train'], failed: [] },
    ])
    expect(trip.undone).toHaveLength(4)
  })

  it('undo 5: keeps what the handler knows before the first undo begins', async () => {
    const seen: (readonly string[] | undefined)[] = []
    const undo = (): void => void seen.push(trip.kept.at(-1)?.entries)
    const trip = createTrip(async (ctx, book) => {
      await book(ctx, 'flight', { undo })
      await book(ctx, 'hotel', { undo })
      await ctx.step('price', () => 100)
      return ctx.undo()
    })
    await trip.round()
    const known = ['flight', 'hotel', 'price']
    expect(seen).toEqual([known, [...known, 'hotel.undo']])
  })

  it('undoes nothing in a call without effects, which needs no store', async () => {
    const trip = createTrip((ctx) => ctx.undo())
    expect(returned(await trip.round(undefined, { undoing: undefined }))).toEqual({ undone: [], failed: [] })
  })

  it('waits for an effect that runs', async () => {
    const gate = deferredPromise()
    const trip = createTrip(async (ctx, book) => {
      const booked = book(ctx, 'flight', {}, () => gate.promise.then(() => 'booked'))
      await ctx.step('work', () => {})
      const undone = ctx.undo()
      await booked
      return undone
    })
    const running = trip.round()
    await moment()
    expect(trip.undone).toEqual([])
    gate.resolve()
    expect(returned(await running)).toEqual({ undone: ['flight'], failed: [] })
    expect(trip.undone).toMatchObject([{ result: 'booked', ran: 'yes' }])
  })

  it('undo 4: retries an undo that fails, reports it if it never works, and goes on with the others', async () => {
    const trip = createTrip(async (ctx, book) => {
      await book(ctx, 'flight')
      await book(ctx, 'hotel', {
        undo() {
          attempts += 1
          throw new Error('closed')
        },
      })
      return ctx.undo()
    })
    let attempts = 0
    const began = trip.flow.clock.now
    const report = await trip.round()
    expect(returned(report)).toEqual({ undone: ['flight'], failed: ['hotel'] })
    // The carrier keeps what was undone; an undo that failed is left to a worker.
    const ended = trip.kept.filter(
      ({ news, entries }) => news === 'undo' && entries.at(-1)?.endsWith('.undo'),
    )
    expect(ended.map(({ entries }) => entries.at(-1))).toEqual(['flight.undo'])
    expect(attempts).toBe(4)
    expect(trip.flow.clock.now - began).toBe(7_000)
    attempts = 0
    const patient = { times: 1, delayMs: 500, factor: 1, maxDelayMs: 500 }
    trip.flow.journal = replayFlow(() => {}).journal
    await trip.round(undefined, {}, { retry: patient })
    expect(attempts).toBe(2)
    expect(trip.flow.clock.now - began).toBe(7_500)
  })

  it('gives up an attempt after its time, or after half a minute, and fires its signal', async () => {
    const limits: number[] = []
    const trip = createTrip(async (ctx, book) => {
      const undo: EffectOptions['undo'] = (_result, info) => {
        signals.push(info.signal)
        return new Promise(() => {})
      }
      await book(ctx, 'flight', { undo })
      await book(ctx, 'hotel', { undo, timeout: '5 s' })
      return ctx.undo()
    })
    const signals: AbortSignal[] = []
    const after = (ms: number, fn: () => void): (() => void) => {
      limits.push(ms)
      const timer = setImmediate(fn)
      return () => clearImmediate(timer)
    }
    const retry = { times: 0, delayMs: 0, factor: 1, maxDelayMs: 0 }
    const report = await trip.round(undefined, {}, { retry }, { after })
    expect(returned(report)).toEqual({ undone: [], failed: ['hotel', 'flight'] })
    expect(report.journal.entries.at(-1)).toMatchObject({
      failure: { message: 'The undo of "flight" did not settle within 30 seconds.' },
    })
    // The first is the time of the effect itself.
    expect(limits).toEqual([5_000, 5_000, 30_000])
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, true])
  })

  it('undo 4: shares nothing with the journal', async () => {
    const trip = createTrip(async (ctx, book) => {
      await book(ctx, 'flight', {
        undo(result) {
          ;(result as { name: string }).name = 'changed'
        },
      })
      return ctx.undo()
    })
    const { journal } = await trip.round()
    expect(journal.entries[0]).toMatchObject({ key: 'flight', value: { name: 'flight' } })
  })

  it('R9 works although the journal is full', async () => {
    const trip = createTrip(async (ctx, book) => {
      await book(ctx, 'flight')
      return ctx.undo()
    })
    const limits = { maxEntries: 1, maxQuestions: 16, maxReasks: 3, maxDeferMs: 1 }
    expect(returned(await trip.round(undefined, { limits: limits as never }))).toEqual({
      undone: ['flight'],
      failed: [],
    })
  })
})

describe('a run that only undoes', () => {
  it('undo 4: calls no handler, and undoes what it is given', async () => {
    let handled = 0
    const trip = createTrip(async (ctx, book) => {
      handled += 1
      await book(ctx, 'flight')
      await book(ctx, 'hotel')
      await ctx.ask('q', textQuestion())
    })
    const first = await trip.round()
    expect(first.undoable.map(({ key }) => key)).toEqual(['flight', 'hotel'])
    const undoes: readonly Undoable[] = first.undoable.slice(0, 1)
    const report = await trip.round(undefined, { undoes })
    expect(returned(report)).toEqual({ undone: ['flight'], failed: [] })
    expect(handled).toBe(1)
    expect(trip.undone.map(({ name }) => name)).toEqual(['flight'])
  })

  it('undo 1: undoes what may have run before a crash, of which nothing is known', async () => {
    const trip = createTrip(() => 'handled')
    const begun = [{ key: 'flight', effectKey: 'k'.repeat(32) }]
    trip.flow.journal = { ...trip.flow.journal, begun, lineage: 'one' }
    const seen: unknown[] = []
    const undoes: readonly Undoable[] = [
      { key: 'flight', undo: (result, { ran }) => void seen.push([result, ran]), settled: Promise.resolve() },
    ]
    expect(returned(await trip.round(undefined, { undoes }))).toEqual({ undone: ['flight'], failed: [] })
    expect(seen).toEqual([[undefined, 'maybe']])
  })

  it('R6 is held back until the client holds the id of the flow', async () => {
    const begun = [{ key: 'flight', effectKey: 'k'.repeat(32) }]
    let ran = 0
    const undoes: readonly Undoable[] = [
      { key: 'flight', undo: () => void ran++, settled: Promise.resolve() },
    ]
    const flow = replayFlow(() => 1, { journal: { begun, lineage: 'one' } })
    const undoing = { isLinear: true, keep: async () => {} }
    const { ending } = await flow.round(undefined, { input: { undoes, undoing } })
    expect(ending).toEqual({ kind: 'moved', reason: 'effect' })
    expect(ran).toBe(0)
  })

  it('refuses the ctx of its handler in an undo function, and no other', async () => {
    let outer: Context | undefined
    const other = replayFlow((ctx) => ctx.step('in', () => 'from inside'))
    const seen: unknown[] = []
    const trip = createTrip(async (ctx, book) => {
      outer = ctx
      await book(ctx, 'flight', {
        async undo() {
          seen.push(returned(await other.round(undefined, { input: { flow: 'another flow' } })))
          seen.push(await outer?.step('nested', () => 1).catch((error: RondoError) => error.code))
        },
      })
      await ctx.ask('q', textQuestion())
    })
    const first = await trip.round()
    await trip.round(undefined, { undoes: first.undoable })
    expect(seen).toEqual(['from inside', 'REPLAY_NESTED'])
  })

  it('reports no effects of a call that has none', async () => {
    expect((await createTrip(() => 1).round()).undoable).toEqual([])
  })
})
