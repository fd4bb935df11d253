import { describe, expect, it } from 'vitest'
import { NOW } from '../../../../../test/support/seal-fixtures.ts'
import { createTurnMemory } from './turn-state.ts'

const LATER = NOW + 1000
/** A state of which four fit into 10,000 bytes, with what an entry costs. */
const state = 'x'.repeat(2_244)

describe('createTurnMemory', () => {
  it('F2 returns what it remembers, by the id of the turn', () => {
    const memory = createTurnMemory(10_000, () => NOW)
    memory.remember('a', ['r1.a', 'r1.b'], LATER)
    expect(memory.recall('a')).toEqual(['r1.a', 'r1.b'])
    expect(memory.recall('b')).toEqual([])
  })

  it('R9 evicts the oldest turn when it is full, and refuses one that is too large by itself', () => {
    const memory = createTurnMemory(10_000, () => NOW)
    for (const id of ['a', 'b', 'c', 'd', 'e']) memory.remember(id, [state], LATER)
    memory.remember('large', ['x'.repeat(10_000)], LATER)
    const kept = ['a', 'b', 'c', 'd', 'e', 'large'].filter((id) => memory.recall(id).length > 0)
    expect(kept).toEqual(['b', 'c', 'd', 'e'])
    expect(memory.bytes).toBe(10_000)
  })

  it('B11 forgets turns that have expired', () => {
    let now = NOW
    const memory = createTurnMemory(10_000, () => now)
    for (const id of ['a', 'b']) memory.remember(id, [state], LATER)
    now += 1000
    memory.remember('c', [state], now + 1000)
    expect(memory.bytes).toBe(2_500)
    expect(memory.recall('c')).toEqual([state])
  })

  it('memory 2: forgets a turn whose state came back, and knows the session of its client', () => {
    const memory = createTurnMemory(10_000, () => NOW)
    memory.remember('a', [state], LATER)
    expect(memory.echoes('s')).toBe(false)
    memory.sawEcho('a', 's')
    expect([memory.bytes, memory.recall('a'), memory.echoes('s'), memory.echoes('t')]).toEqual([
      0,
      [],
      true,
      false,
    ])
  })

  it('R9 knows the sessions of the clients that echoed last, up to a limit', () => {
    const memory = createTurnMemory(10_000, () => NOW)
    for (let i = 0; i <= 10_000; i++) memory.sawEcho('a', `session ${i}`)
    expect([memory.echoes('session 0'), memory.echoes('session 10000')]).toEqual([false, true])
  })
})
