/**
 * `npm run conformance`: the official suite against the fixture server, or against our client.
 *
 * One process per scenario; warnings count as failures. Scenarios that are known to fail are shown as "not yet"; if one of
 * them passes, the run fails, so that the list stays short. Two instances see each other's tasks only in a store that
 * they share.
 */

import { randomBytes } from 'node:crypto'
import { parseArgs } from 'node:util'
import { processFile } from '../support/process-file.ts'
import { startRoundRobin } from '../support/round-robin.ts'
import { type Fixture, probe, startFixture, startGateway } from './fixture-process.ts'
import { runScenario, type Target, type Verdict } from './run-scenario.ts'
import {
  ALWAYS_SKIPPED,
  CLIENT_SCENARIOS,
  NOT_YET,
  REVISION,
  REVISIONS,
  readServerScenarios,
  TWO_INSTANCE_WARNINGS,
} from './scenario.ts'
import { openSharedStore, STORES } from './shared-store.ts'

const HELP = `Usage: npm run conformance -- [options]

  --requirements R  the scenarios of revision R: 2026-07-28 (the default) or 2025-11-25
  --scenario NAME   only this scenario; may be repeated
  --two-instances   through a round robin over two processes that share a key
  --gateway         through a gateway in front of the fixture; with --two-instances through two
  --store KIND      the instances share a database: sqlite or postgres
  --client          the scenarios for clients, against test/conformance/client.ts
  --url URL         a server that is already running, instead of the fixture
  --list            the names of the scenarios
  --verbose         every failed check in full
  --help            this text`

type Env = Readonly<Record<string, string>>

interface Stage {
  readonly target: Target
  readonly counts?: readonly number[]
  stop(): Promise<void>
}

async function stopAll(fixtures: readonly Fixture[]): Promise<void> {
  await Promise.all(fixtures.map((fixture) => fixture.stop()))
}

type Start = (env: Env) => Promise<Fixture>

async function stageOne(start: Start, env: Env): Promise<Stage> {
  const fixture = await start(env)
  return { target: { kind: 'server', url: fixture.url.href }, stop: fixture.stop }
}

async function stageTwo(start: Start, shared: Env): Promise<Stage> {
  const env = { ...shared, RONDO_KEYS: `k1:${randomBytes(32).toString('base64url')}` }
  const fixtures = [await start(env), await start(env)]
  try {
    const robin = await startRoundRobin(fixtures.map((fixture) => fixture.url))
    const url = new URL(fixtures[0]?.url.pathname ?? '/', robin.url)
    await probe(url)
    const stop = async () => {
      await robin.close()
      await stopAll(fixtures)
    }
    return { target: { kind: 'server', url: url.href }, counts: robin.counts, stop }
  } catch (error) {
    await stopAll(fixtures)
    throw error
  }
}

async function stageUrl(url: URL): Promise<Stage> {
  await probe(url)
  return { target: { kind: 'server', url: url.href }, stop: async () => {} }
}

const stageClient = (): Stage => ({
  target: { kind: 'client', command: `node ${processFile('test/conformance/client.ts')}` },
  stop: async () => {},
})

type Standing = 'passed' | 'failed' | 'skipped' | 'not yet' | 'passes already'

function standing({ scenario, kind }: Verdict): Standing {
  if (NOT_YET.has(scenario)) return kind === 'passed' ? 'passes already' : 'not yet'
  if (kind === 'skipped') return ALWAYS_SKIPPED.has(scenario) ? 'skipped' : 'failed'
  return kind
}

function print(verdict: Verdict, verbose: boolean): void {
  const state = standing(verdict)
  console.log(
    `${state.padEnd(15)} ${verdict.scenario.padEnd(48)} ${String(verdict.succeeded).padStart(3)} checks`,
  )
  for (const line of verdict.allowed) console.log(`    allowed: ${line}`)
  if (state !== 'failed' && !verbose) return
  for (const line of verdict.problems) console.log(`    ${verbose ? line : line.slice(0, 300)}`)
}

