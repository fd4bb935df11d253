import { describe, expect, it } from 'vitest'
import {
  accept,
  deferredPromise,
  type FlowOptions,
  type Handler,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { Fatal, RetryLater, RondoError, ToolError } from '../errors.ts'
import { narrowJournal } from '../journal/journal.ts'
import type { EffectOptions } from '../tool/context.ts'
import type { FailedAttempt } from './input.ts'
import { delayAfter, readRetry } from './retry.ts'

const MINUTE = 60_000
const PARKS = { sleeping: { parks: true } }

/** A handler whose effect fails with the errors in turn and then succeeds. It notes each attempt. */
function failing(
  errors: readonly unknown[],
  retry: EffectOptions['retry'] = {},
  ran: string[] = [],
): Handler {
  return async (ctx) => {
    const text = await ctx.effect(
      'charge',
      ({ attempt, key }) => {
        ran.push(`${attempt} ${key.slice(0, 8)}`)
        const error = errors[ran.length - 1]
        if (error !== undefined) throw error
        return `charged at ${attempt}`
      },
      { retry },
    )
    return text
  }
}

const flowOf = (handler: Handler, options: FlowOptions = {}) =>
  replayFlow(handler, { anchored: true, ...options })

describe('the option retry', () => {
  it('runs a failed effect again under the same key, and the handler gets the last outcome only', async () => {
    const ran: string[] = []
    const flow = flowOf(failing([new Error('a'), new Error('b')], {}, ran), { dev: true })
    const began = flow.clock.now
    expect(returned(await flow.round())).toBe('charged at 3')
    expect(ran.map((line) => line[0])).toEqual(['1', '2', '3'])
    expect(new Set(ran.map((line) => line.slice(2))).size).toBe(1)
    expect(flow.clock.now - began).toBe(1_000 + 2_000)
  })

  it('fails with the last error when no attempt is left', async () => {
    const handler: Handler = (ctx) =>
      ctx.step('x', ({ attempt }) => Promise.reject(new Error(`attempt ${attempt}`)), { retry: { times: 2 } })
    const { ending, journal } = await flowOf(handler).round()
    expect(ending).toMatchObject({ kind: 'threw', error: { message: 'attempt 3' } })
    expect(journal.attempts).toBeUndefined()
    expect(journal.deadlines).toBeUndefined()
  })

  it.each([
    ['ToolError', new ToolError('No such account.')],
    ['Fatal', new Fatal('gone')],
  ])('does not retry after %s', async (name, error) => {
    const ran: string[] = []
    const { ending } = await flowOf(failing([error], {}, ran)).round()
    expect(ending).toMatchObject({ kind: 'threw', error: { name, message: error.message } })
    expect(ran).toHaveLength(1)
  })

  it('does not retry without the option', async () => {
    const { ending } = await flowOf((ctx) =>
      ctx.step('x', () => Promise.reject(new RetryLater('1 s', 'busy'))),
    ).round()
    expect(ending).toMatchObject({ kind: 'threw', error: { name: 'RetryLater', message: 'busy' } })
  })

  it('does not retry with a time limit alone', async () => {
    const ran: number[] = []
    const { ending } = await flowOf((ctx) =>
      ctx.step('x', ({ attempt }) => Promise.reject(new Error(`attempt ${ran.push(attempt)}`)), {
        timeout: '5 s',
      }),
    ).round()
    expect(ending).toMatchObject({ kind: 'threw', error: { message: 'attempt 1' } })
  })

  it('notes no attempt that fails after the call has ended', async () => {
    const gate = deferredPromise()
    const noted: string[] = []
    const flow = flowOf((ctx) =>
      Promise.race([
        ctx.step('fast', () => 'done'),
        ctx.step('slow', () => gate.promise.then(() => Promise.reject(new Error('late'))), {
          retry: { delay: MINUTE },
        }),
      ]),
    )
    const running = flow.round(undefined, { input: { persistAttempt: async (key) => void noted.push(key) } })
    for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve))
    gate.resolve()
    expect(returned(await running)).toBe('done')
    expect(noted).toEqual([])
  })

  it('reports each failed attempt with its delay', async () => {
    const seen: FailedAttempt[] = []
    const flow = flowOf(failing([new Error('a'), new RetryLater(2_500)]))
    const began = flow.clock.now
    await flow.round(undefined, { input: { onRetry: (failed) => void seen.push(failed) } })
    expect(seen).toMatchObject([
      { kind: 'effect', key: 'charge', attempt: 1, due: began + 1_000, error: { message: 'a' } },
      { kind: 'effect', key: 'charge', attempt: 2, due: began + 3_500 },
    ])
  })
})

