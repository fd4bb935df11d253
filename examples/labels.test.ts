import { createBench } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { shipping } from './labels.ts'

describe('labels', () => {
  it('name the order of a task while it waits and after it has ended', async () => {
    const task = createBench((options) => shipping(options)).task('ship', { order: '4711' })
    expect(await task.next()).toMatchObject({ kind: 'input_required' })
    expect(await task.labels()).toEqual({ order: '4711', carrier: 'Hermes' })
    expect(await task.run({ sure: { confirm: true } })).toMatchObject({ text: 'Shipped 4711.' })
    expect(await task.labels()).toEqual({ order: '4711', carrier: 'Hermes' })
  })

  it('change nothing in rounds', async () => {
    const bench = createBench((options) => shipping(options), { store: false })
    const done = await bench.tool('ship', { order: '4711' }).run({ sure: { confirm: true } })
    expect(done).toMatchObject({ text: 'Shipped 4711.' })
  })
})
