/**
 * The command `npm run sim`.
 *
 *     npm run sim                              200 schedules from seed 1
 *     npm run sim -- --seed 17                 one schedule
 *     npm run sim -- --seed 17 --schedules 50  fifty, from seed 17 on
 *     npm run sim -- --seed 17 --steps 500     nothing goes wrong after 500 events
 *     npm run sim -- --seed 17 --without c1,kill0
 *     npm run sim -- --schedules 1000000 --jobs 2
 *                                              in two processes; --minutes 10 stops early, --resume goes on from there
 *     npm run sim -- --store sqlite            on a real store: sqlite or postgres
 *     npm run sim -- --controls                weakened copies of the code, and how soon each is found;
 *                                              --publish writes the table in controls.md
 */

import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { CONTROLS } from './controls.ts'
import { runChunks, runJobs } from './jobs.ts'
import { loadRuntime, type Runtime } from './runtime.ts'
import { runSchedule, type ScheduleOptions, STEPS, shrink } from './schedule.ts'
import { openStores, STORES, type StoreKind } from './stores.ts'

// Schedules create many errors whose stacks nobody reads.
process.setSourceMapsEnabled(false)

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    schedules: { type: 'string' },
    steps: { type: 'string' },
    without: { type: 'string' },
    store: { type: 'string', default: 'memory' },
    jobs: { type: 'string' },
    minutes: { type: 'string' },
    resume: { type: 'boolean' },
    chunks: { type: 'boolean' },
    controls: { type: 'boolean' },
    only: { type: 'string' },
    publish: { type: 'boolean' },
    verbose: { type: 'boolean' },
  },
})
const seed = Number(values.seed ?? 1)
const schedules = Number(values.schedules ?? (values.seed === undefined ? 200 : 1))
const options: ScheduleOptions = {
  steps: Number(values.steps ?? STEPS),
  without: new Set(values.without?.split(',')),
  stores: await openStores(readStore(values.store)),
}

const TABLE = fileURLToPath(new URL('./controls.md', import.meta.url))
const HEAD = `# How soon the simulator finds weakened copies of the code

Written by \`npm run sim -- --controls --publish\`. Each copy is weakened in one place (\`controls.ts\`), and schedules run from seed 1 until one fails.

| copy | the promise that it breaks | schedules until it was found |
| --- | --- | ---: |
`

process.exitCode = await run()
await options.stores?.close()

async function run(): Promise<number> {
  if (values.controls) return runControls()
  if (values.jobs) return runInJobs(Number(values.jobs))
  if (!values.chunks) return runSchedules()
  await runChunks(options)
  return 0
}

async function runInJobs(jobs: number): Promise<number> {
  const { steps = STEPS, stores } = options
  const store = stores?.kind ?? 'memory'
  const minutes = values.minutes === undefined ? undefined : Number(values.minutes)
  const outcome = await runJobs({ seed, schedules, jobs, steps, store, minutes, resume: values.resume }, [
    fileURLToPath(import.meta.url),
    ...['--chunks', '--store', store, '--steps', String(steps)],
  ])
  const { ran, seconds, failed } = outcome
  if (failed !== undefined) {
    const runtime = await loadRuntime()
    return report(runtime, failed, (await runSchedule(runtime, failed, options)).problems)
  }
  console.log(`${ran} schedules in ${seconds.toFixed(0)} s: ${(ran / seconds).toFixed(1)}/s.`)
  show(outcome.schedules, outcome.events, Object.entries(outcome.checks))
  return 0
}

function show(count: number, events: number, checks: Iterable<[string, number]>): void {
  console.log(`${count} schedules, ${events} events, no problem. Checks:`)
  for (const [name, checked] of [...checks].sort()) console.log(`  ${name.padEnd(14)}${checked}`)
}

function readStore(given: string): StoreKind {
  const kind = STORES.find((one) => one === given)
  if (kind) return kind
  throw new Error(`--store is one of ${STORES.join(', ')}`)
}

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
  console.log(`${((performance.now() - began) / 1000).toFixed(1)} s`)
  show(schedules, events, checks)
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
  const rows: string[] = []
  let missed = 0
  for (const control of CONTROLS) {
    if (values.only !== undefined && !values.only.split(',').includes(control.name)) continue
    const runtime = await loadRuntime(control)
    const found = await findIn(runtime, most)
    if (!found) missed++
    const shown = found
      ? `seed ${String(found.at).padEnd(6)}${found.problem}`
      : `not found in ${most} schedules`
    console.log(`${control.name.padEnd(38)}${shown}`)
    rows.push(
      `| \`${control.name}\` | ${control.breaks} | ${found ? found.at - seed + 1 : `more than ${most}`} |`,
    )
  }
  if (values.publish) writeFileSync(TABLE, `${HEAD}${rows.join('\n')}\n`)
  return missed === 0 ? 0 : 1
}

async function findIn(runtime: Runtime, most: number): Promise<{ at: number; problem?: string } | undefined> {
  for (let at = seed; at < seed + most; at++) {
    const { problems } = await runSchedule(runtime, at, options)
    if (problems.length > 0) return { at, problem: problems[0] }
  }
  return undefined
}
