/**
 * The official client of the first generation over a round robin of three instances that share a store, while one of them
 * is killed every second. Each call reserves, asks with a form, a sampling request and a request for roots, then charges. The
 * long form runs with `npm run test:chaos`, a short one with every `npm test`.
 *
 * The clock of the kills waits for nothing: each time it kills the next instance in turn that is up, also while another one
 * is still starting. If only one is up, nothing is killed, and the kill is counted as skipped.
 */

import { randomInt } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js'
import { generateKey } from 'rondo'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { startRoundRobin, TARGET_HEADER } from '../support/round-robin.ts'
import { startDownstream } from './downstream.ts'
import { type Fleet, startFleet } from './fleet.ts'

const LONG = process.env.RONDO_LONG !== undefined
const CALLS = LONG ? 500 : 12
const CLIENTS = LONG ? 10 : 6
const KILL_MS = LONG ? 1_000 : 700
/** The longest time that a person takes to answer. */
const THINK_MS = LONG ? 400 : 250
const PLACE = 'Ulm'
/** The first one before anything is asked, the second at the end. */
const EFFECTS = ['reserve', 'charge']

interface Plan {
  /** The orders to call with. */
  readonly orders: readonly number[]
  readonly clients: number
  /** The interval at which an instance is killed; 0 for never. */
  readonly killMs?: number
  /** Kills the instance that has a call as soon as its client has read the first question, before it answers. */
  readonly killHolders?: boolean
  /** Options of the instances. */
  readonly env?: Readonly<Record<string, string>>
}

interface Outcome {
  readonly lost: string[]
  /** Questions that a client was asked twice. */
  readonly askedTwice: number
  /** Orders with an effect under more than one key, or without one. */
  readonly doubled: number
  readonly missing: number
  readonly kills: number
  /** Kills that were due while only one instance was up. */
  readonly skipped: number
  readonly resumed: number
  readonly seconds: number
}

