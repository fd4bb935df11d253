/**
 * The official client of the first generation over a round robin of three instances that share a SQLite file, while they are
 * killed one after the other. Each call asks with a form, a sampling request and a request for roots, then charges. The long
 * form runs with `npm run test:chaos`, a short one with every `npm test`.
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
import { expect, it } from 'vitest'
import { startRoundRobin } from '../support/round-robin.ts'
import { startDownstream } from './downstream.ts'
import { startFleet } from './fleet.ts'

const LONG = process.env.RONDO_LONG !== undefined
const CALLS = LONG ? 500 : 24
const CLIENTS = LONG ? 10 : 6
const KILL_MS = LONG ? 1_000 : 700
/** How long a person takes to answer, at most. */
const THINK_MS = LONG ? 400 : 250

interface Outcome {
  readonly lost: string[]
  /** Questions that a client was asked twice. */
  readonly askedTwice: number
  /** Orders that were charged under more than one key, or not at all. */
  readonly doubled: number
  readonly uncharged: number
  readonly kills: number
  readonly resumed: number
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** Like any HTTP client behind a balancer: a request that reached no instance is sent again. */
async function patientFetch(url: string | URL, init?: RequestInit): Promise<Response> {
  for (let left = 40; ; left--) {
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

async function runOrders(count: number, env: Record<string, string>, killMs: number): Promise<Outcome> {
  const folder = await mkdtemp(join(tmpdir(), 'rondo-older-'))
  const downstream = await startDownstream()
  const keys = generateKey('chaos')
  const shared = { DOWNSTREAM: downstream.url, RONDO_KEYS: keys, STORE: join(folder, 'tasks.db'), ...env }
  const fleet = await startFleet(3, shared)
  const balancer = await startRoundRobin(fleet.targets)
  const url = new URL('/mcp', balancer.url)
  const lost: string[] = []
  const asked = new Map<string, number>()
  const done: number[] = []
  let resumed = 0
  let next = 0
  let over = false

  const work = async (): Promise<void> => {
    let fail = (_error: Error): void => {}
    const transport = new StreamableHTTPClientTransport(url, {
      fetch(input, init) {
        if (init?.method === 'GET' && new Headers(init.headers).has('last-event-id')) resumed += 1
        return patientFetch(input, init)
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
    const hear = async (id: string | number): Promise<void> => {
      asked.set(String(id), (asked.get(String(id)) ?? 0) + 1)
      await pause(randomInt(THINK_MS))
    }
    client.setRequestHandler(ElicitRequestSchema, async (_request, { requestId }) => {
      await hear(requestId)
      return { action: 'accept', content: { value: 'Ulm' } }
    })
    client.setRequestHandler(CreateMessageRequestSchema, async (_request, { requestId }) => {
      await hear(requestId)
      return { role: 'assistant', model: 'm', content: { type: 'text', text: 'yes' } }
    })
    client.setRequestHandler(ListRootsRequestSchema, async (_request, { requestId }) => {
      await hear(requestId)
      return { roots: [{ uri: 'file:///tmp', name: 'tmp' }] }
    })
    await client.connect(transport as never)
    while (next < count) {
      const order = next++
      const failed = new Promise<never>((_resolve, reject) => {
        fail = reject
      })
      failed.catch(() => {})
      const call = client.callTool({ name: 'order_older', arguments: { order } }, undefined, {
        timeout: 120_000,
      })
      call.catch(() => {})
      try {
        const { content } = (await Promise.race([call, failed])) as { content: { text: string }[] }
        if (content[0]?.text !== `order ${order} goes to Ulm, yes, 1 root`)
          lost.push(`${order}: ${content[0]?.text}`)
        else done.push(order)
      } catch (error) {
        lost.push(`${order}: ${(error as Error).message}`)
      }
    }
    await client.close()
  }

  const killing = (async () => {
    for (let index = 0; killMs > 0 && !over; index++) {
      await pause(killMs)
      if (!over) await fleet.kill(index % 3)
    }
  })()
  try {
    await Promise.all(Array.from({ length: Math.min(CLIENTS, count) }, work))
  } finally {
    over = true
    await killing
    await balancer.close()
    await fleet.stop()
    await downstream.close()
    await rm(folder, { recursive: true })
  }
  const orders = Array.from({ length: count }, (_, order) => order)
  return {
    lost,
    askedTwice: [...asked.values()].filter((times) => times > 1).length,
    doubled: orders.filter((order) => downstream.applied(order, 'charge') > 1).length,
    uncharged: done.filter((order) => downstream.applied(order, 'charge') === 0).length,
    kills: fleet.kills,
    resumed,
  }
}

it(`J1 R7 loses none of ${CALLS} calls of the official v1 client while instances are killed, and doubles no effect`, async () => {
  const outcome = await runOrders(CALLS, {}, KILL_MS)
  if (LONG) console.log(outcome)
  expect(outcome).toMatchObject({ lost: [], askedTwice: 0, doubled: 0, uncharged: 0 })
  expect(outcome.kills).toBeGreaterThan(0)
})

it('J1 negative control: with the hand-over off, calls are lost although no instance is killed', async () => {
  // One client alone: the requests of several may take turns so that each reaches one instance by chance.
  const { lost } = await runOrders(1, { HANDOVER: 'off' }, 0)
  expect(lost).toHaveLength(1)
})