describe('the delay before a retry', () => {
  const policy = readRetry({ times: 9, delay: '1 s', factor: 3, maxDelay: '10 s' }, 'the step "x"')
  const after = (attempt: number, thrown: unknown = new Error('x')) =>
    policy && delayAfter(policy, attempt, thrown, 5_000)

  it('grows by the factor up to maxDelay, and ends with the last attempt', () => {
    expect([1, 2, 3, 4, 9, 10].map((attempt) => after(attempt))).toEqual([
      1_000,
      3_000,
      9_000,
      10_000,
      10_000,
      undefined,
    ])
  })

  it.each([
    ['a number', 25_000, 25_000],
    ['text', '2 min', 120_000],
    ['a date', new Date(65_000), 60_000],
    ['a date that has passed', new Date(0), 0],
    ['a header that is not a time', 'Wed, 21 Oct s', 1_000],
    ['a date that is none', new Date('soon'), 1_000],
    ['nothing', undefined as never, 1_000],
  ])('is that of RetryLater with %s, where it can be read', (_name, given, ms) => {
    expect(after(1, new RetryLater(given))).toBe(ms)
  })

  it('is 0 without a delay, however often', () => {
    const eager = readRetry({ delay: 0, factor: 1e9, times: 1_000 }, 'x')
    expect(eager && delayAfter(eager, 900, new Error('x'), 0)).toBe(0)
  })
})

