/** The delay until a client learns that its task has ended: the poll interval in each reply grows with the task's age. */

import { createServer } from 'rondo'
import { expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { send } from '../support/task-client.ts'

/** A server whose tasks no worker runs, and a clock that the test drives. */
function start(pollMs?: number) {
  let at = 1_800_000_000_000
  const now = () => at
  const server = createServer({
    name: 'polls',
    version: '1',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    store: createMemoryStore({ now }),
    now,
    tasks: { concurrency: 0, ...(pollMs !== undefined && { pollMs }) },
  })
  server.tool('work', { task: 'always' }, () => 'done')
  return { server, now, pass: (ms: number) => (at += ms) }
}

/** The times at which a client polls that waits as long as each reply says. */
async function pollTimes(pollMs: number | undefined, forMs: number): Promise<number[]> {
  const { server, now, pass } = start(pollMs)
  const began = now()
  let { result } = await send(server, 'tools/call', { name: 'work' })
  const taskId = String(result?.taskId)
  const times: number[] = []
  for (;;) {
    pass(Number(result?.pollIntervalMs))
    if (now() - began > forMs) break
    times.push(now() - began)
    result = (await send(server, 'tasks/get', { taskId })).result
  }
  await server.close()
  return times
}

it('E2 a task of 100 ms is polled twice within 250 ms, and four times within 700 ms', async () => {
  expect(await pollTimes(undefined, 700)).toEqual([84, 168, 336, 672])
})

it.each([1, 20, 1_000, 60_000])(
  'E2 a long task costs three polls more than at a fixed interval of %d ms',
  async (pollMs) => {
    const times = await pollTimes(pollMs, 20 * pollMs)
    expect(times.length).toBeGreaterThanOrEqual(20)
    expect(times.length).toBeLessThanOrEqual(23)
  },
)
