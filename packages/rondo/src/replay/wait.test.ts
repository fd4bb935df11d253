import { describe, expect, it } from 'vitest'
import {
  accept,
  askedKeys,
  deferredPromise,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { InputExpired } from '../errors.ts'
import type { Entry } from '../journal/journal.ts'
import type { Context } from '../tool/context.ts'

const PARKS = { sleeping: { parks: true } }
const MINUTE = 60_000

describe('ctx.sleep', () => {
  it('G1 waits in the request and is recorded, so that a replay does not sleep again', async () => {
    const flow = replayFlow(async (ctx) => {
      await ctx.sleep('nap', '5 s')
      const at = ctx.now()
      await ctx.ask('q', textQuestion())
      return at
    })
    const began = flow.clock.now
    expect(askedKeys(await flow.round())).toEqual(['q'])
    expect(flow.clock.now - began).toBe(5000)
    const before = flow.clock.now
    const replayed = await flow.round({ q: accept({ value: 'x' }) })
    expect(returned(replayed)).toBe(began + 5000)
    expect(replayed.replayed).toBe(1)
    expect(flow.clock.now).toBe(before)
  })

  it('G1 parks a task until the first sleep is over, and no replay starts the clock again', async () => {
    const flow = replayFlow(async (ctx) => {
      await Promise.all([ctx.sleep('long', '2 min'), ctx.sleep('short', '1 min')])
      return 'awake'
    })
    const began = flow.clock.now
    expect((await flow.round(undefined, PARKS)).ending).toEqual({
      kind: 'sleeping',
      wakeAt: began + MINUTE,
    })
    flow.clock.now += 30_000
    expect((await flow.round(undefined, PARKS)).ending).toMatchObject({ wakeAt: began + MINUTE })
    flow.clock.now += 31_000
    expect((await flow.round(undefined, PARKS)).ending).toMatchObject({ wakeAt: began + 2 * MINUTE })
    flow.clock.now += 2 * MINUTE
    expect(returned(await flow.round(undefined, PARKS))).toBe('awake')
  })

  it('G1 never sleeps longer than its duration, although the clock that fixed its end was ahead of this one', async () => {
    const flow = replayFlow(async (ctx) => {
      await ctx.sleep('nap', '5 s')
      return 'awake'
    })
    const ahead = 2 * MINUTE
    flow.clock.now += ahead
    expect((await flow.round(undefined, { mayMove: () => 'drain' })).ending.kind).toBe('moved')
    flow.clock.now -= ahead
    const began = flow.clock.now
    expect(returned(await flow.round())).toBe('awake')
    expect(flow.clock.now - began).toBe(5000)
  })

  it('G1 refuses a sleep that is too long for a request before anything later runs', async () => {
    const ran: string[] = []
    const flow = replayFlow(async (ctx) => {
      await ctx.sleep('long', '1 day')
      await ctx.step('later', () => void ran.push('later'))
    })
    const report = await flow.round()
    expect(refusal(report)).toBe('LIMIT_SLEEP')
    expect(report.ending).toMatchObject({
      error: {
        message: expect.stringContaining(
          'The tool sleeps for 1 day ("long"), and a request waits for at most 10 seconds. Not here.',
        ),
      },
    })
    expect(ran).toEqual([])
  })

  it('G1 waits in a request for as long as that may wait, to the millisecond', async () => {
    for (const beyond of ['leave', 'Not here.']) {
      const ends = async (ms: number) => {
        const flow = replayFlow((ctx) => ctx.sleep('nap', ms))
        const { ending } = await flow.round(undefined, { sleeping: { beyond } })
        return [ending.kind, flow.clock.now - 1_000_000]
      }
      expect(await ends(10_000)).toEqual(['returned', 10_000])
      expect((await ends(10_001))[0]).toBe(beyond === 'leave' ? 'background' : 'refused')
      expect(await ends(5_101)).toEqual(['returned', 5_101])
    }
  })

  it('wait 2: ends what is due at one moment in the order of its time', async () => {
    const gate = deferredPromise()
    const seen: string[] = []
    const flow = replayFlow((ctx) =>
      Promise.all([
        ...[3, 1, 2].map((ms) => ctx.sleep(`${ms}`, ms).then(() => seen.push(`${ms}`))),
        ctx.step('work', () => gate.promise),
      ]).then(() => 'done'),
    )
    const running = flow.round(undefined, PARKS)
    flow.clock.now += 10
    await new Promise((resolve) => setTimeout(resolve, 20))
    gate.resolve()
    const report = await running
    expect(returned(report)).toBe('done')
    expect(seen).toEqual(['1', '2', '3'])
    expect(report.journal.entries.map(({ key }) => key)).toEqual(['1', '2', '3', 'work'])
  })

  it('sets a timer for the first that ends, and none once nothing is open', async () => {
    const gate = deferredPromise()
    const set: [number, () => void][] = []
    const flow = replayFlow((ctx) =>
      Promise.all([
        ctx.sleep('long', '2 min'),
        ctx.sleep('short', '1 min'),
        ctx.step('work', () => gate.promise),
      ]).then(() => 'done'),
    )
    const after = (ms: number, fn: () => void): (() => void) => {
      set.push([ms, fn])
      return () => {}
    }
    const running = flow.round(undefined, { ...PARKS, platform: { after } })
    await new Promise((resolve) => setTimeout(resolve, 5))
    expect(set.map(([ms]) => ms)).toEqual([2 * MINUTE, MINUTE])
    for (const count of [3, 3]) {
      flow.clock.now += MINUTE
      set.at(-1)?.[1]()
      expect(set).toHaveLength(count)
    }
    expect(set.at(-1)?.[0]).toBe(MINUTE)
    gate.resolve()
    expect(returned(await running)).toBe('done')
  })

  it('wait 3: sets no timer in a run in which nothing may end', async () => {
    let timers = 0
    const after = () => {
      timers += 1
      return () => {}
    }
    const flow = replayFlow((ctx) =>
      Promise.all([ctx.ask('q', { ...textQuestion(), within: '1 min' }), ctx.sleep('nap', '1 min')]),
    )
    const { ending } = await flow.round(undefined, { ...PARKS, platform: { after }, input: { frozen: true } })
    expect(ending.kind).toBe('asking')
    expect(timers).toBe(0)
  })

  it('R9 closes no hook after the journal was found to be full', async () => {
    const closed: string[] = []
    const hooks = { open: async () => 'id', close: async (key: string) => void closed.push(key) }
    const gate = deferredPromise()
    const flow = replayFlow(
      async (ctx) => {
        const hook = await ctx.hook('payment', { within: 2 })
        await Promise.all([hook.received(), ctx.sleep('nap', 1), ctx.step('work', () => gate.promise)])
      },
      { limits: { maxEntries: 1 } },
    )
    const running = flow.round(undefined, { ...PARKS, input: { hooks } })
    for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve))
    flow.clock.now += 10
    await new Promise((resolve) => setTimeout(resolve, 20))
    gate.resolve()
    expect(refusal(await running)).toBe('LIMIT_ENTRIES')
    expect(closed).toEqual([])
  })

  it('G1 leaves the request for a task if the sleep is too long for it', async () => {
    const flow = replayFlow((ctx) => ctx.sleep('long', '1 day'))
    const report = await flow.round(undefined, { sleeping: { beyond: 'leave' } })
    expect(report.ending).toEqual({ kind: 'background' })
    expect(report.journal.deadlines).toEqual({ long: flow.clock.now + 86_400_000 })
  })

  it('refuses a sleep that ends after its task', async () => {
    const flow = replayFlow((ctx) => ctx.sleep('long', '2 days'))
    const sleeping = { parks: true, until: flow.clock.now + 86_400_000 }
    expect(refusal(await flow.round(undefined, { sleeping }))).toBe('LIMIT_SLEEP')
  })

  it('G2 refuses a question that is open longer than its task, and only that', async () => {
    const sleeping = { parks: true, until: 1_000_000 + MINUTE }
    const asks = (within?: number | string) => (ctx: Context) => ctx.ask('q', { ...textQuestion(), within })
    const report = await replayFlow(asks('1 min')).round(undefined, { sleeping })
    expect(refusal(report)).toBe('LIMIT_SLEEP')
    expect(report.ending).toMatchObject({
      error: {
        message: expect.stringContaining('The question "q" is open (within) for 1 minute, and no task'),
      },
    })
    expect(askedKeys(await replayFlow(asks(MINUTE - 1)).round(undefined, { sleeping }))).toEqual(['q'])
    expect(
      askedKeys(await replayFlow(asks()).round(undefined, { sleeping: { ...sleeping, until: 0 } })),
    ).toEqual(['q'])
  })

  it('ends while other work runs, and the handler continues meanwhile', async () => {
    const work = deferredPromise<string>()
    const events: string[] = []
    const flow = replayFlow(async (ctx) => {
      const nap = ctx.sleep('nap', 1).then(() => {
        events.push('woke')
        work.resolve('done')
      })
      const [result] = await Promise.all([ctx.step('work', () => work.promise), nap])
      return result
    })
    const running = flow.round(undefined, PARKS)
    await new Promise((resolve) => setTimeout(resolve, 5))
    flow.clock.now += 5
    expect(returned(await running)).toBe('done')
    expect(events).toEqual(['woke'])
  })

  it('hands the call back while it sleeps if the instance drains, and the rest of the time remains', async () => {
    let draining = false
    const flow = replayFlow(async (ctx) => {
      await ctx.sleep('nap', '8 s')
      return 'awake'
    })
    const began = flow.clock.now
    const mayMove = () => {
      if (flow.clock.now - began >= 3000) draining = true
      return draining ? ('drain' as const) : undefined
    }
    expect((await flow.round(undefined, { mayMove })).ending).toEqual({ kind: 'moved', reason: 'drain' })
    expect(flow.clock.now - began).toBeLessThan(8000)
    expect(returned(await flow.round())).toBe('awake')
    expect(flow.clock.now - began).toBe(8000)
  })

  it('R7 turn 3: is not handed back before work that began beside it is recorded', async () => {
    const work = deferredPromise<string>()
    const flow = replayFlow((ctx) =>
      Promise.all([
        ctx.sleep('short', '1 s').then(() => ctx.step('work', () => work.promise)),
        ctx.sleep('long', '8 s'),
      ]),
    )
    const began = flow.clock.now
    const mayMove = () => (flow.clock.now - began > 2_000 ? ('drain' as const) : undefined)
    const running = flow.round(undefined, { mayMove })
    for (let turns = 0; turns < 20; turns++) await new Promise((resolve) => setImmediate(resolve))
    work.resolve('done')
    expect((await running).ending).toEqual({ kind: 'moved', reason: 'drain' })
    expect(flow.journal.entries.map(({ key }) => key)).toEqual(['short', 'work'])
  })

  it('sends a question that is open beside a sleep at once', async () => {
    const flow = replayFlow(async (ctx) => {
      await Promise.all([ctx.sleep('nap', '5 s'), ctx.ask('q', textQuestion())])
      return 'both'
    })
    const began = flow.clock.now
    expect((await flow.round()).ending).toMatchObject({ kind: 'asking', wakeAt: began + 5000 })
    expect(flow.clock.now).toBe(began)
    expect(returned(await flow.round({ q: accept({ value: 'x' }) }))).toBe('both')
    expect(flow.clock.now - began).toBe(5000)
  })

  it('a handler may return while a sleep is open', async () => {
    const flow = replayFlow(async (ctx) => {
      await Promise.race([ctx.step('fast', () => 1), ctx.sleep('timeout', '1 s')])
      return 'first'
    })
    expect(returned(await flow.round())).toBe('first')
  })

  it('replays the same way in development mode, asleep, awake and moved', async () => {
    const handler = async (ctx: Context) => {
      await ctx.sleep('nap', '1 min')
      await ctx.ask('q', { ...textQuestion(), within: '1 min' })
      return 'done'
    }
    const flow = replayFlow(handler, { dev: true })
    expect((await flow.round(undefined, PARKS)).ending.kind).toBe('sleeping')
    flow.clock.now += MINUTE
    expect(askedKeys(await flow.round(undefined, PARKS))).toEqual(['q'])
    expect(returned(await flow.round({ q: accept({ value: 'x' }) }, PARKS))).toBe('done')
    const short = replayFlow((ctx) => ctx.sleep('nap', '1 s'), { dev: true })
    expect((await short.round(undefined, { mayMove: () => 'drain' })).ending.kind).toBe('moved')
  })

  it('is skipped in development mode as if the time had passed', async () => {
    const skipped: number[] = []
    const flow = replayFlow(async (ctx) => {
      const before = ctx.now()
      await ctx.sleep('long', '3 days')
      return ctx.now() - before
    })
    const skip = (ms: number): void => void skipped.push(ms)
    expect(returned(await flow.round(undefined, { sleeping: { skip } }))).toBe(259_200_000)
    expect(skipped).toEqual([259_200_000])
  })

  it('keeps the end durable before the run ends', async () => {
    const kept: [string, number][] = []
    const flow = replayFlow((ctx) => ctx.sleep('nap', '1 min'))
    const persistDeadline = async (key: string, due: number): Promise<void> => void kept.push([key, due])
    await flow.round(undefined, { ...PARKS, persistDeadline })
    expect(kept).toEqual([['nap', flow.clock.now + MINUTE]])
  })

  it.each([
    ['a negative time', -1],
    ['NaN', Number.NaN],
    ['Infinity', Number.POSITIVE_INFINITY],
    ['text that is no time', 'soon'],
    ['nothing', undefined as never],
    ['two years', 2 * 366 * 86_400_000],
  ])('throws for %s, and says what to pass', async (_name, ms) => {
    const flow = replayFlow(async (ctx) => {
      await ctx.sleep('nap', ms)
    })
    const { ending } = await flow.round()
    expect(ending).toMatchObject({ kind: 'threw', error: expect.any(TypeError) })
    expect(String((ending as { error: unknown }).error)).toMatch(/milliseconds|366 days/)
  })

  it.each([
    ['soon', 'got "soon".'],
    [Number.NaN, 'got NaN.'],
    [{}, 'got [object Object].'],
  ])('quotes what it got: %j', async (ms, got) => {
    const { ending } = await replayFlow((ctx) => ctx.sleep('nap', ms as never)).round()
    expect(String((ending as { error: unknown }).error)).toContain(got)
  })

  it('may last 366 days, and no longer', async () => {
    const days = 366 * 86_400_000
    const ends = async (handler: (ctx: Context) => unknown) =>
      (await replayFlow(handler).round(undefined, PARKS)).ending.kind
    expect(await ends((ctx) => ctx.sleep('nap', days))).toBe('sleeping')
    expect(await ends((ctx) => ctx.sleep('nap', days + 1))).toBe('threw')
    expect(await ends((ctx) => ctx.sleepUntil('nap', 1_000_000 + days))).toBe('sleeping')
    expect(await ends((ctx) => ctx.sleepUntil('nap', 1_000_000 + days + 1))).toBe('threw')
  })

  it.each([
    ['a date in the past', new Date(0)],
    ['now', 1_000_000],
    ['a time before the epoch', -1e300],
    ['an ISO date in the past', '1970-01-01T00:00:00Z'],
  ])('sleepUntil is over at once for %s', async (_name, date) => {
    const flow = replayFlow(async (ctx) => {
      await ctx.sleepUntil('nap', date)
      return 'awake'
    })
    const { ending, journal } = await flow.round(undefined, PARKS)
    expect(ending).toEqual({ kind: 'returned', value: 'awake' })
    expect(journal.entries).toEqual([{ kind: 'sleep', key: 'nap', at: 1_000_000 }])
  })

  it('sleepUntil rounds up to whole milliseconds, which is what databases store', async () => {
    const flow = replayFlow((ctx) => ctx.sleepUntil('nap', 1_000_000.25))
    expect((await flow.round(undefined, PARKS)).ending).toEqual({ kind: 'sleeping', wakeAt: 1_000_001 })
  })

  it.each([
    ['an invalid date', new Date('never')],
    ['NaN', Number.NaN],
    ['text that is no date', 'tomorrow'],
    ['nothing', undefined as never],
    ['a date in years', new Date(Date.UTC(2400, 0))],
  ])('sleepUntil throws for %s', async (_name, date) => {
    const flow = replayFlow(async (ctx) => {
      await ctx.sleepUntil('nap', date)
    })
    expect((await flow.round(undefined, PARKS)).ending).toMatchObject({
      kind: 'threw',
      error: expect.any(TypeError),
    })
  })
})