/** The counts of one run. */
interface Tally {
  readonly lost: string[]
  readonly asked: Map<string, number>
  readonly done: number[]
  resumed: number
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** Like any HTTP client behind a balancer: a request that reached no instance is sent again. */
async function patientFetch(url: string | URL, init?: RequestInit): Promise<Response> {
  for (let left = 100; ; left--) {
    try {
      const response = await fetch(url, init)
      if (left === 0 || ![502, 503, 504].includes(response.status)) return response
      await response.body?.cancel()
    } catch (error) {
      if (left === 0 || init?.signal?.aborted) throw error
    }
    await pause(50)
  }
}

interface Orderer {
  /** Makes one call. Rejects if it is lost. */
  order(order: number): Promise<string | undefined>
  close(): Promise<void>
}

/** Connects a client, which answers what it is asked. `onAsked` is called with the instance that has the call. */
async function connect(url: URL, tally: Tally, onAsked: (holder: number) => void): Promise<Orderer> {
  let fail = (_error: Error): void => {}
  let holder = -1
  const transport = new StreamableHTTPClientTransport(url, {
    async fetch(input, init) {
      const resumes = init?.method === 'GET' && new Headers(init.headers).has('last-event-id')
      if (resumes) tally.resumed += 1
      const response = await patientFetch(input, init)
      if (resumes || String(init?.body).includes('tools/call'))
        holder = Number(response.headers.get(TARGET_HEADER))
      return response
    },
    reconnectionOptions: {
      initialReconnectionDelay: 50,
      maxReconnectionDelay: 500,
      reconnectionDelayGrowFactor: 1.5,
      maxRetries: 100,
    },
  })
  const capabilities = { elicitation: { form: {} }, sampling: {}, roots: {} }
  const client = new Client({ name: 'chaos', version: '1' }, { capabilities })
  // A response that no instance takes never reaches its call.
  client.onerror = (error) => {
    if (/sticky routing/.test(error.message)) fail(error)
  }
  const hear = async (...questions: (string | number)[]): Promise<void> => {
    for (const question of questions.map(String))
      tally.asked.set(question, (tally.asked.get(question) ?? 0) + 1)
    onAsked(holder)
    await pause(randomInt(THINK_MS))
  }
  client.setRequestHandler(ElicitRequestSchema, async ({ params }, { requestId }) => {
    await hear(requestId, params.message)
    return { action: 'accept', content: { value: PLACE } }
  })
  client.setRequestHandler(CreateMessageRequestSchema, async ({ params }, { requestId }) => {
    await hear(requestId, JSON.stringify(params.messages))
    return { role: 'assistant', model: 'm', content: { type: 'text', text: 'yes' } }
  })
  client.setRequestHandler(ListRootsRequestSchema, async (_request, { requestId }) => {
    await hear(requestId)
    return { roots: [{ uri: 'file:///tmp', name: 'tmp' }] }
  })
  await client.connect(transport as never)
  return {
    async order(order) {
      const failed = new Promise<never>((_resolve, reject) => {
        fail = reject
      })
      failed.catch(() => {})
      const params = { name: 'order_older', arguments: { order } }
      const call = client.callTool(params, undefined, { timeout: 120_000 })
      call.catch(() => {})
      const { content } = (await Promise.race([call, failed])) as { content: { text: string }[] }
      return content[0]?.text
    },
    close: () => client.close(),
  }
}

/** Kills on a clock of its own. */
function startKilling(fleet: Fleet, killMs: number): { stop(): number } {
  let skipped = 0
  const timer =
    killMs > 0
      ? setInterval(() => {
          if (!fleet.strike()) skipped += 1
        }, killMs)
      : undefined
  return {
    stop() {
      clearInterval(timer)
      return skipped
    },
  }
}

async function runOrders(store: string, plan: Plan): Promise<Outcome> {
  const { orders, clients, killMs = 0, killHolders = false, env } = plan
  const downstream = await startDownstream()
  const fleet = await startFleet(3, {
    DOWNSTREAM: downstream.url,
    RONDO_KEYS: generateKey('chaos'),
    STORE: store,
    ...env,
  })
  const balancer = await startRoundRobin(fleet.targets)
  const tally: Tally = { lost: [], asked: new Map(), done: [], resumed: 0 }
  const killed: Promise<void>[] = []
  const onAsked = (holder: number): void => {
    if (killHolders && killed.length === 0) killed.push(fleet.kill(holder))
  }
  const waiting = [...orders]
  const work = async (): Promise<void> => {
    const client = await connect(new URL('/mcp', balancer.url), tally, onAsked)
    for (let order = waiting.shift(); order !== undefined; order = waiting.shift()) {
      try {
        const text = await client.order(order)
        if (text === `order ${order} goes to ${PLACE}, yes, 1 root`) tally.done.push(order)
        else tally.lost.push(`${order}: ${text}`)
      } catch (error) {
        tally.lost.push(`${order}: ${(error as Error).message}`)
      }
    }
    await client.close()
  }
  const began = performance.now()
  const killing = startKilling(fleet, killMs)
  let skipped = 0
  try {
    await Promise.all(Array.from({ length: clients }, work))
  } finally {
    skipped = killing.stop()
    await Promise.all(killed)
    await balancer.close()
    await fleet.stop()
    await downstream.close()
  }
  const { lost, asked, done, resumed } = tally
  const distinct = [...new Set(orders)]
  return {
    lost,
    askedTwice: [...asked.values()].filter((times) => times > 1).length,
    doubled: distinct.filter((order) => EFFECTS.some((effect) => downstream.applied(order, effect) > 1))
      .length,
    missing: done.filter((order) => EFFECTS.some((effect) => downstream.applied(order, effect) === 0)).length,
    kills: fleet.kills,
    skipped,
    resumed,
    seconds: Math.round((performance.now() - began) / 1_000),
  }
}

const upTo = (count: number): number[] => Array.from({ length: count }, (_, order) => order)
const FINE = { lost: [], askedTwice: 0, doubled: 0, missing: 0 }

function describeOlder(openStore: () => Promise<string>): void {
  it(`J1 R7 the fleet loses none of ${CALLS} calls of the official v1 client while instances are killed, and doubles no effect`, async () => {
    const outcome = await runOrders(await openStore(), {
      orders: upTo(CALLS),
      clients: CLIENTS,
      killMs: KILL_MS,
    })
    if (LONG) console.log(outcome)
    expect(outcome).toMatchObject(FINE)
    expect(outcome.kills).toBeGreaterThan(LONG ? 20 : 0)
    expect(outcome.resumed).toBeGreaterThan(0)
  })

  it('J1 R7 the fleet finishes a call whose instance is killed while its client reads the first question', async () => {
    const plan = { orders: [0], clients: 1, killHolders: true }
    const outcome = await runOrders(await openStore(), plan)
    expect(outcome).toMatchObject({ ...FINE, kills: 1 })
    expect(outcome.resumed).toBeGreaterThan(0)
  })

  it('J1 negative control: with the hand-over off, that call is lost, because no other instance knows it', async () => {
    const plan = { orders: [0], clients: 1, killHolders: true, env: { HANDOVER: 'off' } }
    const outcome = await runOrders(await openStore(), plan)
    expect(outcome.kills).toBe(1)
    expect(outcome.lost).toHaveLength(1)
  })

  it('J1 negative control: with the hand-over off, a response goes astray although no instance is killed', async () => {
    const plan = { orders: [0], clients: 1, env: { HANDOVER: 'off' } }
    expect((await runOrders(await openStore(), plan)).lost).toHaveLength(1)
  })

  it('R7 negative control: an order that is called twice counts as doubled, and its questions as asked twice', async () => {
    const outcome = await runOrders(await openStore(), { orders: [0, 0], clients: 1 })
    expect(outcome).toMatchObject({ lost: [], doubled: 1, askedTwice: 2 })
  })
}

describe('older clients of a fleet that shares a SQLite file', () => {
  let folder: string
  let files = 0
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rondo-older-'))
  })
  afterAll(() => rm(folder, { recursive: true }))
  describeOlder(async () => join(folder, `${++files}.db`))
})

describePostgres('older clients of a fleet that shares a PostgreSQL database', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())
  describeOlder(async () => server.connectionString)
})
