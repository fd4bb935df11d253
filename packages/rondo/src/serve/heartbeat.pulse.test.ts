import { describe, expect, it } from 'vitest'
import { Pulse } from './heartbeat.ts'

function start(before?: number) {
  const pulse = new Pulse(before)
  const reported: number[] = []
  const keep = (params: Record<string, unknown>) => void reported.push(params.progress as number)
  return {
    reported,
    beat: () => keep(pulse.beat('p')),
    progress: (progress: number) => keep(pulse.say('notifications/progress', { progress })),
  }
}

describe('a heartbeat that is progress', () => {
  it.each([0, 1, -5, 1 / 3, 999_999.999_999_5, 1e6 / 3, 1e9, 1e15, -1e15])(
    'is more than %d and less than the next progress of the handler',
    (last) => {
      const { reported, beat, progress } = start()
      progress(last)
      for (let i = 0; i < 100; i++) beat()
      progress(last + Math.max(1, Math.abs(last) * 0.01))
      expect(reported).toHaveLength(102)
      expect(reported).toEqual([...new Set(reported)].sort((a, b) => a - b))
    },
  )

  it('is a short number, because hosts show it to people', () => {
    const { reported, beat, progress } = start()
    for (let i = 0; i < 200; i++) beat()
    progress(1 / 3)
    for (let i = 0; i < 200; i++) beat()
    const heartbeats = reported.filter((one) => one !== 1 / 3)
    expect(heartbeats).toHaveLength(400)
    expect(heartbeats.slice(0, 6)).toEqual([0, 0.000001, 0.000002, 0.000003, 0.000004, 0.000005])
    expect(Math.max(...heartbeats.map((one) => String(one).length))).toBeLessThanOrEqual(8)
  })

  it('is more than the last progress that another instance reported', () => {
    const { reported, beat } = start(7)
    beat()
    expect(reported).toEqual([7.000001])
  })
})
