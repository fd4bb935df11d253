import { createBench } from 'rondo/testing'
import { expect, it } from 'vitest'
import { type Airline, flights } from './undo.ts'

function flightsBench() {
  const held = new Map<string, string>()
  const keys: string[] = []
  const airline: Airline = {
    async hold(flight, { idempotencyKey }) {
      held.set(idempotencyKey, flight)
      return { hold: `h-${flight}`, price: 100 }
    },
    async release({ heldWith }, { idempotencyKey }) {
      keys.push(idempotencyKey)
      held.delete(heldWith)
    },
    async pay(hold) {
      if (hold === 'h-SOLD') throw new Error('Sold out')
    },
  }
  return { held, keys, bench: createBench((options) => flights(airline, options)) }
}

const trip = { there: 'OSL', back: 'TRD' }

it('undo releases both seats after a No', async () => {
  const { bench, held } = flightsBench()
  const ended = await bench.tool('book', trip).run({ pay: { confirm: false } })
  expect(ended).toMatchObject({ text: 'Nothing was booked, and no seat is held.' })
  expect(held.size).toBe(0)
})

it('undo releases both seats if a payment fails, and the result says so', async () => {
  const { bench, held } = flightsBench()
  const ended = await bench.tool('book', { ...trip, back: 'SOLD' }).run({ pay: { confirm: true } })
  expect(ended).toMatchObject({
    result: { isError: true },
    text: expect.stringMatching(/Undone: back, there\.$/),
  })
  expect(held.size).toBe(0)
})

it('undo keeps the seats that are paid for', async () => {
  const { bench, held } = flightsBench()
  expect(await bench.tool('book', trip).run({ pay: { confirm: true } })).toMatchObject({
    text: 'Booked for 200 EUR.',
  })
  await bench.advance('40 days')
  expect(held.size).toBe(2)
})

it('undo releases the seats of a user who never answers', async () => {
  // #region testing
  const { bench, held, keys } = flightsBench()
  const call = bench.tool('book', trip)
  await call.next()
  await call.next() // The user is asked, and goes home.
  expect(held.size).toBe(2)
  await bench.advance('1 day')
  expect(held.size).toBe(0)
  expect(new Set(keys).size).toBe(2)
  // #endregion
})
