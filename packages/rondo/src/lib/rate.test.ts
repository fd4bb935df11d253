import { expect, it } from 'vitest'
import { createRate } from './rate.ts'

it('a rate admits a number of events per kind and window, and counts those beyond it', () => {
  let now = 0
  const rate = createRate(60_000, () => now, 2)
  expect([rate('a'), rate('a'), rate('a'), rate('a')]).toEqual([0, 0, undefined, undefined])
  expect(rate('b')).toBe(0)
  now = 59_999
  expect(rate('a')).toBeUndefined()
  now = 60_000
  expect([rate('a'), rate('a'), rate('a')]).toEqual([3, 0, undefined])
})

it('a rate is not stopped by a clock that was set back', () => {
  let now = 1_000_000
  const rate = createRate(60_000, () => now)
  expect([rate(), rate()]).toEqual([0, undefined])
  now = 0
  expect([rate(), rate()]).toEqual([1, undefined])
})
