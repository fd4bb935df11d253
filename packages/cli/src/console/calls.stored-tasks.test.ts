import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { createBook } from './book.ts'
import { followTasks } from './calls.ts'
import type { StoredTask } from './event.ts'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

const sleeping: StoredTask = {
  id: 'task',
  owner: { tenant: '', principal: '' },
  status: 'working',
  createdAt: 0,
  updatedAt: 0,
  expiresAt: 1_000_000,
  failures: 0,
  dueAt: 2_000,
  openKeys: [],
  openHooks: [],
  entries: 1,
}
const asking: StoredTask = { ...sleeping, status: 'input_required', openKeys: ['room'] }

function follow(looks: (readonly StoredTask[] | undefined)[]) {
  const shown: string[] = []
  const read: string[] = []
  const book = createBook()
  book.watch((event) => {
    if (event.kind === 'stored') shown.push(event.task.status)
  })
  const look = () => [Promise.resolve(looks.length > 1 ? looks.shift() : looks[0])]
  const stop = followTasks({
    fleet: { look },
    proxy: { pollsOf: () => undefined },
    book,
    look: async (id) => void read.push(id),
  })
  return { shown, read, stop }
}

it('the console follows a task that wakes, although an instance was too busy to respond in between', async () => {
  const { shown, stop } = follow([[sleeping], undefined, undefined, [asking]])
  await vi.advanceTimersByTimeAsync(5_000)
  expect(shown).toEqual(['working', 'input_required'])
  stop()
})

it('the console reads the result of a task that has ended, as its owner', async () => {
  const { read, stop } = follow([[sleeping], [{ ...sleeping, status: 'completed' as const }]])
  await vi.advanceTimersByTimeAsync(5_000)
  expect(read).toEqual(['task'])
  stop()
})

it('the console stops polling once no task is open', async () => {
  const looks = [[sleeping], [{ ...sleeping, status: 'completed' as const }], [asking]]
  const { shown, stop } = follow(looks)
  await vi.advanceTimersByTimeAsync(60_000)
  expect(shown).toEqual(['working', 'completed'])
  expect(looks).toHaveLength(1)
  stop()
})
