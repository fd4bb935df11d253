import { describe, expect, it } from 'vitest'
import type { Line } from '../protocol/call.ts'
import { steadyLine } from './push.ts'

function start(progressToken?: string) {
  const told: unknown[] = []
  const line: Line = {
    notify: (_method, params) => void told.push(params.data ?? params.progress),
    closed: false,
    onClose: () => () => {},
  }
  const steady = steadyLine(line, progressToken)
  return {
    told,
    steady,
    progress: (progress: number) => steady.notify('notifications/progress', { progressToken, progress }),
  }
}

describe('a line over several runs', () => {
  it('S1 lets progress grow, never repeat or fall', () => {
    const { told, progress } = start('p')
    for (const n of [1, 2]) progress(n)
    for (const n of [1, 2, 3]) progress(n)
    expect(told).toEqual([1, 2, 3])
  })

  it.each([0, 1, -5, 1e9, 1e15, -1e15])('S2 signs are more than %d and less than what comes next', (last) => {
    const { told, steady, progress } = start('p')
    progress(last)
    for (let i = 0; i < 100; i++) steady.sign('waiting')
    progress(last + Math.max(1, Math.abs(last) * 0.01))
    expect(told).toHaveLength(102)
    expect(told).toEqual([...new Set(told as number[])].sort((a, b) => a - b))
  })

  it('S2 shows no sign to a client that did not ask for progress', () => {
    const { told, steady } = start()
    steady.sign('waiting')
    expect(told).toEqual([])
  })
})
