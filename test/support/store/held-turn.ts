/** A turn of a task that ends when the test says so. */

import type { TaskTurn, TurnOutcome } from '../../../src/store/task-engine.ts'

export const complete = (result: string): TurnOutcome => ({ kind: 'complete', result })

export function heldTurn() {
  const turns: TaskTurn[] = []
  const ends: ((outcome: TurnOutcome) => void)[] = []
  const run = (turn: TaskTurn) => {
    turns.push(turn)
    return new Promise<TurnOutcome>((resolve) => ends.push(resolve))
  }
  return { run, turns, end: (i: number, outcome: TurnOutcome) => ends[i]?.(outcome) }
}
