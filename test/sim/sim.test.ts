import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { CONTROLS } from './controls.ts'
import { loadRuntime } from './runtime.ts'
import { runSchedule, shrink } from './schedule.ts'

/** Enough for each kind of check to have seen something; `npm run sim` runs more. */
const SCHEDULES = 40

const unchanged = loadRuntime()

describe('the simulator', () => {
  it('finds no problem in the runtime, and every check has seen something', async () => {
    const runtime = await unchanged
    const seen = new Set<string>()
    for (let seed = 1; seed <= SCHEDULES; seed++) {
      const { problems, checks } = await runSchedule(runtime, seed)
      expect(problems, `npm run sim -- --seed ${seed}`).toEqual([])
      for (const name of checks.keys()) seen.add(name)
    }
    expect([...seen].sort()).toEqual([
      'acknowledged',
      'alone',
      'anchored',
      'answer',
      'approval',
      'asked once',
      'attempt',
      'bound',
      'diverged',
      'ends well',
      'epoch',
      'held',
      'once',
      'operator cancel',
      'operator fail',
      'operator retry',
      'order',
      'own key',
      'recorded',
      'result',
      'resumed',
      'retried',
      'same key',
      'same reply',
      'single use',
      'slept',
      'undo began',
      'undo final',
      'undo kept',
      'undo key',
      'undo knows',
      'undo order',
      'undo waits',
      'undone',
    ])
  })

  it('repeats a schedule exactly, whatever ran before it', async () => {
    const runtime = await unchanged
    const first = []
    for (const seed of [3, 4, 5]) first.push((await runSchedule(runtime, seed)).fingerprint)
    const again = []
    for (const seed of [5, 4, 3]) again.unshift((await runSchedule(runtime, seed)).fingerprint)
    expect(again).toEqual(first)
  })

  it('finds a weakened copy of the code, and shrinks the schedule that does', async () => {
    const control = CONTROLS.find(({ name }) => name === 'key-of-this-process')
    const runtime = await loadRuntime(control)
    for (let seed = 1; ; seed++) {
      const { problems } = await runSchedule(runtime, seed)
      if (problems.length === 0) continue
      const without = await shrink(runtime, seed)
      const left = await runSchedule(runtime, seed, { without })
      expect(left.problems[0]).toMatch(/^same key: /)
      expect(without.size).toBeGreaterThan(0)
      return
    }
  })

  it.each(CONTROLS)('finds the place that $name weakens, once', ({ file, from }) => {
    expect(readFileSync(`packages/rondo/src/${file}`, 'utf8').split(from)).toHaveLength(2)
  })
})
