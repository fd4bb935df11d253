import { describe, expect, it } from 'vitest'
import { NOW, turnClaims } from '../../test/support/seal-fixtures.ts'
import type { Claims } from '../seal/claims.ts'
import { createTurnMemory } from './turn-memory.ts'

function claimsOf(id: string, roundExpires = NOW + 1000): Claims {
  return { ...turnClaims, roundExpires, turn: { ...turnClaims.turn, id } } as Claims
}

describe('the memory of turns', () => {
  it('F2 gives back what it was told, by the name of the turn', () => {
    const memory = createTurnMemory(100, () => NOW)
    memory.remember(claimsOf('a'), 10)
    expect(memory.recall('a')).toEqual(claimsOf('a'))
    expect(memory.recall('b')).toBeUndefined()
  })

  it('R9 forgets the oldest when it would hold too much, and never takes what is too large alone', () => {
    const memory = createTurnMemory(100, () => NOW)
    for (const id of ['a', 'b', 'c']) memory.remember(claimsOf(id), 40)
    memory.remember(claimsOf('large'), 101)
    expect(['a', 'b', 'c', 'large'].map((id) => memory.recall(id) !== undefined)).toEqual([
      false,
      true,
      true,
      false,
    ])
    expect(memory.bytes).toBe(80)
  })

  it('B11 forgets what is over', () => {
    let now = NOW
    const memory = createTurnMemory(1000, () => now)
    for (const id of ['a', 'b']) memory.remember(claimsOf(id), 10)
    now += 1000
    memory.remember(claimsOf('c', now + 1000), 10)
    expect(memory.bytes).toBe(10)
    expect(memory.recall('c')).toBeDefined()
  })
})
