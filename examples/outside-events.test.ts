import { createHmac } from 'node:crypto'
import type { AddressInfo } from 'node:net'
import { createBench } from 'rondo/testing'
import { expect, it } from 'vitest'
import { type Charge, listenForPayments, shop } from './outside-events.ts'
import { patientShop } from './outside-events-time.ts'
import { accounts } from './outside-events-user.ts'

const SECRET = 'shared with the payment service'

/** A payment service that remembers what it was asked to charge. */
function paymentService() {
  const charges: Parameters<Charge>[0][] = []
  let charged = () => {}
  const first = new Promise<void>((resolve) => {
    charged = resolve
  })
  const charge: Charge = async (order) => {
    charges.push(order)
    charged()
  }
  return { charges, charge, first }
}

it('G3 outside-events continues an order when the payment service reports to a real endpoint', async () => {
  const service = paymentService()
  const bench = createBench((options) => shop(service.charge, options))
  const task = bench.task('order', { item: 'A lamp' })
  const done = task.run()
  await service.first
  const http = listenForPayments(bench.server, SECRET, 0)
  await new Promise((resolve) => http.once('listening', resolve))
  const { port } = http.address() as AddressInfo
  const report = async (payment: object, secret = SECRET) => {
    const body = JSON.stringify(payment)
    const signature = createHmac('sha256', secret).update(body).digest('hex')
    const headers = { 'x-signature': signature }
    const { status } = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', headers, body })
    return status
  }
  const [{ reference } = { reference: '' }] = service.charges
  expect(await report({ reference, cents: 4990 }, 'guessed')).toBe(401)
  expect(await report({ reference: 'h.made-up', cents: 4990 })).toBe(404)
  expect(await report({ reference, cents: -1 })).toBe(422)
  expect(await report({ reference, cents: 4990 })).toBe(204)
  expect(await report({ reference, cents: 1 })).toBe(204)
  expect(await done).toMatchObject({ kind: 'complete', text: 'A lamp is paid: 49.9 EUR.' })
  expect(service.charges).toHaveLength(1)
  await new Promise((resolve) => http.close(resolve))
})

it('G3 outside-events-user refuses another visitor of the page, and waits for the caller', async () => {
  const bench = createBench(accounts)
  const task = bench.task('connect', {}, { principal: { subject: 'ann' } })
  const asked = await task.next()
  if (asked.kind !== 'input_required') throw new Error('nothing was asked')
  const [, hook = ''] = /hook=([^"]+)/.exec(JSON.stringify(asked.questions)) ?? []
  expect(await bench.server.hook(hook)).toMatchObject({ kind: 'open', about: {} })
  // The page knows from its own login who is there; nothing that the visitor sends decides it.
  const problem = 'Log in as the user who started the call.'
  expect(await bench.server.deliver(hook, { subject: 'eve' })).toEqual({ kind: 'rejected', problem })
  expect(await bench.server.deliver(hook, { subject: 'ann' })).toEqual({ kind: 'accepted' })
  expect(await task.next({ page: {} })).toMatchObject({
    kind: 'complete',
    text: 'Your account is connected.',
  })
})

/** An order, and what was sent for it. */
async function orderLamp() {
  const sent: string[] = []
  const references: string[] = []
  const bench = createBench((options) =>
    patientShop(async ({ text, reference }) => {
      sent.push(text)
      references.push(reference)
    }, options),
  )
  const task = bench.task('order', { item: 'A lamp' })
  await task.next()
  const pay = (cents: number) => bench.server.deliver(references[0] ?? '', { cents })
  return { bench, task, sent, pay }
}

it('G3 outside-events-time reminds after a day, and takes the payment of the second', async () => {
  const { bench, task, sent, pay } = await orderLamp()
  expect(sent).toEqual(['Please pay for A lamp.'])
  await bench.advance('1 day')
  await task.next()
  expect(sent).toEqual(['Please pay for A lamp.', 'A lamp is not paid yet.'])
  await bench.advance('1 day')
  expect(await pay(4990)).toEqual({ kind: 'accepted' })
  expect(await task.next()).toMatchObject({ text: 'A lamp is paid: 49.9 EUR.' })
  expect(sent).toHaveLength(2)
})

it('G3 outside-events-time does not remind whoever has paid', async () => {
  const { task, sent, pay } = await orderLamp()
  await pay(4990)
  expect(await task.next()).toMatchObject({ text: 'A lamp is paid: 49.9 EUR.' })
  expect(sent).toHaveLength(1)
})

it('G3 outside-events-time closes the hook after three days', async () => {
  const { bench, task, sent, pay } = await orderLamp()
  await bench.advance('1 day')
  await task.next()
  await bench.advance('2 days')
  expect(await pay(4990)).toEqual({ kind: 'closed' })
  expect(await task.next()).toMatchObject({ text: 'A lamp was not paid within three days.' })
  expect(sent).toHaveLength(2)
})
