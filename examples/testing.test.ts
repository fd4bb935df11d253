import { createBench, decline } from 'rondo/testing'
import { expect, it } from 'vitest'
import { createProvider, shop } from './03-steps-and-effects.ts'

it('the tool charges once, though the reply was lost and the instance restarted', async () => {
  const provider = createProvider()
  const bench = createBench((options) => shop(provider, options))
  const call = bench.tool('buy', { item: 'tea' })

  await call.next()
  await call.loseReply({ pay: { confirm: true } })
  const done = await call.otherInstance().next({ pay: { confirm: true } })

  expect(done).toMatchObject({ kind: 'complete', text: 'Bought tea for 30 cents, receipt r-1.' })
  expect(provider.charges.size).toBe(1)
})

it('the tool charges nothing if the user declines', async () => {
  const provider = createProvider()
  const bench = createBench((options) => shop(provider, options))
  const done = await bench.tool('buy', { item: 'tea' }).run({ pay: decline })
  expect(done).toMatchObject({ text: 'Nothing was charged.' })
  expect(provider.charges.size).toBe(0)
})
