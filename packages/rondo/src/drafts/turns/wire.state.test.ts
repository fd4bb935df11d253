import { describe, expect, it } from 'vitest'
import { fromState, toState } from './wire.ts'

describe('a state on the wire', () => {
  it.each(['string', 'object'] as const)('F2 is restored from a %s', (form) => {
    expect(fromState(toState('r1.x', form))).toBe('r1.x')
    expect(typeof toState('r1.x', form)).toBe(form)
  })

  it('F2 is refused with an additional member or another type', () => {
    for (const state of [{}, { sealed: 7 }, { sealed: 'r1.x', more: 1 }, { other: 'r1.x' }]) {
      expect(fromState(state)).toBeUndefined()
    }
  })
})
