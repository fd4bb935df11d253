import { describe, expect, it } from 'vitest'
import { describeDuration, toMilliseconds } from './clock.ts'

describe('toMilliseconds', () => {
  it.each([
    [0, 0],
    [1500, 1500],
    [0.2, 1],
    ['250ms', 250],
    ['90 s', 90_000],
    ['15 min', 900_000],
    ['1 h 30 min', 5_400_000],
    ['3 days', 259_200_000],
    ['1 Day', 86_400_000],
    ['2 weeks', 1_209_600_000],
    ['1.5 hours', 5_400_000],
  ])('reads %j as %i ms', (text, ms) => {
    expect(toMilliseconds(text)).toBe(ms)
  })

  it.each([
    [-1],
    [Number.NaN],
    [Number.POSITIVE_INFINITY],
    [''],
    [' '],
    ['5'],
    ['soon'],
    ['-3 days'],
    ['3 months'],
    ['3 dayss'],
    ['3 constructor'],
    ['3 days and a half'],
    [`${'9'.repeat(99)} s`],
    [null],
    [undefined],
    [{}],
    [10n],
  ])('does not take %s for a span of time', (value) => {
    expect(toMilliseconds(value)).toBeUndefined()
  })

  it('describes a span in its two largest units', () => {
    expect([5, 1000, 5_400_000, 259_200_000, 90_061_000].map(describeDuration)).toEqual([
      '5 ms',
      '1 second',
      '1 hour 30 minutes',
      '3 days',
      '1 day 1 hour',
    ])
  })
})
