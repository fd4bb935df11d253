/**
 * The cost of the instances of a fleet for each other: messages through the bus of each store, how late a lone one arrives, what is
 * left of a flood, and what a request of an older session costs, whose record every instance reads first.
 *
 * The publisher and the listener have a handle of the store each, as two processes would, in one process: its clock times both.
 */

import { BUS_LIMITS } from '../packages/rondo/src/store/bus.ts'
import { createMemoryStore } from '../packages/rondo/src/store/memory/store.ts'
import { createPostgresStore } from '../packages/rondo/src/store/postgres/store.ts'
import type { Bus, Store } from '../packages/rondo/src/store/store.ts'
import type { RunBench, Settings, Table } from './bench.ts'
import { openConnection } from './load/connection.ts'
import { startWith } from './server/rondo.ts'
import { fixed, median, percentile } from './stat.ts'
import { type Databases, openPostgresServer, openSqliteFiles } from './task/database.ts'
import { openStore } from './task/rondo.ts'

interface Effort {
  /** Messages of one measurement of the rate. */
  readonly messages: number
  readonly rounds: number
  /** Messages that are sent alone. */
  readonly lone: number
  /** Messages that are published at once. */
  readonly flood: number
  /** Requests of one round, and rounds of requests. */
  readonly requests: number
  readonly turns: number
}

const FULL: Effort = { messages: 20_000, rounds: 3, lone: 100, flood: 100_000, requests: 500, turns: 12 }
const QUICK: Effort = { messages: 4_000, rounds: 2, lone: 60, flood: 30_000, requests: 200, turns: 8 }

/** A way to share a store. */
interface Site {
  readonly name: string
  /** A handle of the same empty database for every call. */
  share(): () => Store
}

interface BusFigures {
  readonly name: string
  readonly rates: number[]
  /** Ms from the call of `publish` to the listener, of messages that are alone. */
  readonly late: number[]
  readonly flood: Flood
}

/** The messages of a flood that a listener gets. */
interface Flood {
  readonly published: number
  readonly received: number
  /** The number of times that it was told that messages were lost. */
  readonly lost: number
  /** Ms from the first message to the end. */
  readonly ms: number
}

interface SessionFigures {
  readonly name: string
  /** Microseconds of a `ping`, one after the other over one connection. */
  readonly micros: number[]
}

export const run: RunBench = async (settings) => {
  const effort = settings.quick ? QUICK : FULL
  const opened = await Promise.all([openSqliteFiles(), openPostgresServer()])
  const databases = opened.filter((one) => one !== undefined)
  // The timers of a bus do not keep a process alive.
  const awake = setInterval(() => {}, 1_000)
  try {
    const sites = [memorySite(), ...databases.flatMap(sitesOf)]
    const buses: BusFigures[] = []
    for (const site of sites) buses.push(await measureBus(site, effort, settings))
    const sessions = await measureSessions(sites, effort, settings)
    return { tables: [toBusTable(buses), toSessionTable(sessions)], data: { effort, buses, sessions } }
  } finally {
    clearInterval(awake)
    await Promise.all(databases.map((each) => each.close()))
  }
}

function memorySite(): Site {
  return {
    name: 'memory, one process',
    share() {
      const store = createMemoryStore()
      return () => store
    },
  }
}

function sitesOf({ name, create }: Databases): Site[] {
  const plain = (): (() => Store) => {
    const address = create()
    return () => openStore(address)
  }
  if (name !== 'PostgreSQL') return [{ name: `${name}, polling its change counter`, share: plain }]
  const polling = (): (() => Store) => {
    const address = create()
    if (address.kind !== 'postgres') throw new Error('only PostgreSQL listens')
    const { connectionString, schema } = address
    return () => createPostgresStore({ connectionString, schema, listen: false })
  }
  return [
    { name: `${name}, LISTEN`, share: plain },
    { name: `${name}, polling every 500 ms`, share: polling },
  ]
}

function busOf({ bus }: Store): Bus {
  if (bus === undefined) throw new Error('The store has no bus')
  return bus
}

async function measureBus(
  { name, share }: Site,
  { messages, rounds, lone, flood }: Effort,
  { progress }: Settings,
): Promise<BusFigures> {
  const open = share()
  const [sender, receiver] = [open(), open()]
  const inbox = createInbox()
  const subscription = busOf(receiver).subscribe(inbox)
  try {
    await subscription.started
    const figures = { name, rates: [] as number[], late: [] as number[] }
    for (let round = 0; round < rounds; round++) {
      progress(`${name}: ${messages} messages, round ${round + 1} of ${rounds}`)
      figures.rates.push(await rateOf(busOf(sender), inbox, `${round}`, messages))
    }
    progress(`${name}: ${lone} messages, each alone`)
    for (let i = 0; i < lone; i++) figures.late.push(await lateOf(busOf(sender), inbox, `alone ${i}`))
    progress(`${name}: ${flood} messages at once`)
    return { ...figures, flood: await floodOf(busOf(sender), inbox, flood) }
  } finally {
    subscription.stop()
    await sender.close()
    if (receiver !== sender) await receiver.close()
  }
}

interface Inbox {
  received: number
  lostTimes: number
  receive(messages: readonly string[]): void
  lost(): void
  /** Resolves when this message has arrived. */
  arrival(message: string): Promise<void>
}

function createInbox(): Inbox {
  const waiting = new Map<string, () => void>()
  return {
    received: 0,
    lostTimes: 0,
    receive(messages) {
      this.received += messages.length
      for (const message of messages) waiting.get(message)?.()
    },
    lost() {
      this.lostTimes += 1
    },
    arrival: (message) => new Promise((resolve) => void waiting.set(message, resolve)),
  }
}

