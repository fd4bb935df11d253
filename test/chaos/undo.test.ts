/** Instances die in the middle of calls whose effects can be undone. `undo.long.test.ts` kills them at every point. */

import { describe, expect, it } from 'vitest'
import { type Ending, judge, killAtPoints, type Plan, runPlan } from './undo-points.ts'

const MODES = ['rounds', 'task'] as const
const ENDINGS: readonly Ending[] = ['yes', 'no', 'fails', 'gone', 'cancelled']

describe.each(MODES)('an instance that dies while a call in %s can be undone', (mode) => {
  it.each(ENDINGS)(
    'leaves nothing of a call that did not end well, and undoes nothing under two keys, after %s',
    async (ending) => {
      const offset = ENDINGS.indexOf(ending)
      const { deaths, problems } = await killAtPoints({ ending, mode }, (point) => point % 9 === offset)
      expect(problems).toEqual([])
      expect(deaths).toBeGreaterThan(1)
    },
    60_000,
  )
})

describe('control', () => {
  it('a server that forgets its intents leaves rooms behind', async () => {
    const plan: Plan = { ending: 'gone', mode: 'rounds', killAt: 0, forgetful: true }
    expect(judge(plan, await runPlan(plan))).toEqual(['not booked (gone), and one, two is reserved'])
  })

  it('the judge finds two keys, and a booking without its rooms', () => {
    const plan: Plan = { ending: 'no', mode: 'task', killAt: 0 }
    const outcome = { points: 0, died: false, reply: 'Released.', left: [], undoKeys: 2, undone: 1 }
    expect(judge(plan, outcome)).toHaveLength(1)
    expect(judge({ ...plan, ending: 'yes' }, { ...outcome, reply: 'Booked.', undoKeys: 0 })).toHaveLength(1)
  })
})
