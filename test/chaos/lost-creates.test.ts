/**
 * Responses that create tasks get lost while instances are killed (R6, E9): every order is reserved and charged once. The
 * long form runs with `npm run test:chaos`, a short one with every `npm test`. Instances run the build.
 */

import { mkdtemp, rm } from 'node:fs/promises'
import { Agent } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { generateKey } from 'rondo'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { seededRandom, testSeed } from '../../packages/store-kit/src/harness.ts'
import { type RoundRobin, startRoundRobin } from '../support/round-robin.ts'
import { type Downstream, startDownstream } from './downstream.ts'
import { type Fleet, startFleet } from './fleet.ts'
import { placeTask } from './order-client.ts'

const LONG = process.env.RONDO_LONG !== undefined
const TIMEOUT = LONG ? 1_800_000 : 180_000
const ORDERS = LONG ? 600 : 60
const KILLS = LONG ? 20 : 2
const AT_ONCE = 12

let folder: string
let downstream: Downstream
let fleet: Fleet
let balancer: RoundRobin
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'rondo-lost-'))
  downstream = await startDownstream()
})
afterEach(async () => {
  await balancer?.close()
  await fleet?.stop()
  await downstream?.close()
  await rm(folder, { recursive: true })
})

async function placeAll(env: Record<string, string>, kills: number) {
  const seed = testSeed()
  console.log(`RONDO_SEED=${seed}`)
  const random = seededRandom(seed)
  const shared = {
    DOWNSTREAM: downstream.url,
    RONDO_KEYS: generateKey('chaos'),
    STORE: join(folder, 'tasks.db'),
  }
  fleet = await startFleet(2, { ...shared, ...env })
  balancer = await startRoundRobin(fleet.targets)
  const agent = new Agent({ keepAlive: true, maxSockets: AT_ONCE })
  const url = new URL('/mcp', balancer.url)
  const failed: string[] = []
  let next = 0
  let done = 0
  let lostReplies = 0
  let killing = Promise.resolve()
  const client = async (): Promise<void> => {
    while (next < ORDERS) {
      const order = next++
      const lost = random.below(3)
      lostReplies += lost
      await placeTask(url, 'order_task', order, agent, lost)
        .then(({ text }) => text === `order ${order} goes to Ulm` || failed.push(`${order}: ${text}`))
        .catch((error: Error) => failed.push(error.message))
      done += 1
      if (done % Math.floor(ORDERS / (kills + 1)) === 0 && fleet.kills < kills)
        killing = killing.then(() => fleet.kill(random.below(2)))
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, client))
  await killing
  agent.destroy()
  const doubled = Array.from({ length: ORDERS }, (_, order) => order).filter((order) =>
    ['reserve', 'charge'].some((effect) => downstream.applied(order, effect) > 1),
  )
  const report = { failed, doubled: doubled.length, lostReplies, kills: fleet.kills }
  console.log(JSON.stringify(report))
  return report
}

it(`R6 E9 no effect runs twice, whichever response gets lost (${ORDERS} orders, ${KILLS} kills)`, {
  timeout: TIMEOUT,
}, async () => {
  const report = await placeAll({}, KILLS)
  expect(report.failed).toEqual([])
  expect(report.doubled).toBe(0)
  expect(report.lostReplies).toBeGreaterThan(ORDERS / 2)
  expect(report.kills).toBe(KILLS)
})

it('control: if every task counts as known, effects run twice after lost responses', {
  timeout: TIMEOUT,
}, async () => {
  const report = await placeAll({ TRUSTING: '1' }, 0)
  expect(report.doubled).toBeGreaterThan(0)
})
