import { describe, expect, it } from 'vitest'
import { createMemo } from './collection.ts'

describe('createMemo', () => {
  it('keeps what is used, and forgets the rest', () => {
    const memo = createMemo<number>(10)
    memo.set('hot', 1)
    for (let i = 0; i < 1_000; i++) {
      memo.set(`cold ${i}`, i)
      expect(memo.get('hot')).toBe(1)
    }
    expect(memo.get('cold 0')).toBeUndefined()
    expect(memo.get('cold 999')).toBe(999)
  })
})