describe('a retry that waits', () => {
  it('parks a task, and no replay starts the count or the clock again', async () => {
    const ran: string[] = []
    const errors = [new Error('a'), new RetryLater('2 days')]
    const flow = flowOf(failing(errors, { delay: '10 min', maxDelay: '1 h' }, ran), { dev: true })
    const began = flow.clock.now
    expect((await flow.round(undefined, PARKS)).ending).toEqual({
      kind: 'sleeping',
      wakeAt: began + 10 * MINUTE,
    })
    expect(flow.journal).toMatchObject({ attempts: { charge: 1 }, entries: [] })
    flow.clock.now += MINUTE
    expect((await flow.round(undefined, PARKS)).ending).toMatchObject({ wakeAt: began + 10 * MINUTE })
    expect(ran).toHaveLength(1)
    flow.clock.now = began + 10 * MINUTE
    const second = await flow.round(undefined, PARKS)
    expect(second.ending).toMatchObject({ kind: 'sleeping', wakeAt: flow.clock.now + 2 * 86_400_000 })
    flow.clock.now += 2 * 86_400_000
    expect(returned(await flow.round(undefined, PARKS))).toBe('charged at 3')
    expect(ran.map((line) => line[0])).toEqual(['1', '2', '3'])
  })

  it('parks a task that no clock will wake', async () => {
    const { ending } = await flowOf(failing([new RetryLater(1e300)])).round(undefined, PARKS)
    expect(ending).toEqual({ kind: 'sleeping', wakeAt: 1e300 })
  })

  it('makes the attempt durable', async () => {
    const written: unknown[] = []
    const flow = flowOf(failing([new Error('a')], { delay: MINUTE }))
    await flow.round(undefined, {
      ...PARKS,
      input: { persistAttempt: async (...attempt) => void written.push(attempt) },
    })
    expect(written).toEqual([['charge', 1, flow.clock.now + MINUTE]])
  })

  it('lets a question beside it go out, and continues with the answer', async () => {
    const ran: string[] = []
    const flow = flowOf(async (ctx) => {
      const [text, { value }] = await Promise.all([
        failing([new Error('a')], { delay: '5 min', maxDelay: '5 min' }, ran)(ctx),
        ctx.ask('q', textQuestion()),
      ])
      return `${text} ${value}`
    })
    const due = flow.clock.now + 5 * MINUTE
    expect((await flow.round(undefined, PARKS)).ending).toMatchObject({ kind: 'asking', wakeAt: due })
    flow.clock.now = due
    expect(returned(await flow.round({ q: accept({ value: 'yes' }) }, PARKS))).toBe('charged at 2 yes')
    expect(new Set(ran.map((line) => line.slice(2))).size).toBe(1)
  })

  it('becomes a task if a request cannot wait that long', async () => {
    const flow = flowOf(failing([new Error('a')], { delay: '11 s' }))
    const report = await flow.round(undefined, { sleeping: { beyond: 'leave' } })
    expect(report.ending).toEqual({ kind: 'background' })
    expect(report.journal).toMatchObject({
      attempts: { charge: 1 },
      deadlines: { charge: flow.clock.now + 11_000 },
    })
  })

  it('becomes a task again if it was not one yet when it was continued', async () => {
    const ran: string[] = []
    const flow = flowOf(failing([new Error('a')], { delay: '11 s' }, ran))
    const { journal } = await flow.round(undefined, { sleeping: { beyond: 'leave' } })
    const again = flowOf(failing([new Error('a')], { delay: '11 s' }, ran), { journal })
    expect((await again.round(undefined, { sleeping: { beyond: 'leave' } })).ending).toEqual({
      kind: 'background',
    })
    expect(ran).toHaveLength(1)
  })

  it('is skipped in development mode as if the time had passed, once', async () => {
    const skipped: number[] = []
    const skip = (ms: number): void => void skipped.push(ms)
    const flow = flowOf(failing([new Error('a')], { delay: '2 days', maxDelay: '2 days' }), { dev: true })
    const first = await flow.round(undefined, {
      sleeping: { skip },
      mayMove: (executed) => (executed > 0 ? 'drain' : undefined),
    })
    expect(first.ending).toEqual({ kind: 'moved', reason: 'drain' })
    expect(skipped).toEqual([172_800_000])
    expect(returned(await flow.round(undefined, { sleeping: { skip } }))).toBe('charged at 2')
  })

  it('lets a sleep beside it end before it is handed back', async () => {
    const flow = flowOf((ctx) =>
      Promise.all([failing([new Error('a')], { delay: '3 s' })(ctx), ctx.sleep('nap', '1 s')]),
    )
    const began = flow.clock.now
    const round = { until: began + 2_000, ms: 4_000, handsBack: true }
    const { ending, journal } = await flow.round(undefined, { sleeping: { round } })
    expect(ending).toEqual({ kind: 'moved', reason: 'time' })
    expect(flow.clock.now - began).toBe(1_000)
    expect(journal.entries.map(({ key }) => key)).toEqual(['nap'])
  })

  it('waits up to the end of its task or its round, to the millisecond', async () => {
    const ends = async (sleeping: object) =>
      (await flowOf(failing([new Error('a')], { delay: '3 s' })).round(undefined, { sleeping })).ending.kind
    const now = 1_000_000
    expect(await ends({ parks: true, until: now + 3_000 })).toBe('refused')
    expect(await ends({ parks: true, until: now + 3_001 })).toBe('sleeping')
    expect(await ends({ round: { until: now + 3_000, ms: 3_000, handsBack: false } })).toBe('returned')
    expect(await ends({ round: { until: now + 2_999, ms: 3_000, handsBack: false } })).toBe('refused')
    expect(await ends({ round: { until: now + 3_000, ms: 2_999, handsBack: true } })).toBe('refused')
    expect(await ends({ inlineMs: 3_000 })).toBe('returned')
  })

  it('does not wait for the time limit of a question that had its name', async () => {
    const flow = flowOf((ctx) => ctx.ask('x', { ...textQuestion(), within: '5 s' }))
    await flow.round()
    const began = flow.clock.now
    expect(returned(await flow.round({}, { handler: (ctx) => ctx.step('x', () => 'done') }))).toBe('done')
    expect(flow.clock.now).toBe(began)
  })

  it('ends with advice if there is no task either', async () => {
    const flow = flowOf(failing([new RetryLater('1 h')]))
    const report = await flow.round()
    expect(refusal(report)).toBe('LIMIT_RETRY')
    expect(report.ending).toMatchObject({
      error: {
        sentence:
          'The effect "charge" failed and can be retried in 1 hour, but a request waits for at most 10 seconds. Not here. Call the tool again in 1 hour.',
      },
    })
  })

  it('ends with advice if it would outlive its task', async () => {
    const flow = flowOf(failing([new RetryLater('1 h')]))
    const sleeping = { parks: true, until: flow.clock.now + MINUTE }
    expect(refusal(await flow.round(undefined, { sleeping }))).toBe('LIMIT_RETRY')
  })

  it('is handed back when the time of its round is up, and continues in the next one', async () => {
    const ran: string[] = []
    const flow = flowOf(failing([new Error('a')], { delay: '3 s' }, ran), { dev: true })
    const began = flow.clock.now
    const roundOf = (handsBack: boolean) => ({ until: flow.clock.now + 2_000, ms: 4_000, handsBack })
    const report = await flow.round(undefined, { sleeping: { round: roundOf(true) } })
    expect(report.ending).toEqual({ kind: 'moved', reason: 'time' })
    const next = { until: flow.clock.now + 4_000, ms: 4_000, handsBack: false }
    expect(returned(await flow.round(undefined, { sleeping: { round: next } }))).toBe('charged at 2')
    expect(flow.clock.now).toBe(began + 3_000)
    expect(ran).toHaveLength(2)
  })

  it('waits no longer than a request may if the clock that set its time is ahead of this one', async () => {
    const flow = flowOf(failing([new Error('a')], { delay: '3 s' }), { dev: true })
    const round = { until: flow.clock.now + 2_000, ms: 4_000, handsBack: true }
    await flow.round(undefined, { sleeping: { round } })
    flow.clock.now -= MINUTE
    const began = flow.clock.now
    expect(returned(await flow.round(undefined, { sleeping: { inlineMs: 10_000 } }))).toBe('charged at 2')
    expect(flow.clock.now - began).toBe(10_000)
  })

  it('ends with advice when the time of its round is up and it cannot be handed back', async () => {
    const flow = flowOf(failing([new Error('a')], { delay: '3 s' }))
    const round = { until: flow.clock.now + 2_000, ms: 4_000, handsBack: false }
    expect(refusal(await flow.round(undefined, { sleeping: { round } }))).toBe('LIMIT_RETRY')
  })

  it('begins no attempt on an instance that is shutting down', async () => {
    const ran: string[] = []
    const flow = flowOf(failing([new Error('a')], { delay: 0 }, ran))
    const report = await flow.round(undefined, {
      mayMove: (executed) => (executed > 0 ? 'drain' : undefined),
    })
    expect(report.ending).toEqual({ kind: 'moved', reason: 'drain' })
    expect(returned(await flow.round())).toBe('charged at 2')
    expect(ran).toHaveLength(2)
  })
})

