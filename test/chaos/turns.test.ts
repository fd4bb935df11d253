/**
 * Turns over three processes behind a round robin that share nothing but the key. The long form runs with
 * `npm run test:chaos`, a short one with every `npm test`.
 */

import { generateKey } from 'rondo'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type RoundRobin, startRoundRobin } from '../support/round-robin.ts'
import { type Downstream, startDownstream } from './downstream.ts'
import { type Fleet, startFleet } from './fleet.ts'
import { placeOrderInTurns, type TurnsOrder } from './turns-client.ts'

const FLOWS = process.env.RONDO_LONG === undefined ? 60 : 1000
const AT_ONCE = 12
const INSTANCES = 3

let downstream: Downstream
let fleet: Fleet
let balancer: RoundRobin
const closing: (() => Promise<void>)[] = []

beforeAll(async () => {
  downstream = await startDownstream()
  fleet = await startFleet(INSTANCES, { DOWNSTREAM: downstream.url, RONDO_KEYS: generateKey('turns') })
  balancer = await startRoundRobin(fleet.targets)
})

afterAll(async () => {
  for (const close of closing) await close()
  await balancer?.close()
  await fleet?.stop()
  await downstream?.close()
})

async function placeAll(url: URL, from: number, count: number, atOnce = AT_ONCE) {
  const lost: string[] = []
  const placed = new Map<number, TurnsOrder>()
  let next = from
  const worker = async (): Promise<void> => {
    while (next < from + count) {
      const order = next++
      await placeOrderInTurns(new URL('/mcp', url).href, order)
        .then((result) => placed.set(order, result))
        .catch((error: Error) => lost.push(error.message))
    }
  }
  await Promise.all(Array.from({ length: atOnce }, worker))
  return { lost, placed: [...placed] }
}

describe('turns behind a round robin', () => {
  it(`F2 F5 B2 loses none of ${FLOWS} flows of three turns and applies no effect twice`, async () => {
    const { lost, placed } = await placeAll(balancer.url, 0, FLOWS)
    console.log(
      `turns: ${JSON.stringify({ flows: placed.length, lost: lost.length, counts: balancer.counts })}`,
    )
    expect(lost).toEqual([])
    expect(placed.filter(([order, { text }]) => text !== `order ${order} goes to Ulm`)).toEqual([])
    expect(placed.filter(([, { turns }]) => turns !== 3)).toEqual([])
    for (let order = 0; order < FLOWS; order++) {
      expect(['reserve', 'charge'].map((effect) => downstream.applied(order, effect))).toEqual([1, 1])
    }
    // Six requests each: two to initialize, one to call, three to answer.
    const counts = [...balancer.counts]
    expect(counts.reduce((sum, count) => sum + count)).toBe(FLOWS * 6)
    expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1)
  })

  it('control: flows are lost on instances that do not share a key', async () => {
    const loners = await Promise.all(
      Array.from({ length: INSTANCES }, (_, i) =>
        startFleet(1, { DOWNSTREAM: downstream.url, RONDO_KEYS: generateKey(`loner${i}`) }),
      ),
    )
    const other = await startRoundRobin(loners.flatMap(({ targets }) => targets))
    closing.push(() => other.close(), ...loners.map((loner) => () => loner.stop()))
    // One at a time, so that no order reaches the same instance every time by chance.
    const { lost, placed } = await placeAll(other.url, 1_000_000, 6, 1)
    expect(placed).toEqual([])
    expect(lost.length).toBe(6)
  })
})
