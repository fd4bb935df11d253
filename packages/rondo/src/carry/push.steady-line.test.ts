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

  it.each([0, 1, -5, 1 / 3, 999_999.999_999_5, 1e6 / 3, 1e9, 1e15, -1e15])(
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

  it('reports heartbeats as short numbers, which hosts show to people', () => {
    const { reported, steady, progress } = start('p')
    for (let i = 0; i < 200; i++) steady.heartbeat('waiting')
    progress(1 / 3)
    for (let i = 0; i < 200; i++) steady.heartbeat('waiting')
    const heartbeats = reported.filter((one) => one !== 1 / 3)
    expect(heartbeats).toHaveLength(400)
    expect(heartbeats.slice(0, 6)).toEqual([0, 0.000001, 0.000002, 0.000003, 0.000004, 0.000005])
    expect(Math.max(...heartbeats.map((one) => String(one).length))).toBeLessThanOrEqual(8)
  })
})
