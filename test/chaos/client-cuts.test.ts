/**
 * Interrupts the command: `rondo call`, `rondo answer` and `rondo resume` are killed by kill -9 at random moments, and
 * the next process continues from the file of the pending call, at another instance. The long form runs with
 * `npm run test:chaos`. Needs the build.
 */

import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { generateKey } from 'rondo'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { openQuestions, parsePending } from '../../packages/rondo/src/client.ts'
import { seededRandom, testSeed } from '../../packages/store-kit/src/harness.ts'
import { CLI } from '../support/run-cli.ts'
import { type Downstream, startDownstream } from './downstream.ts'
import { type Fleet, startFleet } from './fleet.ts'

const LONG = process.env.RONDO_LONG !== undefined
// The tests start many processes, on a machine that may be busy.
if (!LONG) vi.setConfig({ testTimeout: 600_000 })
const CALLS = LONG ? 200 : 4
const AT_ONCE = 2
/** After this many kills a call is left to finish. */
const MAX_CUTS = 6
const MAX_RUNS = 30

const ANSWERS: Readonly<Record<string, string>> = { address: 'address.value=Ulm', sure: 'sure.confirm=yes' }

const seed = testSeed()
const random = seededRandom(seed)
let folder: string
let downstream: Downstream
let fleet: Fleet

beforeAll(async () => {
  console.log(`RONDO_SEED=${seed}`)
  folder = mkdtempSync(join(tmpdir(), 'rondo-cuts-'))
  downstream = await startDownstream()
  fleet = await startFleet(2, { DOWNSTREAM: downstream.url, RONDO_KEYS: generateKey('chaos') })
})

afterAll(async () => {
  await fleet?.stop()
  await downstream?.close()
  rmSync(folder, { recursive: true, force: true })
})

/** The call as its file has it; undefined before the first round was stored. */
function readPending(home: string) {
  const pending = join(home, 'pending')
  if (!existsSync(pending)) return undefined
  const [name] = readdirSync(pending).filter((one) => one.endsWith('.json'))
  if (name === undefined) return undefined
  return parsePending((JSON.parse(readFileSync(join(pending, name), 'utf8')) as { pending: unknown }).pending)
}

/** The next thing that another process has to do to continue. */
function nextWords(home: string, order: number, server: string): string[] {
  const pending = readPending(home)
  if (pending === undefined) return ['call', server, 'order', `order=${order}`]
  const [open] = openQuestions(pending)
  if (open === undefined) return ['resume', pending.id, '--server', server]
  return ['answer', pending.id, ANSWERS[open[0]] ?? '', '--server', server]
}

interface Ran {
  readonly killed: boolean
  readonly code: number | null
  readonly stdout: string
}

/** Runs one process; kills it after `cut` milliseconds. */
function run(home: string, words: readonly string[], cut: number | undefined): Promise<Ran> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [CLI, ...words, '--detach', '--json'], {
      env: { PATH: process.env.PATH ?? '', RONDO_HOME: home },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const timer = cut === undefined ? undefined : setTimeout(() => child.kill('SIGKILL'), cut)
    let stdout = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text
    })
    child.on('error', reject)
    child.on('close', (code, signal) => {
      clearTimeout(timer)
      resolve({ killed: signal === 'SIGKILL', code, stdout })
    })
  })
}

interface Through {
  readonly text: string
  /** The rounds in which it was killed; 0 is before the first was stored. */
  readonly cuts: readonly number[]
}

/** Kills a call again and again until it finishes. `typical` is how long a process takes. */
async function callThrough(order: number, typical: number): Promise<Through> {
  const home = join(folder, `order-${order}`)
  const cuts: number[] = []
  for (let attempt = 0; attempt < MAX_RUNS; attempt++) {
    const server = fleet.targets[attempt % fleet.targets.length]?.href ?? ''
    const cut = cuts.length < MAX_CUTS && random.below(4) > 0 ? random.below(typical * 1.2) : undefined
    const { killed, code, stdout } = await run(home, nextWords(home, order, server), cut)
    if (killed) cuts.push(readPending(home)?.round ?? 0)
    const text = /"text": "(.*)"/.exec(stdout)?.[1]
    if (stdout.includes('"status": "complete"') && text !== undefined) return { text, cuts }
    if (!killed && code !== 3) throw new Error(`order ${order}: ended with ${code}: ${stdout}`)
  }
  throw new Error(`order ${order} was lost`)
}

/** The time that a process takes that is not killed. */
async function measure(): Promise<number> {
  const began = performance.now()
  await run(
    join(folder, 'measured'),
    ['call', fleet.targets[0]?.href ?? '', 'order', 'order=1000000'],
    undefined,
  )
  return Math.ceil(performance.now() - began)
}

describe('kill -9 of the command', () => {
  it(`C11 loses no call and applies no effect twice (${CALLS} calls)`, async () => {
    const typical = await measure()
    const results = new Map<number, Through>()
    let next = 0
    const worker = async (): Promise<void> => {
      while (next < CALLS) {
        const order = next++
        results.set(order, await callThrough(order, typical))
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, worker))
    const orders = Array.from({ length: CALLS }, (_, order) => order)
    const cuts = [...results.values()].flatMap((one) => one.cuts)
    const byRound = [0, 1, 2, 3].map((round) => cuts.filter((one) => one === round).length)
    console.log(`cuts by round: ${JSON.stringify(byRound)}, a process takes about ${typical} ms`)
    expect(orders.map((order) => results.get(order)?.text)).toEqual(
      orders.map((order) => `order ${order} goes to Ulm`),
    )
    expect(orders.filter((order) => downstream.applied(order, 'charge') !== 1)).toEqual([])
    expect(orders.filter((order) => downstream.applied(order, 'reserve') !== 1)).toEqual([])
    expect(cuts.length).toBeGreaterThanOrEqual(LONG ? CALLS : 1)
    if (LONG) expect(Math.min(...byRound)).toBeGreaterThan(0)
  })
})
