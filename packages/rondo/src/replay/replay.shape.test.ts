import { setFlagsFromString } from 'node:v8'
import { expect, it } from 'vitest'
import { replayFlow, scope } from '../../../../test/support/replay-flow.ts'
import type { Mark } from './run-state.ts'

setFlagsFromString('--allow-natives-syntax')
const haveSameShape = new Function('a', 'b', 'return %HaveSameMap(a, b)') as (a: object, b: object) => boolean

function countShapes(objects: readonly object[]): number {
  const shapes: object[] = []
  for (const object of objects) if (!shapes.some((shape) => haveSameShape(shape, object))) shapes.push(object)
  return shapes.length
}

it('all runs have one shape, so that V8 reads their state without a search', async () => {
  const runs: object[] = []
  const flow = replayFlow((ctx) =>
    ctx.step('look', () => void runs.push((scope.storage.getStore() as Mark).run)),
  )
  for (let round = 0; round < 50; round++) {
    flow.journal = { ...flow.journal, entries: [] }
    await flow.round()
  }
  expect(runs).toHaveLength(50)
  expect(countShapes(runs)).toBe(1)
  expect(countShapes([{ a: 1 }, { b: 1 }])).toBe(2)
})
