/** A turn of a task that ends when the test says so. */

import type { Outcome, Turn } from '../../../src/store/task-engine.ts'

export const complete = (result: string): Outcome => ({ kind: 'complete', result })

export function heldTurn() {
  const turns: Turn[] = []
  const ends: ((outcome: Outcome) => void)[] = []
  const run = (turn: Turn) => {
    turns.push(turn)
    return new Promise<Outcome>((resolve) => ends.push(resolve))
  }
  return { run, turns, end: (i: number, outcome: Outcome) => ends[i]?.(outcome) }
}
