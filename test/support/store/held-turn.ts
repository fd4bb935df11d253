/** A turn of a task that ends when the test says so. */

import type { TaskTurn, TaskTurnOutcome } from '../../../packages/rondo/src/store/task-engine.ts'

export const complete = (result: string): TaskTurnOutcome => ({ kind: 'complete', result })

export function heldTurn() {
  const turns: TaskTurn[] = []
  const ends: ((outcome: TaskTurnOutcome) => void)[] = []
  const run = (turn: TaskTurn) => {
    turns.push(turn)
    return new Promise<TaskTurnOutcome>((resolve) => ends.push(resolve))
  }
  return { run, turns, end: (i: number, outcome: TaskTurnOutcome) => ends[i]?.(outcome) }
}
