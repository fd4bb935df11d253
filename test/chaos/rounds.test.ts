/**
 * Rounds on a fleet whose instances are killed, whose keys are rotated and whose release changes. The long form runs with
 * `npm run test:chaos`, a short one with every `npm test`.
 */

import { Agent } from 'node:http'
import { generateKey } from 'rondo'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type RoundRobin, startRoundRobin } from '../support/round-robin.ts'
import { type Downstream, startDownstream } from './downstream.ts'
import { type Fleet, startFleet } from './fleet.ts'
import { type Order, placeOrder } from './order-client.ts'

const LONG = process.env.RONDO_LONG !== undefined
const FLOWS = LONG ? 2000 : 80
const KILLS = LONG ? 100 : 6
const AT_ONCE = 24
const SIZE = LONG ? 4 : 2

const keys = generateKey('chaos')
let downstream: Downstream
let fleet: Fleet
let balancer: RoundRobin

beforeAll(async () => {
  downstream = await startDownstream()
  fleet = await startFleet(SIZE, { DOWNSTREAM: downstream.url, RONDO_KEYS: keys })
  balancer = await startRoundRobin(fleet.targets)
})

afterAll(async () => {
  await balancer?.close()
  await fleet?.stop()
  await downstream?.close()
})

interface Outcome {
  readonly lost: readonly string[]
  readonly wrong: number
  readonly doubled: number
  readonly rounds: number
  readonly repeats: number
}

/** Places orders `from` on, `AT_ONCE` at a time, and returns their outcomes. */
async function placeAll(
  tool: string,
  from: number,
  count: number,
  done: (order: number) => void,
): Promise<Outcome> {
  const agent = new Agent({ keepAlive: true, maxSockets: AT_ONCE })
  const url = new URL('/mcp', balancer.url)
  const lost: string[] = []
  const placed = new Map<number, Order>()
  let next = from
  const worker = async (): Promise<void> => {
    while (next < from + count) {
      const order = next++
      await placeOrder(url, tool, order, agent)
        .then((result) => placed.set(order, result))
        .catch((error: Error) => lost.push(error.message))
      done(order)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
  agent.destroy()
  const results = [...placed]
  const numbers = Array.from({ length: count }, (_, i) => from + i)
  return {
    lost,
    wrong: results.filter(([order, { text }]) => text !== `order ${order} goes to Ulm`).length,
    doubled: numbers.filter((order) =>
      ['reserve', 'charge'].some((effect) => downstream.applied(order, effect) > 1),
    ).length,
    rounds: results.reduce((sum, [, { rounds }]) => sum + rounds, 0),
    repeats: results.reduce((sum, [, { repeats }]) => sum + repeats, 0),
  }
}

/** Kills instances one after the other, spread evenly over the orders. */
function killer(total: number): { done: () => void; finished(): Promise<void> } {
  let finished = 0
  let killed = 0
  let chain = Promise.resolve()
  return {
    done() {
      finished += 1
      while (killed < KILLS && finished >= ((killed + 1) * total) / (KILLS + 1)) {
        const index = killed % SIZE
        killed += 1
        chain = chain.then(() => fleet.kill(index))
      }
    },
    finished: () => chain,
  }
}

describe('kill -9 behind a round robin', () => {
  it(`B2 B11 R6 loses no flow, mixes up no result and applies no effect twice (${FLOWS} flows, ${KILLS} kills)`, async () => {
    const before = fleet.kills
    const attempts = downstream.attempts
    const kill = killer(FLOWS)
    const outcome = await placeAll('order', 0, FLOWS, kill.done)
    await kill.finished()
    console.log(
      `rounds: ${JSON.stringify({ ...outcome, kills: fleet.kills - before, attempts: downstream.attempts - attempts })}`,
    )
    expect(outcome.lost).toEqual([])
    expect(outcome.wrong).toBe(0)
    expect(outcome.doubled).toBe(0)
    expect(fleet.kills - before).toBeGreaterThanOrEqual(KILLS)
    expect(downstream.attempts - attempts).toBeGreaterThanOrEqual(2 * FLOWS)
  })

  it.runIf(LONG)(
    'control: without the checkpoint before the first effect, some effects are applied twice',
    async () => {
      const kill = killer(FLOWS)
      const outcome = await placeAll('order_unsafe', 1_000_000, FLOWS, kill.done)
      await kill.finished()
      console.log(`without checkpoint: ${JSON.stringify(outcome)}`)
      expect(outcome.doubled).toBeGreaterThan(0)
    },
  )
})

describe('a fleet that changes under load', () => {
  const rolling = async (envs: readonly Record<string, string>[], from: number): Promise<Outcome> => {
    let busy = true
    const flows = LONG ? 600 : 60
    const change = async (): Promise<void> => {
      for (const env of envs) {
        for (let index = 0; index < SIZE; index++) await fleet.replace(index, env)
      }
      busy = false
    }
    const changing = change()
    let outcome = await placeAll('order', from, flows, () => {})
    for (let batch = 1; busy && batch < 50; batch++) {
      const more = await placeAll('order', from + batch * flows, flows, () => {})
      outcome = {
        ...more,
        lost: [...outcome.lost, ...more.lost],
        wrong: outcome.wrong + more.wrong,
        doubled: outcome.doubled + more.doubled,
      }
    }
    await changing
    return outcome
  }

  it('B9 no round fails while keys are rotated: learn, mint, drop', async () => {
    const fresh = generateKey('fresh')
    const rotated = await rolling(
      [{ RONDO_KEYS: `${keys},${fresh}` }, { RONDO_KEYS: `${fresh},${keys}` }],
      2_000_000,
    )
    expect(rotated).toMatchObject({ lost: [], wrong: 0, doubled: 0 })
    const dropped = await rolling([{ RONDO_KEYS: fresh }], 2_500_000)
    expect(dropped).toMatchObject({ lost: [], wrong: 0, doubled: 0 })
  })

  it('B19 no round fails while a new release is rolled out and back', async () => {
    const releases = ['2', '1'].map((RELEASE) => ({ RELEASE }))
    const outcome = await rolling(releases, 3_000_000)
    expect(outcome).toMatchObject({ lost: [], wrong: 0, doubled: 0 })
  })
})
