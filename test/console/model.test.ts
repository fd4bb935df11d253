/** The sentences of the console page about a task. */

import { expect, it } from 'vitest'
import { stateOf } from '../../packages/cli/console/model.ts'

const MINUTE = 60_000

it.each([
  [45_000, '45 s'],
  [14 * MINUTE + 5_000, '14 min 5 s'],
  [119 * MINUTE, '1 h 59 min'],
  [3 * 24 * 60 * MINUTE, '72 h 0 min'],
])('the page says how long a task of %d ms still sleeps: %s', (ms, text) => {
  const stored = { dueAt: 1_000 + ms } as never
  const task = { id: 'a', status: 'working', turns: [], failures: 0, stored } as never
  expect(stateOf(task, 1_000).says).toBe(`The task sleeps and wakes in ${text}.`)
})
