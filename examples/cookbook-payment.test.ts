import { createBench } from 'rondo/testing'
import { expect, it } from 'vitest'
import { payments } from './cookbook-payment.ts'

const principal = { issuer: 'https://login.example', subject: 'erin' }

/** A bank that honours idempotency keys, and the payments that it made. */
function open() {
  const paid = new Map<string, number>()
  const bank = {
    async pay(_to: string, cents: number, { idempotencyKey }: { idempotencyKey: string }) {
      paid.set(idempotencyKey, cents)
      return `receipt ${paid.size}`
    },
  }
  const bench = createBench((options) => payments(bank, () => undefined, options))
  const pay = (cents: number) => bench.task('pay', { to: 'Acme', cents }, { principal })
  return { bench, paid, pay }
}

it('a small payment needs no approval', async () => {
  const { pay, paid } = open()
  expect(await pay(5_000).run()).toMatchObject({ text: 'Paid 50 € to Acme: receipt 1.' })
  expect(paid.size).toBe(1)
})

it('L1 a large payment needs two people of finance, and the caller is none of them', async () => {
  const { pay, paid } = open()
  const task = pay(500_000)
  await task.next()
  await expect(task.approve('pay', { by: 'erin' })).rejects.toThrow('not a member of finance')
  expect(await task.approve('pay', { by: 'ann' })).toMatchObject({ kind: 'waiting' })
  await expect(task.approve('pay', { by: 'ann' })).rejects.toThrow('you have decided before')
  expect(paid.size).toBe(0)
  expect(await task.approve('pay', { by: 'bob' })).toMatchObject({
    text: expect.stringContaining('Paid 5000 € to Acme'),
  })
  expect(paid.size).toBe(1)
})

it('L3 one denial ends it, and nothing is paid', async () => {
  const { pay, paid } = open()
  const task = pay(500_000)
  await task.next()
  await task.approve('pay', { by: 'ann' })
  expect(await task.deny('pay', { by: 'bob' })).toMatchObject({ result: { isError: true } })
  expect(paid.size).toBe(0)
})

it('L3 after a day the board may decide too, and after five days nothing is paid', async () => {
  const { bench, pay, paid } = open()
  const task = pay(500_000)
  await task.next()
  await expect(task.approve('pay', { by: 'dora' })).rejects.toThrow('not a member')
  await bench.advance('1 day')
  expect(await task.approve('pay', { by: 'dora' })).toMatchObject({ kind: 'waiting' })
  await bench.advance('4 days')
  expect(await task.run()).toMatchObject({ result: { isError: true } })
  expect(paid.size).toBe(0)
})
