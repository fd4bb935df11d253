import { createBench } from 'rondo/testing'
import { expect, it } from 'vitest'
import { type Charge, till } from './retries.ts'

type Response = Awaited<ReturnType<Charge>>

function tillBench(responses: readonly Response[]) {
  const keys: string[] = []
  const charge: Charge = async (_cents, { idempotencyKey }) => {
    keys.push(idempotencyKey)
    return responses[keys.length - 1] ?? { status: 200, receipt: `r-${keys.length}` }
  }
  return { keys, bench: createBench((options) => till(charge, options)) }
}

it('retries charges again under the same key until the provider answers', async () => {
  const { bench, keys } = tillBench([{ status: 503 }, { status: 503 }])
  expect(await bench.tool('pay', { cents: 5 }).run()).toMatchObject({ text: 'Paid, receipt r-3.' })
  expect(new Set(keys).size).toBe(1)
})

it('retries waits as long as the provider asks, without a process', async () => {
  // #region testing
  const { bench } = tillBench([{ status: 429, retryAfter: '3600' }])
  const task = bench.task('pay', { cents: 5 })
  expect(await task.next()).toMatchObject({ kind: 'sleeping' })
  await bench.advance('1 h')
  expect(await task.next()).toMatchObject({ text: 'Paid, receipt r-2.' })
  const retries = bench.events.filter(({ event }) => event === 'retry')
  expect(retries).toMatchObject([{ key: 'charge', attempt: 1, delayMs: 3_600_000 }])
  // #endregion
})

it('retries ends at once if the card was refused', async () => {
  const { bench, keys } = tillBench([{ status: 402 }])
  expect(await bench.tool('pay', { cents: 5 }).run()).toMatchObject({ result: { isError: true } })
  expect(keys).toHaveLength(1)
})
