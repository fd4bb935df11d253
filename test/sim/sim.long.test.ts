import { describe, expect, it } from 'vitest'
import { CONTROLS } from './controls.ts'
import { loadRuntime } from './runtime.ts'
import { runSchedule } from './schedule.ts'

const SCHEDULES = 2_000
/** Schedules within which each control has to be found. */
const BOUND = 1_000

describe('the simulator, at length', () => {
  it('finds no problem in the runtime', async () => {
    const runtime = await loadRuntime()
    for (let seed = 1; seed <= SCHEDULES; seed++) {
      const { problems } = await runSchedule(runtime, seed)
      expect(problems, `npm run sim -- --seed ${seed}`).toEqual([])
    }
  })

  it.each(CONTROLS)('finds the weakened copy $name', async (control) => {
    const runtime = await loadRuntime(control)
    for (let seed = 1; seed <= BOUND; seed++) {
      if ((await runSchedule(runtime, seed)).problems.length > 0) return
    }
    expect.unreachable(`not found in ${BOUND} schedules`)
  })
})