describe('an error of which nothing can be read', () => {
  const unreadable = <T extends object>(error: T): T =>
    new Proxy(error, {
      get() {
        throw new Error('unreadable')
      },
    })
  const strange = new Proxy(new Date(), {
    getPrototypeOf() {
      throw new Error('unreadable')
    },
  })

  it.each([
    ['a RetryLater', unreadable(new RetryLater('1 h'))],
    ['a RetryLater with a strange date', new RetryLater(strange)],
    ['an error of the store', unreadable(new RondoError('STORE_BUSY'))],
    ['any error', unreadable(new Error('x'))],
  ])('R11 counts as a failed attempt: %s', async (_what, error) => {
    const ran: string[] = []
    const flow = flowOf(failing([error], { delay: 0 }, ran))
    expect(returned(await flow.round())).toBe('charged at 2')
    expect(ran).toHaveLength(2)
  })
})

describe('the option timeout', () => {
  it('records nothing of an attempt that ends while the next one runs', async () => {
    const ends = [deferredPromise<string>(), deferredPromise<string>()]
    const keys: string[] = []
    const began = deferredPromise<void>()
    const flow = flowOf((ctx) =>
      ctx.effect(
        'slow',
        ({ key, attempt }) => {
          keys.push(key)
          if (attempt === 2) began.resolve()
          return ends[attempt - 1]?.promise
        },
        { timeout: 50, retry: { delay: 0, times: 1 } },
      ),
    )
    const round = flow.round()
    await began.promise
    ends[0]?.resolve('late')
    await ends[0]?.promise
    ends[1]?.resolve('in time')
    const report = await round
    expect(returned(report)).toBe('in time')
    expect(report.journal.entries).toMatchObject([{ key: 'slow', value: 'in time' }])
    expect(new Set(keys).size).toBe(1)
  })

  it('fails an attempt that takes longer, fires its signal, and ignores what it does later', async () => {
    const late = deferredPromise<string>()
    const signals: AbortSignal[] = []
    const flow = flowOf((ctx) =>
      ctx.step(
        'slow',
        ({ signal, attempt }) => {
          signals.push(signal)
          return attempt === 1 ? late.promise : `attempt ${attempt}`
        },
        { timeout: 5, retry: { delay: 0 } },
      ),
    )
    expect(returned(await flow.round())).toBe('attempt 2')
    expect(signals[0]?.aborted).toBe(true)
    late.reject(new Error('too late'))
  })

  it('refuses an operation of an attempt that is late, which begins nothing', async () => {
    const late = deferredPromise<void>()
    const ran: string[] = []
    const flow = flowOf(async (ctx) => {
      const attempt = async (): Promise<void> => {
        await late.promise
        await ctx.effect('inner', () => void ran.push('inner'))
      }
      await ctx.step('outer', attempt, { timeout: 5 }).catch(() => {})
      late.resolve()
      await new Promise<void>((resolve) => setImmediate(resolve))
      return 'done'
    })
    const report = await flow.round()
    expect(refusal(report)).toBe('REPLAY_NESTED')
    expect(ran).toEqual([])
  })

  it('is an error that the handler can catch', async () => {
    const flow = flowOf((ctx) =>
      ctx
        .effect('slow', () => new Promise<string>(() => {}), { timeout: 5 })
        .catch(({ name, message }: Error) => `${name}: ${message}`),
    )
    expect(returned(await flow.round())).toBe('TimeoutError: The effect "slow" did not settle within 5 ms.')
  })
})