async function runAll(stage: Stage, scenarios: readonly string[], options: Options) {
  const totals = new Map<Standing, number>()
  let checks = 0
  for (const scenario of scenarios) {
    const alone = options['two-instances'] && options.store === undefined
    const allowWarnings = alone ? TWO_INSTANCE_WARNINGS : []
    const verdict = await runScenario(stage.target, scenario, {
      allowWarnings,
      revision: options.requirements,
    })
    print(verdict, options.verbose)
    const state = standing(verdict)
    totals.set(state, (totals.get(state) ?? 0) + 1)
    checks += verdict.succeeded
  }
  return { totals, checks }
}

function readOptions() {
  const { values } = parseArgs({
    options: {
      requirements: { type: 'string', default: REVISION },
      scenario: { type: 'string', multiple: true },
      'two-instances': { type: 'boolean', default: false },
      gateway: { type: 'boolean', default: false },
      store: { type: 'string' },
      client: { type: 'boolean', default: false },
      url: { type: 'string' },
      list: { type: 'boolean', default: false },
      verbose: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  })
  return values
}

type Options = ReturnType<typeof readOptions>

async function stageFor(options: Options): Promise<Stage> {
  if (options.client) return stageClient()
  if (options.url) return stageUrl(new URL(options.url))
  const store = await openSharedStore(options.store)
  const behind = options.gateway ? await startFixture() : undefined
  const start: Start = behind ? (env) => startGateway(behind.url, env) : startFixture
  try {
    const stage = await (options['two-instances'] ? stageTwo(start, store.env) : stageOne(start, store.env))
    const stop = async () => {
      await stage.stop()
      await behind?.stop()
      await store.close()
    }
    return { ...stage, stop }
  } catch (error) {
    await behind?.stop()
    await store.close()
    throw error
  }
}

async function run(options: Options, scenarios: readonly string[]): Promise<number> {
  const stage = await stageFor(options)
  try {
    const { totals, checks } = await runAll(stage, scenarios, options)
    const counts = new Map<Standing, number>([['passed', 0], ['failed', 0], ['skipped', 0], ...totals])
    const parts = [...counts].map(([state, count]) => `${count} ${state}`)
    console.log(
      `\n${options.requirements}: ${parts.join(', ')}; ${checks} checks succeeded, warnings count as failures`,
    )
    if (stage.counts) console.log(`requests per instance: ${stage.counts.join(', ')}`)
    const oneSided = stage.counts !== undefined && stage.counts.filter((count) => count > 0).length < 2
    return totals.has('failed') || totals.has('passes already') || oneSided ? 1 : 0
  } finally {
    await stage.stop()
  }
}

async function main(): Promise<number> {
  const options = readOptions()
  if (!REVISIONS.includes(options.requirements)) {
    console.error(`unknown revision: ${options.requirements} (use one of ${REVISIONS.join(', ')})`)
    return 2
  }
  if (options.store !== undefined && !STORES.includes(options.store)) {
    console.error(`unknown store: ${options.store} (use one of ${STORES.join(', ')})`)
    return 2
  }
  const all = options.client
    ? (CLIENT_SCENARIOS[options.requirements] ?? [])
    : readServerScenarios(options.requirements)
  const scenarios = options.scenario ?? all
  const unknown = scenarios.filter((name) => !all.includes(name))
  if (options.help) console.log(HELP)
  else if (options.list) console.log(all.join('\n'))
  else if (unknown.length > 0)
    console.error(`unknown scenario: ${unknown.join(', ')} (--list shows the names)`)
  else return run(options, scenarios)
  return unknown.length > 0 ? 2 : 0
}

try {
  process.exitCode = await main()
} catch (error) {
  console.error(`conformance: ${error instanceof Error ? error.message : error}`)
  process.exitCode = 1
}
