import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createMemo, createRoster, type Listed } from './collection.ts'

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

describe('createRoster', () => {
  it('holds what was added and not deleted, as a set does', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.boolean(), fc.nat(9))), (steps) => {
        const items = Array.from({ length: 10 }, (): Listed => ({}))
        const [roster, set] = [createRoster(), new Set<Listed>()]
        for (const [adds, index] of steps) {
          const item = items[index] as Listed
          if (adds) {
            roster.add(item)
            set.add(item)
          } else expect(roster.delete(item)).toBe(set.delete(item))
          expect(new Set(roster)).toEqual(set)
          expect(roster.size).toBe(set.size)
          for (const one of items) expect(roster.has(one)).toBe(set.has(one))
        }
      }),
    )
  })

  it('can be changed while it is read', () => {
    const roster = createRoster<Listed & { name: string }>()
    for (const name of ['a', 'b', 'c']) roster.add({ name })
    const seen: string[] = []
    for (const item of roster) {
      seen.push(item.name)
      roster.delete(item)
    }
    expect(seen).toEqual(['a', 'b', 'c'])
    expect(roster.size).toBe(0)
  })
})
