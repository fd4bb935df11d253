/**
 * Kills the client with kill -9 at a random point of a random round; another process continues the call from its file,
 * at another instance of the server. The long form runs with `npm run test:chaos`.
 */

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { generateKey } from 'rondo'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { seededRandom, testSeed } from '../../packages/store-kit/src/harness.ts'
import { type Downstream, startDownstream } from './downstream.ts'
import { type Fleet, startFleet } from './fleet.ts'

const LONG = process.env.RONDO_LONG !== undefined
const CALLS = LONG ? 200 : 12
const AT_ONCE = 4
/** More than a call has points, so that each of them is hit. */
const MAX_CUTS = 12
const SCRIPT = new URL('./order-caller.js', import.meta.url)

const seed = testSeed()
const random = seededRandom(seed)
let folder: string
let downstream: Downstream
let fleet: Fleet

beforeAll(async () => {
  console.log(`RONDO_SEED=${seed}`)
  folder = mkdtempSync(join(tmpdir(), 'rondo-client-'))
  downstream = await startDownstream()
  fleet = await startFleet(2, { DOWNSTREAM: downstream.url, RONDO_KEYS: generateKey('chaos') })
})

afterAll(async () => {
  await fleet?.stop()
  await downstream?.close()
  rmSync(folder, { recursive: true, force: true })
})

/** Runs one process; kills it after `cut` messages. Returns where it was killed, or undefined if it finished. */
async function runOnce(url: URL, file: string, order: number, cut: number): Promise<string | undefined> {
  const child = fork(SCRIPT, [url.href, file, String(order)], {
    execArgv: [],
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  let seen = 0
  let killedAt: string | undefined
  child.on('message', (message) => {
    seen += 1
    if (seen !== cut) return
    killedAt = String(message)
    child.kill('SIGKILL')
  })
  const [code, signal] = await once(child, 'exit')
  if (signal === 'SIGKILL') return killedAt
  if (code !== 0) throw new Error(`order ${order}: the client ended with ${code}`)
  return undefined
}

/** Kills a call again and again until it finishes; returns the points at which it was killed. */
async function callThrough(order: number): Promise<string[]> {
  const file = join(folder, `order-${order}.json`)
  const cuts: string[] = []
  for (let attempt = 0; attempt < MAX_CUTS; attempt++) {
    const url = fleet.targets[attempt % fleet.targets.length]
    if (url === undefined) throw new Error('No instance is running')
    const cut = attempt === MAX_CUTS - 1 ? 0 : 1 + random.below(9)
    const killedAt = await runOnce(url, file, order, cut)
    if (existsSync(`${file}.result`)) return killedAt === undefined ? cuts : [...cuts, killedAt]
    if (killedAt !== undefined) cuts.push(killedAt)
  }
  throw new Error(`order ${order} was lost`)
}

describe('kill -9 of the client', () => {
  it(`C11 loses no call and applies no effect twice (${CALLS} calls)`, async () => {
    const cuts = new Map<string, number>()
    let next = 0
    const worker = async () => {
      while (next < CALLS) {
        const order = next++
        for (const point of await callThrough(order)) cuts.set(point, (cuts.get(point) ?? 0) + 1)
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, worker))
    const orders = Array.from({ length: CALLS }, (_, order) => order)
    const results = orders.map((order) => readFileSync(join(folder, `order-${order}.json.result`), 'utf8'))
    console.log(`cuts: ${JSON.stringify(Object.fromEntries([...cuts].sort()))}`)
    expect(results).toEqual(orders.map((order) => `order ${order} goes to Ulm`))
    expect(orders.filter((order) => downstream.applied(order, 'charge') !== 1)).toEqual([])
    expect(orders.filter((order) => downstream.applied(order, 'reserve') !== 1)).toEqual([])
    expect([...cuts.values()].reduce((sum, count) => sum + count, 0)).toBeGreaterThanOrEqual(CALLS / 2)
  })
})
