import { describe, expect, it } from 'vitest'
import { measureJson } from './json.ts'

describe('the size of a value', () => {
  it('counts strings, keys and values', () => {
    expect(measureJson({ ab: 'cde', f: [1, null] }, 1_000)).toBe(8 * 5 + 2 + 3 + 1 + 2)
  })

  it('T22 is infinite for a value that is nested too deeply, without a stack overflow', () => {
    let deep: unknown = 0
    for (let depth = 0; depth < 1_000_000; depth++) deep = [deep]
    expect(measureJson(deep, Number.MAX_SAFE_INTEGER)).toBe(Number.POSITIVE_INFINITY)
  })

  it('T22 is infinite past the limit', () => {
    expect(measureJson(Array(100).fill(0), 500)).toBe(Number.POSITIVE_INFINITY)
    expect(measureJson('x'.repeat(500), 500)).toBe(Number.POSITIVE_INFINITY)
    expect(measureJson('x'.repeat(492), 500)).toBe(500)
  })
})
