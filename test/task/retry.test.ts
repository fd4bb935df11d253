/** Retries as tasks and requests experience them: parked without a process, moved into a task, or ended with advice. */

import { createServer, RetryLater, RondoError, type ServerOptions, ToolError } from 'rondo'
import { type BenchSetup, createBench, type TestBench } from 'rondo/testing'
import { describe, expect, it } from 'vitest'

const HOUR = 3_600_000

interface Shop {
  readonly bench: TestBench
  /** Attempts of the effect, by their key. */
  readonly attempts: string[]
}

/** A shop whose payment fails with the errors in turn. */
function shop(
  errors: readonly Error[],
  { store, ...options }: Omit<Partial<ServerOptions>, 'store'> & BenchSetup = {},
  retry = {},
): Shop {
  const attempts: string[] = []
  const bench = createBench(
    (given) => {
      const server = createServer({ name: 'shop', version: '1.0.0', ...given, ...options })
      const pay = (key: string): string => {
        attempts.push(key)
        const error = errors[attempts.length - 1]
        if (error) throw error
        return `paid at ${attempts.length}`
      }
      server.tool('order', { task: 'auto' }, (_args, ctx) =>
        ctx.effect('pay', ({ key }) => pay(key), { retry }),
      )
      server.tool('buy', {}, (_args, ctx) => ctx.effect('pay', ({ key }) => pay(key), { retry }))
      return server
    },
    store === false ? { store } : {},
  )
  return { bench, attempts }
}

const retriesOf = (bench: TestBench) => bench.events.filter(({ event }) => event === 'retry')

describe('a task whose effect is retried', () => {
  it('M2 is parked between attempts, survives a restart, and keeps count, time and key', async () => {
    const { bench, attempts } = shop(
      [new RetryLater('6 h'), new Error('down')],
      {},
      { delay: '1 h', maxDelay: '1 h' },
    )
    const task = bench.task('order')
    const until = bench.clock.now + 6 * HOUR
    expect(await task.next()).toEqual({ kind: 'sleeping', until })
    expect(task.messages).toContain(`Retrying "pay" at ${new Date(until).toISOString()}`)
    await bench.advance('5 h')
    await task.restart()
    expect(await task.next()).toEqual({ kind: 'sleeping', until })
    await bench.advance('1 h')
    expect(await task.next()).toEqual({ kind: 'sleeping', until: until + HOUR })
    await bench.advance('1 h')
    expect(await task.next()).toMatchObject({ kind: 'complete', text: 'paid at 3' })
    expect(attempts).toHaveLength(3)
    expect(new Set(attempts).size).toBe(1)
  })

  it('M2 logs each attempt that is retried', async () => {
    const { bench } = shop([new Error('down')])
    const task = bench.task('order')
    expect(await task.run()).toMatchObject({ text: 'paid at 2' })
    expect(retriesOf(bench)).toMatchObject([
      {
        level: 'warn',
        target: 'order',
        work: 'effect',
        key: 'pay',
        attempt: 1,
        delayMs: 1_000,
        task: task.taskId,
      },
    ])
  })

  it('M2 ends with the error that is final, and tries no more', async () => {
    const { bench, attempts } = shop([new Error('down'), new ToolError('The card was refused.')])
    expect(await bench.task('order').run()).toMatchObject({
      kind: 'complete',
      text: 'The card was refused.',
      result: { isError: true },
    })
    expect(attempts).toHaveLength(2)
  })

  it('M2 lives as long as the pause and its own lifetime after it', async () => {
    const { bench } = shop([new RetryLater('3 days')], { tasks: { ttlMs: HOUR } })
    const task = bench.task('order')
    await task.next()
    await bench.advance('3 days')
    expect(await task.next()).toMatchObject({ text: 'paid at 2' })
  })
})

describe('a request whose effect is retried', () => {
  it('M2 waits for a short pause', async () => {
    const { bench, attempts } = shop([new Error('down'), new Error('down')])
    const began = bench.clock.now
    expect(await bench.tool('buy').run()).toMatchObject({ text: 'paid at 3' })
    expect(bench.clock.now - began).toBe(3_000)
    expect(new Set(attempts).size).toBe(1)
  })

  it('M2 continues as a task if the pause is too long and its client can follow one', async () => {
    const { bench, attempts } = shop([new RetryLater('1 h')])
    const task = bench.task('buy')
    await task.next()
    expect(await task.next()).toEqual({ kind: 'sleeping', until: bench.clock.now + HOUR })
    expect(task.taskId).toBeDefined()
    await bench.advance('1 h')
    expect(await task.next()).toMatchObject({ text: 'paid at 2' })
    expect(new Set(attempts).size).toBe(1)
  })

  it('M2 ends with advice if the pause is too long and nothing can wait for it', async () => {
    const { bench, attempts } = shop([new RetryLater('1 h')], { store: false })
    expect(await bench.tool('buy').run()).toMatchObject({
      kind: 'complete',
      result: { isError: true },
      text: expect.stringMatching(
        /^The effect "pay" failed and can be retried in 1 hour, but a request waits for at most 10 seconds\. .*no store.* Call the tool again in 1 hour\.$/,
      ),
    })
    expect(attempts).toHaveLength(1)
  })

  it('M2 is handed back when maxRoundMs is over, on any instance, and keeps count and key', async () => {
    const { bench, attempts } = shop(
      [new Error('down'), new Error('down'), new Error('down')],
      { store: false, maxRoundMs: 5_000 },
      { delay: '4 s', factor: 1 },
    )
    const call = bench.tool('buy')
    const began = bench.clock.now
    let round = await call.next()
    while (round.kind === 'input_required') round = await call.otherInstance().next()
    expect(round).toMatchObject({ kind: 'complete', text: 'paid at 4' })
    expect(call.rounds).toBeGreaterThan(2)
    expect(bench.clock.now - began).toBe(12_000)
    expect(new Set(attempts).size).toBe(1)
  })

  it('M2 ends with advice when it was handed back too often', async () => {
    const errors = Array.from({ length: 50 }, () => new Error('down'))
    const options = { store: false, maxRoundMs: 5_000 } as const
    const { bench } = shop(errors, options, { times: 40, delay: '4 s', factor: 1 })
    const ended = await bench.tool('buy').run()
    expect(ended).toMatchObject({ kind: 'complete', result: { isError: true } })
    expect((ended as { text: string }).text).toMatch(/can be retried in 4 seconds/)
  })
})

it('M2 a fault of the store is not an attempt: the work is not retried, and its outcome stays unknown', async () => {
  const { bench, attempts } = shop([new RondoError('STORE_BUSY', 'Retry in 1 s')], {}, { times: 2, delay: 1 })
  const buy = bench.tool('buy')
  await buy.next()
  expect(await buy.next()).toMatchObject({ kind: 'error' })
  expect([attempts.length, retriesOf(bench)]).toEqual([1, []])
})
