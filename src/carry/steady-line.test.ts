import { describe, expect, it } from 'vitest'
import type { Line } from '../protocol/call.ts'
import { steadyLine } from './steady-line.ts'

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
    log: (data: unknown) => steady.notify('notifications/message', { level: 'info', data }),
  }
}

describe('a line over several runs', () => {
  it('S1 lets progress grow, never repeat or fall', () => {
    const { told, steady, progress } = start('p')
    for (const n of [1, 2]) progress(n)
    steady.rerun()
    for (const n of [1, 2, 3]) progress(n)
    expect(told).toEqual([1, 2, 3])
  })

  it('S2 tells a message again only if a run tells it more often than those before', () => {
    const { told, steady, log } = start()
    log('tick')
    log('tick')
    steady.rerun()
    for (const text of ['tick', 'tick', 'tick', 'tock']) log(text)
    steady.rerun()
    for (const text of ['tick', 'tick', 'tick', 'tock', 'end']) log(text)
    expect(told).toEqual(['tick', 'tick', 'tick', 'tock', 'end'])
  })

  it('S2 does not take a message for an old one because another was left out', () => {
    const { told, steady, log } = start()
    log('inside a step')
    log('outside')
    steady.rerun()
    log('outside')
    log('new')
    expect(told).toEqual(['inside a step', 'outside', 'new'])
  })

  it('R9 remembers a bounded number of messages', () => {
    const { told, steady, log } = start()
    for (let i = 0; i < 300; i++) log(i)
    steady.rerun()
    for (let i = 0; i < 300; i++) log(i)
    expect(told.length).toBe(300 + 44)
  })

  it.each([0, 1, -5, 1e9, 1e15, -1e15])('S3 signs are more than %d and less than what comes next', (last) => {
    const { told, steady, progress } = start('p')
    progress(last)
    for (let i = 0; i < 100; i++) steady.sign('waiting')
    progress(last + Math.max(1, Math.abs(last) * 0.01))
    expect(told).toHaveLength(102)
    expect(told).toEqual([...new Set(told as number[])].sort((a, b) => a - b))
  })

  it('S3 shows no sign to a client that did not ask for progress', () => {
    const { told, steady } = start()
    steady.sign('waiting')
    expect(told).toEqual([])
  })
})