describe('within', () => {
  const outcome = async (ctx: Context): Promise<unknown> =>
    ctx.elicit('q', { ...textQuestion(), within: '1 min' })

  it('G2 does not matter if the answer comes in time', async () => {
    const flow = replayFlow(outcome)
    const { ending } = await flow.round()
    expect(ending).toMatchObject({ kind: 'asking', wakeAt: flow.clock.now + MINUTE })
    flow.clock.now += MINUTE - 1
    expect(returned(await flow.round({ q: accept({ value: 'x' }) }))).toEqual({
      action: 'accept',
      content: { value: 'x' },
    })
  })

  it.each([
    ['no answer', undefined],
    ['a late answer', { q: accept({ value: 'late' }) }],
    ['a late decline', { q: { action: 'decline' } }],
  ])('G2 expires with %s, which has no effect', async (_name, answers) => {
    const flow = replayFlow(async (ctx) => {
      const first = await outcome(ctx)
      await ctx.ask('after', textQuestion())
      return first
    })
    await flow.round()
    flow.clock.now += MINUTE
    expect(askedKeys(await flow.round(answers))).toEqual(['after'])
    expect(flow.journal.deadlines).toBeUndefined()
    const entry = flow.journal.entries[0] as Extract<Entry, { question: string }>
    expect(entry).toMatchObject({ kind: 'form', key: 'q', answer: null, expired: true })
    // A second answer to it does not change what is recorded.
    flow.asked.q = entry.question
    const last = await flow.round({ after: accept({ value: 'x' }), q: accept({ value: 'later' }) })
    expect(returned(last)).toEqual({ action: 'expired' })
    expect(last.replayed).toBe(1)
  })

  it('G2 accepts an answer that arrived in time but is processed later', async () => {
    const flow = replayFlow(outcome)
    await flow.round()
    const arrivedAt = flow.clock.now + MINUTE - 1
    flow.clock.now += 10 * MINUTE
    expect(returned(await flow.round({ q: accept({ value: 'x' }) }, { arrivedAt }))).toMatchObject({
      action: 'accept',
    })
  })

  it('G2 a client cannot claim that a question has expired', async () => {
    const flow = replayFlow(outcome)
    await flow.round()
    expect(askedKeys(await flow.round({ q: { action: 'expired' } }))).toEqual(['q'])
  })

  it('G2 allows no more time to a question that was reworded or wrongly answered', async () => {
    let message = 'One?'
    const flow = replayFlow((ctx) => ctx.elicit('q', { ...textQuestion(message), within: '1 min' }))
    await flow.round()
    flow.clock.now += 30_000
    await flow.round({ q: accept({ value: 7 }) })
    message = 'Two?'
    const { ending } = await flow.round({ q: accept({ value: 'x' }) })
    expect(ending).toMatchObject({ kind: 'asking', wakeAt: flow.clock.now + 30_000 })
  })

  it('G2 expires although the question was reworded too often', async () => {
    let asked = 0
    const flow = replayFlow(
      (ctx) => {
        asked += 1
        return ctx.elicit('q', { ...textQuestion(`Question ${asked}?`), within: '1 min' })
      },
      { limits: { maxReasks: 0 } },
    )
    await flow.round()
    flow.clock.now += MINUTE
    expect(returned(await flow.round())).toEqual({ action: 'expired' })
  })

  it('G2 ask, visit and sample throw InputExpired, confirm returns false', async () => {
    const within = '1 min'
    const names = (error: unknown): string => (error as Error).name
    const flow = replayFlow(async (ctx) => {
      const messages = [{ role: 'user', content: { type: 'text', text: 'Hi' } }]
      return Promise.all([
        ctx.ask('a', { ...textQuestion(), within }).catch(names),
        ctx.visit('v', { message: 'Open it', url: 'https://example.com', within }).catch(names),
        ctx.sample('s', { messages, maxTokens: 1 }, { within }).catch(names),
        ctx.confirm('c', 'Sure?', { within }),
      ])
    })
    const { ending } = await flow.round()
    expect(
      JSON.stringify([...(ending as unknown as { questions: Map<string, unknown> }).questions]),
    ).not.toContain('within')
    flow.clock.now += MINUTE
    expect(returned(await flow.round())).toEqual(['InputExpired', 'InputExpired', 'InputExpired', false])
    expect(new InputExpired('a')).toMatchObject({ key: 'a' })
  })

  it('G2 closes a question by timer while other work runs', async () => {
    const work = deferredPromise()
    const flow = replayFlow(async (ctx) => {
      const asked = ctx.elicit('q', { ...textQuestion(), within: 2 }).finally(() => work.resolve())
      const [outcome] = await Promise.all([asked, ctx.step('work', () => work.promise)])
      return outcome
    })
    const running = flow.round()
    await new Promise((resolve) => setTimeout(resolve, 5))
    flow.clock.now += 5
    expect(returned(await running)).toEqual({ action: 'expired' })
  })

  it('I4 an effect after an expired question has another key than after an answer', async () => {
    const keys: string[] = []
    const handler = async (ctx: Context) => {
      await outcome(ctx)
      await ctx.effect('act', ({ key }) => void keys.push(key))
    }
    for (const late of [0, MINUTE]) {
      const flow = replayFlow(handler, { anchored: true })
      await flow.round()
      flow.clock.now += late
      await flow.round({ q: accept({ value: 'x' }) })
    }
    expect(new Set(keys).size).toBe(2)
  })

  it.each([[-1], [Number.NaN], ['later'], [400 * 86_400_000]])('throws for %s', async (within) => {
    const flow = replayFlow((ctx) => ctx.ask('q', { ...textQuestion(), within }))
    expect((await flow.round()).ending).toMatchObject({ kind: 'threw', error: expect.any(TypeError) })
  })

  it('a limit of 0 closes the question before anybody sees it', async () => {
    const flow = replayFlow((ctx) => ctx.elicit('q', { ...textQuestion(), within: 0 }))
    expect(returned(await flow.round())).toEqual({ action: 'expired' })
  })
})
