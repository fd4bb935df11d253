/**
 * The command `npm run sim`.
 *
 *     npm run sim                              200 schedules from seed 1
 *     npm run sim -- --seed 17                 one schedule
 *     npm run sim -- --seed 17 --schedules 50  fifty, from seed 17 on
 *     npm run sim -- --seed 17 --steps 500     nothing goes wrong after 500 events
 *     npm run sim -- --seed 17 --without c1,kill0
 *     npm run sim -- --controls                weakened copies of the code, and how soon each is found
 */

import { parseArgs } from 'node:util'
import { CONTROLS } from './controls.ts'
import { loadRuntime, type Runtime } from './runtime.ts'
import { runSchedule, type ScheduleOptions, STEPS, shrink } from './schedule.ts'

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    schedules: { type: 'string' },
    steps: { type: 'string' },
    without: { type: 'string' },
    controls: { type: 'boolean' },
    only: { type: 'string' },
    verbose: { type: 'boolean' },
  },
})
const seed = Number(values.seed ?? 1)
const schedules = Number(values.schedules ?? (values.seed === undefined ? 200 : 1))
const options: ScheduleOptions = {
  steps: Number(values.steps ?? STEPS),
  without: new Set(values.without?.split(',')),
}

process.exitCode = await (values.controls ? runControls() : runSchedules())

async function runSchedules(): Promise<number> {
  const runtime = await loadRuntime()
  const began = performance.now()
  const checks = new Map<string, number>()
  let events = 0
  for (let at = seed; at < seed + schedules; at++) {
    const verdict = await runSchedule(runtime, at, options)
    events += verdict.events
    for (const [name, count] of verdict.checks) checks.set(name, (checks.get(name) ?? 0) + count)
    if (values.verbose) console.log(at, verdict.fingerprint, verdict.events)
    if (verdict.problems.length > 0) return report(runtime, at, verdict.problems)
  }
  const seconds = (performance.now() - began) / 1000
  console.log(`${schedules} schedules, ${events} events, ${seconds.toFixed(1)} s, no problem. Checks:`)
  for (const [name, count] of [...checks].sort()) console.log(`  ${name.padEnd(14)}${count}`)
  return 0
}

async function report(runtime: Runtime, at: number, problems: readonly string[]): Promise<number> {
  console.log(`Seed ${at} fails:`)
  for (const problem of problems) console.log(`  ${problem}`)
  const without = await shrink(runtime, at, options)
  const { plan, problems: left } = await runSchedule(runtime, at, { ...options, without })
  console.log('The same with less:')
  for (const problem of left) console.log(`  ${problem}`)
  const show = (_: string, value: unknown): unknown => (value instanceof Set ? [...value] : value)
  console.log(JSON.stringify(plan, show))
  const parts = without.size > 0 ? ` --without ${[...without].join()}` : ''
  const steps = options.steps === STEPS ? '' : ` --steps ${options.steps}`
  console.log(`npm run sim -- --seed ${at}${steps}${parts}`)
  return 1
}

/** Runs every weakened copy until a schedule finds it. */
async function runControls(): Promise<number> {
  const most = Number(values.schedules ?? 2_000)
  let missed = 0
  for (const control of CONTROLS) {
    if (values.only !== undefined && !values.only.split(',').includes(control.name)) continue
    const runtime = await loadRuntime(control)
    const found = await findIn(runtime, most)
    if (!found) missed++
    console.log(`${control.name.padEnd(38)}${found ?? `not found in ${most} schedules`}`)
  }
  return missed === 0 ? 0 : 1
}

async function findIn(runtime: Runtime, most: number): Promise<string | undefined> {
  for (let at = seed; at < seed + most; at++) {
    const { problems } = await runSchedule(runtime, at, options)
    if (problems.length > 0) return `seed ${String(at).padEnd(6)}${problems[0]}`
  }
  return undefined
}
