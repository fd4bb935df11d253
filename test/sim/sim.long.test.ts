import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { hasPostgres } from '../support/postgres-server.ts'
import { CONTROLS } from './controls.ts'
import { loadRuntime } from './runtime.ts'
import { runSchedule } from './schedule.ts'
import { openStores } from './stores.ts'

const SCHEDULES = 1_500
const ON_DATABASE = 20
/** Schedules within which each control has to be found. */
const BOUND = 2_500
const TABLE = readFileSync(new URL('./controls.md', import.meta.url), 'utf8')

describe('the simulator, at length', () => {
  it('finds no problem in the runtime', async () => {
    const runtime = await loadRuntime()
    for (let seed = 1; seed <= SCHEDULES; seed++) {
      const { problems } = await runSchedule(runtime, seed)
      expect(problems, `npm run sim -- --seed ${seed}`).toEqual([])
    }
  })

  it.runIf(hasPostgres).each(['sqlite', 'postgres'] as const)(
    'finds no problem on %s, in the same schedules',
    async (kind) => {
      const runtime = await loadRuntime()
      const stores = await openStores(kind)
      try {
        for (let seed = 1; seed <= ON_DATABASE; seed++) {
          const { problems } = await runSchedule(runtime, seed, { stores })
          expect(problems, `npm run sim -- --store ${kind} --seed ${seed}`).toEqual([])
        }
      } finally {
        await stores.close()
      }
    },
  )

  it('repeats a schedule exactly on SQLite', async () => {
    const runtime = await loadRuntime()
    const stores = await openStores('sqlite')
    const run = async (): Promise<string> => (await runSchedule(runtime, 3, { stores })).fingerprint
    expect(await run()).toBe(await run())
    await stores.close()
  })

  it.each(CONTROLS)('finds the weakened copy $name', async (control) => {
    const runtime = await loadRuntime(control)
    const isFound = async (seed: number) => (await runSchedule(runtime, seed)).problems.length > 0
    // The schedule that has found it before, and if it does not any more, all of them.
    const before = Number(new RegExp(`\`${control.name}\` .* (\\d+) \\|$`, 'm').exec(TABLE)?.[1])
    if (before <= BOUND && (await isFound(before))) return
    for (let seed = 1; seed <= BOUND; seed++) if (await isFound(seed)) return
    expect.unreachable(`not found in ${BOUND} schedules`)
  })
})
