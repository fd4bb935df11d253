import { createBench } from 'rondo/testing'
import { expect, it } from 'vitest'
import { travel } from './time.ts'

function travelBench() {
  const sent: string[] = []
  const bench = createBench((options) =>
    travel((_key, text) => sent.push(text), { ...options, tasks: { ttlMs: 7 * 86_400_000 } }),
  )
  return { bench, sent }
}

it('G1 G2 time sends the reminder a day after the approval', async () => {
  const { bench, sent } = travelBench()
  const task = bench.task('request_trip', { city: 'Oslo' })
  await task.next()
  await bench.advance('1 day')
  expect(await task.next({ approval: { budget: 900 } })).toMatchObject({ kind: 'sleeping' })
  expect(sent).toEqual([])
  await bench.advance('1 day')
  expect(await task.next()).toMatchObject({ text: 'Approved: Oslo.' })
  expect(sent).toEqual(['Oslo: 900 EUR'])
})

it('G2 time closes the question after two days', async () => {
  const { bench, sent } = travelBench()
  const task = bench.task('request_trip', { city: 'Oslo' })
  await task.next()
  await bench.advance('2 days')
  expect(await task.next()).toMatchObject({ text: 'Nobody decided on Oslo in time.' })
  expect(sent).toEqual([])
})

it('G2 time catches the end of a question in rounds', async () => {
  const { bench } = travelBench()
  const call = bench.tool('pick_seat')
  await call.next()
  await bench.advance('10 min')
  expect(await call.next({ seat: { seat: 'aisle' } })).toMatchObject({ text: 'Seat: any.' })
})
