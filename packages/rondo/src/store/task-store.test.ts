import { expect, it } from 'vitest'
import { createBatch } from './task-store.ts'

it('a batch runs the calls of one turn of the event loop together, and returns each its own result', async () => {
  const batches: (readonly number[])[] = []
  const double = createBatch(async (items: readonly number[]) => {
    batches.push(items)
    return items.map((item) => item * 2)
  })
  expect(await Promise.all([1, 2, 3].map(double))).toEqual([2, 4, 6])
  expect(await double(4)).toBe(8)
  expect(batches).toEqual([[1, 2, 3], [4]])
})

it('a batch that is too large for one run is split', async () => {
  const sizes: number[] = []
  const same = createBatch(async (items: readonly number[]) => {
    sizes.push(items.length)
    return items
  }, 10)
  const items = Array.from({ length: 25 }, (_, i) => i)
  expect(await Promise.all(items.map(same))).toEqual(items)
  expect(sizes).toEqual([10, 10, 5])
})

it('a batch that fails rejects its own calls, and no others', async () => {
  let runs = 0
  const first = createBatch(async (items: readonly number[]) => {
    if (runs++ === 0) throw new Error('lost')
    return items
  })
  const failed = await Promise.allSettled([first(1), first(2)])
  expect(failed.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  expect(await first(3)).toBe(3)
})
