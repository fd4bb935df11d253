/** Runs one schedule from its seed, judges it, and shrinks one that fails. */

import { startClients } from './client.ts'
import { createFleet } from './fleet.ts'
import { createJudge } from './judge.ts'
import { startOlderClients } from './older.ts'
import { startOperators } from './operator.ts'
import { createPlan, type Plan, partsOf } from './plan.ts'
import { enter, type Runtime } from './runtime.ts'
import { inMemory, type Stores } from './stores.ts'
import { createWorld, hashText } from './world.ts'

export interface ScheduleOptions {
  /** Events after which nothing goes wrong any more. */
  readonly steps?: number
  /** Parts of the plan to leave out. */
  readonly without?: ReadonlySet<string>
  /** Default: in memory. */
  readonly stores?: Stores
}

export interface Verdict {
  readonly plan: Plan
  readonly problems: readonly string[]
  readonly events: number
  readonly checks: ReadonlyMap<string, number>
  /** The same for every run of the same schedule. */
  readonly fingerprint: string
}

export const STEPS = 3_000
const FAULTY_MS = 5 * 60_000
const HEALTHY_MS = 60 * 60_000
/** What a client leaves behind is undone within this time. */
const UNDONE_MS = 4 * 60 * 60_000
/** Many times as many as a schedule needs: something repeats itself without end. */
const ENDLESS = 100_000

export async function runSchedule(
  runtime: Runtime,
  seed: number,
  { steps = STEPS, without, stores = inMemory }: ScheduleOptions = {},
): Promise<Verdict> {
  const plan = createPlan(seed, without)
  const world = createWorld(seed)
  enter(world)
  const store = await stores.open(runtime, () => Math.floor(world.now))
  world.busy = stores.busy
  const judge = createJudge(world, plan)
  const fleet = createFleet(runtime, world, plan, judge, store)
  const operators = startOperators(world, plan, store, judge)
  const clients = startClients(world, plan, fleet, judge, operators)
  startOlderClients(world, plan, fleet, judge, clients.open)
  const hasFailed = (): boolean => judge.problems.length > 0 || world.events > ENDLESS
  const isOver = (): boolean => clients.open.size === 0 || hasFailed()
  const began = world.now
  await world.run(began + FAULTY_MS, () => isOver() || world.events > steps)
  fleet.heal()
  if (!isOver()) await world.run(world.now + HEALTHY_MS, isOver)
  // Late requests and processes that thaw may still do harm.
  if (!hasFailed()) await world.run(world.now + 2 * 60_000, hasFailed)
  const isSettled = (): boolean => hasFailed() || judge.settled()
  if (!isSettled()) await world.run(world.now + UNDONE_MS, isSettled)
  if (world.events > ENDLESS) judge.fail(`ends: not within ${ENDLESS} events`)
  if (judge.problems.length === 0) judge.close()
  if (judge.problems.length === 0) for (const call of clients.open) judge.fail(`ends: ${call} has not ended`)
  const { events } = world
  const counted = JSON.stringify([...judge.checks])
  const fingerprint = hashText(`${events} ${world.now} ${counted} ${judge.problems.join()}`).toString(16)
  return { plan, problems: judge.problems, events, checks: judge.checks, fingerprint }
}

/** Leaves out parts of a failing schedule as long as it still fails. Returns the parts that are not needed. */
export async function shrink(
  runtime: Runtime,
  seed: number,
  options: ScheduleOptions = {},
): Promise<Set<string>> {
  const without = new Set(options.without)
  const kindOf = ({ problems: [first] }: Verdict): string | undefined => first?.split(':')[0]
  const kind = kindOf(await runSchedule(runtime, seed, options))
  for (let shorter = true; shorter; ) {
    shorter = false
    for (const part of partsOf(createPlan(seed, without))) {
      const less = new Set([...without, part])
      if (kindOf(await runSchedule(runtime, seed, { ...options, without: less })) !== kind) continue
      without.add(part)
      shorter = true
    }
  }
  return without
}
