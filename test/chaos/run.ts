/**
 * The command `npm run chaos`: orders on a fleet whose instances are killed with kill -9, written down as a history (`history.ts`) and
 * judged by it alone.
 *
 *     npm run chaos -- --seed 7 --orders 500 --kills 20
 *     npm run chaos -- --carrier sqlite          as tasks: on sqlite or postgres; otherwise in rounds
 *     npm run chaos -- --history FILE            keeps the history
 *     npm run chaos -- --publish                 the three runs on the page "How it is tested"
 *
 * The seed determines the answers, who is killed and after which order. The timing of real processes is their own.
 */

import { createWriteStream, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { Agent } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { generateKey } from 'rondo'
import { createDice } from '../sim/world.ts'
import { startPostgres } from '../support/postgres-server.ts'
import { startRoundRobin } from '../support/round-robin.ts'
import { startDownstream } from './downstream.ts'
import { startFleet } from './fleet.ts'
import { checkHistory, type HistoryVerdict, type Recorder, readHistory } from './history.ts'
import { type Placing, placeOrder, placeTask } from './order-client.ts'

const CARRIERS = ['rounds', 'sqlite', 'postgres'] as const
type Carrier = (typeof CARRIERS)[number]

interface Plan {
  readonly seed: number
  readonly carrier: Carrier
  readonly orders: number
  readonly kills: number
  readonly file: string
}

const INSTANCES = 3
const AT_ONCE = 16

async function runChaos({ seed, carrier, orders, kills, file }: Plan): Promise<HistoryVerdict> {
  const out = createWriteStream(file)
  const began = Date.now()
  let index = 0
  const record: Recorder = (event) =>
    void out.write(`${JSON.stringify({ index: index++, time: Date.now() - began, ...event })}\n`)
  record({ type: 'info', f: 'run', process: 'nemesis', seed, carrier, orders, kills })
  const downstream = await startDownstream(record)
  const store = await openStore(carrier)
  const env = { DOWNSTREAM: downstream.url, RONDO_KEYS: generateKey('chaos'), ...store.env }
  const fleet = await startFleet(INSTANCES, env)
  const balancer = await startRoundRobin(fleet.targets)
  try {
    await placeAll(new URL('/mcp', balancer.url), { seed, carrier, orders, kills }, record, fleet.kill)
  } finally {
    await balancer.close()
    await fleet.stop()
    await downstream.close()
    await store.close()
  }
  record({ type: 'info', f: 'end', process: 'nemesis' })
  await new Promise<void>((resolve) => out.end(resolve))
  return checkHistory(readHistory(readFileSync(file, 'utf8')))
}

async function placeAll(
  url: URL,
  { seed, carrier, orders, kills }: Omit<Plan, 'file'>,
  record: Recorder,
  kill: (index: number) => Promise<void>,
): Promise<void> {
  const dice = createDice(`${seed} chaos`)
  const victims = Array.from({ length: kills }, () => ({
    after: dice.int(1, orders),
    instance: dice.int(0, INSTANCES - 1),
  })).sort((a, b) => a.after - b.after)
  const agent = new Agent({ keepAlive: true, maxSockets: 2 * AT_ONCE })
  let next = 0
  let begun = 0
  let killing = Promise.resolve()
  const strike = (): void => {
    begun++
    for (let victim = victims[0]; victim && victim.after <= begun; victim = victims[0]) {
      const { instance } = victim
      victims.shift()
      killing = killing.then(() => {
        record({ type: 'info', f: 'kill', process: 'nemesis', instance })
        return kill(instance)
      })
    }
  }
  const client = async (_: unknown, number: number): Promise<void> => {
    const process = `client ${number}`
    while (next < orders) {
      const order = next++
      const own = createDice(`${seed} order ${order}`)
      let asked = 0
      const sure = own.chance(0.8) ? 'yes' : 'no'
      const says = (key: string): string => (key === 'address' ? `place ${order}.${++asked}` : sure)
      const placing: Placing = { says, process, record }
      record({ type: 'invoke', f: 'order', process, order })
      strike()
      const placed =
        carrier === 'rounds'
          ? placeOrder(url, 'order', order, agent, placing)
          : placeTask(url, 'order_task', order, agent, 0, placing)
      await placed.then(
        ({ text }) => record({ type: 'ok', f: 'order', process, order, text }),
        (error: Error) => record({ type: 'fail', f: 'order', process, order, error: error.message }),
      )
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, client))
  await killing
  agent.destroy()
}

async function openStore(carrier: Carrier): Promise<{ env: Record<string, string>; close(): Promise<void> }> {
  if (carrier === 'rounds') return { env: {}, close: async () => {} }
  if (carrier === 'postgres') {
    const server = await startPostgres()
    return { env: { STORE: server.connectionString }, close: server.stop }
  }
  const folder = mkdtempSync(join(tmpdir(), 'rondo-chaos-'))
  return {
    env: { STORE: join(folder, 'tasks.db') },
    close: async () => rmSync(folder, { recursive: true, force: true }),
  }
}

const PAGE = 'docs/reference/how-it-is-tested.md'
const BLOCK = /(<!-- histories -->\n)[\s\S]*(<!-- \/histories -->)/

/** Runs one history of each carrier, and writes their figures into the page. */
async function publish(folder: string): Promise<number> {
  const rows = [
    '| carrier | seed | orders | requests | without a reply | effects | repeated | kills | problems |',
  ]
  rows.push('| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |')
  let failed = 0
  for (const [at, carrier] of CARRIERS.entries()) {
    const seed = 3201 + at
    const file = join(folder, `${carrier}.jsonl`)
    const { problems, figures } = await runChaos({ seed, carrier, orders: 400, kills: 20, file })
    const { orders, rounds, unanswered, effects, repeated, kills } = figures
    const cells = [carrier, seed, orders, rounds, unanswered, effects, repeated, kills, problems.length]
    rows.push(`| ${cells.join(' | ')} |`)
    for (const problem of problems) console.log(`${carrier}: ${problem}`)
    failed += problems.length
  }
  writeFileSync(PAGE, readFileSync(PAGE, 'utf8').replace(BLOCK, `$1${rows.join('\n')}\n$2`))
  console.log(rows.join('\n'))
  return failed
}

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    carrier: { type: 'string', default: 'rounds' },
    orders: { type: 'string', default: '300' },
    kills: { type: 'string', default: '15' },
    history: { type: 'string' },
    publish: { type: 'boolean' },
  },
})
const folder = mkdtempSync(join(tmpdir(), 'rondo-history-'))
if (values.publish) process.exitCode = (await publish(folder)) === 0 ? 0 : 1
else {
  const carrier = CARRIERS.find((one) => one === values.carrier)
  if (!carrier) throw new Error(`--carrier is one of ${CARRIERS.join(', ')}`)
  const { seed, orders, kills, history = join(folder, 'history.jsonl') } = values
  const plan = { seed: Number(seed), carrier, orders: Number(orders), kills: Number(kills), file: history }
  const { problems, figures } = await runChaos(plan)
  console.log(JSON.stringify(figures))
  for (const problem of problems) console.log(problem)
  if (problems.length > 0) process.exitCode = 1
}
rmSync(folder, { recursive: true, force: true })
