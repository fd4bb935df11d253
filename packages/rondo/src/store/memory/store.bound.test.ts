import { expect, it } from 'vitest'
import { createMemoryStore } from './store.ts'

it('I3 the work of writing a record does not grow with the number of records of its owner', async () => {
  let looks = 0
  const { records } = createMemoryStore({
    now: () => {
      looks += 1
      return 1_000
    },
  })
  const looksOf = async (id: string, maxBytes: number): Promise<number> => {
    looks = 0
    await records?.put({ id, owner: 'alice', sealed: 'x', version: 0, ttlMs: 60_000, maxBytes })
    return looks
  }
  await looksOf('first', 1_000_000)
  const early = await looksOf('second', 1_000_000)
  for (let i = 0; i < 500; i++) await looksOf(`${i}`, 1_000_000)
  expect(await looksOf('late', 1_000_000)).toBe(early)
  // Only a write that may be too much looks at every record.
  expect(await looksOf('too much', 1_000)).toBeGreaterThan(500)
})
