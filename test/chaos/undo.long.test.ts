/** Instances die at every point of calls whose effects can be undone: 0 rooms left, 0 undone under two keys. */

import { describe, expect, it } from 'vitest'
import { type Ending, killAtPoints } from './undo-points.ts'

const ENDINGS: readonly Ending[] = ['yes', 'no', 'fails', 'gone', 'cancelled']

describe.each(['rounds', 'task'] as const)('an instance that dies at any point of a call in %s', (mode) => {
  it.each(ENDINGS)(
    'leaves nothing of a call that did not end well, after %s',
    async (ending) => {
      const { deaths, problems } = await killAtPoints({ ending, mode }, () => true)
      console.log(`${mode}, ${ending}: ${deaths} kills`)
      expect(problems).toEqual([])
      expect(deaths).toBeGreaterThan(20)
    },
    300_000,
  )
})