/** As many at a time as fit the queue of a process, so that none is dropped. */
const AT_ONCE = 1_000
/** So many lots may be on their way: a listener that is further behind is told that messages were lost. */
const ON_THEIR_WAY = Math.floor(BUS_LIMITS.behind / AT_ONCE)

async function rateOf(bus: Bus, inbox: Inbox, label: string, count: number): Promise<number> {
  const before = inbox.received
  const lots: Promise<void>[] = []
  const began = performance.now()
  for (let i = 0; i < count; i += AT_ONCE) {
    await lots.at(-ON_THEIR_WAY)
    const some = Math.min(AT_ONCE, count - i)
    lots.push(inbox.arrival(`${label} ${i + some - 1}`))
    await Promise.all(Array.from({ length: some }, (_, k) => bus.publish(`${label} ${i + k}`)))
  }
  await lots.at(-1)
  const rate = count / ((performance.now() - began) / 1_000)
  if (inbox.received - before !== count || inbox.lostTimes > 0) throw new Error('Messages were lost')
  return rate
}

const QUIET_MS = 2 * BUS_LIMITS.spacingMs

async function lateOf(bus: Bus, inbox: Inbox, message: string): Promise<number> {
  const arrival = inbox.arrival(message)
  // Longer than a process waits between two writes.
  await new Promise((resolve) => setTimeout(resolve, QUIET_MS))
  const began = performance.now()
  await bus.publish(message)
  await arrival
  return performance.now() - began
}

async function floodOf(bus: Bus, inbox: Inbox, count: number): Promise<Flood> {
  const [received, lost] = [inbox.received, inbox.lostTimes]
  const began = performance.now()
  const published = Promise.all(Array.from({ length: count }, (_, i) => bus.publish(`flood ${i}`)))
  const last = inbox.arrival('after the flood')
  await published
  await bus.publish('after the flood')
  await last
  const ms = performance.now() - began
  const reached = inbox.received - received - 1
  const told = inbox.lostTimes - lost
  if (reached < count && told === 0) throw new Error('Messages were lost, and the listener was not told')
  return { published: count, received: reached, lost: told, ms }
}

async function measureSessions(
  sites: readonly Site[],
  { turns, requests }: Effort,
  { progress }: Settings,
): Promise<SessionFigures[]> {
  const stores = sites
    .filter(({ name }) => !/500 ms|memory/.test(name))
    .map(({ name, share }) => ({ name: name.split(',')[0] ?? name, store: share()() }))
  const figures: SessionFigures[] = []
  const servers = await Promise.all(
    [{ name: 'no store', store: undefined }, ...stores].map(async ({ name, store }) => {
      figures.push({ name, micros: [] })
      const server = await startWith(1, { store }, 'never')
      return { server, ping: await openSession(server.url) }
    }),
  )
  try {
    for (let round = 0; round <= turns; round++) {
      progress(`sessions: round ${round} of ${turns}`)
      for (let k = 0; k < servers.length; k++) {
        // Rotated, so that none is always first.
        const i = (k + round) % servers.length
        const { server, ping } = servers[i] as (typeof servers)[number]
        // A new one each time: on a busy machine one that is kept may be idle for longer than the server allows.
        const connection = await openConnection(server.url)
        const began = performance.now()
        for (let n = 0; n < requests; n++) check(await connection.send(ping))
        // The first round warms up.
        if (round > 0) figures[i]?.micros.push(((performance.now() - began) * 1_000) / requests)
        connection.close()
      }
    }
  } finally {
    for (const { server } of servers) await server.close()
  }
  return figures
}

function check({ status, body }: { readonly status: number; readonly body: string }): void {
  if (status !== 200 || !body.includes('"result"')) throw new Error(`Unexpected response: ${status} ${body}`)
}

/** Begins a session of 2025-11-25; returns the request that is measured. */
async function openSession(url: URL): Promise<string> {
  const clientInfo = { name: 'bench', version: '1.0.0' }
  const params = { protocolVersion: '2025-11-25', capabilities: { elicitation: {} }, clientInfo }
  const greeting = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params }),
  })
  await greeting.text()
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' })
  return [
    `POST ${url.pathname} HTTP/1.1`,
    `Host: ${url.host}`,
    'Content-Type: application/json',
    'Accept: application/json, text/event-stream',
    'MCP-Protocol-Version: 2025-11-25',
    `Mcp-Session-Id: ${greeting.headers.get('mcp-session-id')}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    '',
    body,
  ].join('\r\n')
}

function toBusTable(figures: readonly BusFigures[]): Table {
  return {
    title: 'The bus: messages a second from one instance to another, a lone message, and a flood',
    mark: 'fleet-bus',
    columns: [
      'store',
      'messages a second',
      'alone, p50 ms',
      'p99',
      'published at once',
      'reached the listener',
      'told that some were lost',
    ],
    rows: figures.map(({ name, rates, late, flood }) => {
      const sorted = [...late].sort((a, b) => a - b)
      return [
        name,
        fixed(median(rates)),
        fixed(percentile(sorted, 0.5), 1),
        fixed(percentile(sorted, 0.99), 1),
        String(flood.published),
        String(flood.received),
        flood.lost === 1 ? 'once' : `${flood.lost} times`,
      ]
    }),
  }
}

function toSessionTable(figures: readonly SessionFigures[]): Table {
  const [bare] = figures
  const base = median(bare?.micros ?? [])
  return {
    title: 'A request of an older session (ping), one after the other, microseconds',
    mark: 'fleet-session',
    columns: ['store', 'a request', 'of which the read'],
    rows: figures.map(({ name, micros }) => {
      const cost = median(micros)
      return [name, fixed(cost), name === bare?.name ? '–' : fixed(cost - base)]
    }),
  }
}
