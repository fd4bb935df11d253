import { describe, expect, it } from 'vitest'
import type { Line } from '../protocol/call.ts'
import { steadyLine } from './push.ts'

function start(progressToken?: string) {
  const reported: unknown[] = []
  const line: Line = {
    notify: (_method, params) => void reported.push(params.data ?? params.progress),
    closed: false,
    onClose: () => () => {},
  }
  const steady = steadyLine(line, progressToken)
  return {
    reported,
    steady,
    progress: (progress: number) => steady.notify('notifications/progress', { progressToken, progress }),
  }
}

describe('a line over several runs', () => {
  it('passes on progress that grows, and drops what repeats or falls', () => {
    const { reported, progress } = start('p')
    for (const n of [1, 2]) progress(n)
    for (const n of [1, 2, 3]) progress(n)
    expect(reported).toEqual([1, 2, 3])
  })

  it.each([0, 1, -5, 1e9, 1e15, -1e15])(
    'reports heartbeats that are more than %d and less than the next progress',
    (last) => {
      const { reported, steady, progress } = start('p')
      progress(last)
      for (let i = 0; i < 100; i++) steady.heartbeat('waiting')
      progress(last + Math.max(1, Math.abs(last) * 0.01))
      expect(reported).toHaveLength(102)
      expect(reported).toEqual([...new Set(reported as number[])].sort((a, b) => a - b))
    },
  )

  it('sends no heartbeat to a client that did not ask for progress', () => {
    const { reported, steady } = start()
    steady.heartbeat('waiting')
    expect(reported).toEqual([])
  })
})
