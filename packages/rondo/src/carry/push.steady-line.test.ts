import { expect, it } from 'vitest'
import type { Line } from '../protocol/call.ts'
import { SteadyLine } from './push.ts'

it('a line over several runs passes on progress that grows, and drops what repeats or falls', () => {
  const reported: unknown[] = []
  const line: Line = {
    notify: (_method, params) => void reported.push(params.progress),
    closed: false,
    onClose: () => () => {},
  }
  const steady = new SteadyLine(line)
  for (const progress of [1, 2, 1, 2, 3]) steady.notify('notifications/progress', { progress })
  expect(reported).toEqual([1, 2, 3])
  expect(steady.progress).toBe(3)
})