describe('options that cannot work', () => {
  it.each([
    [{ retry: { times: -1 } }, /retry.*times must be a whole number from 0 to 1000; got -1/],
    [{ retry: { times: 1.5 } }, /times must be a whole number/],
    [{ retry: { factor: 0.5 } }, /factor must be a finite number of 1 or more/],
    [{ retry: { delay: 'soon' } }, /retry\.delay of the step "x" must be a number of milliseconds/],
    [{ retry: { wait: 1 } }, /has no option "wait"/],
    [{ timeout: 0 }, /timeout of the step "x" must be more than 0/],
    [{ timeout: Number.NaN }, /timeout of the step "x" must be/],
    [{ once: true }, /The step "x" has no option "once"/],
  ])('are refused with a sentence: %j', async (options, message) => {
    let ran = false
    const flow = flowOf((ctx) =>
      ctx.step(
        'x',
        () => {
          ran = true
        },
        options as never,
      ),
    )
    const { ending } = await flow.round()
    expect(ending).toMatchObject({ kind: 'threw', error: expect.any(TypeError) })
    expect(String((ending as { error: Error }).error.message)).toMatch(message)
    expect(ran).toBe(false)
  })
})

describe('the attempts of a journal', () => {
  it.each([[{ charge: -1 }], [{ charge: 'x' }], [[]], ['x']])(
    'are refused if they are not counts: %j',
    (attempts) => {
      const journal = { startedAt: 1, seed: 's', entries: [], reasks: {}, moves: 0 }
      expect(narrowJournal({ ...journal, attempts: { charge: 2 } })).toMatchObject({
        attempts: { charge: 2 },
      })
      expect(narrowJournal({ ...journal, attempts })).toBeUndefined()
    },
  )
})
