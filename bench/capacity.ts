/**
 * The constants of the capacity model (docs/reference/capacity.md), on this machine: for each kind of call the CPU time of Node and of the
 * database, the log that the database writes, and the bytes that stay in it.
 */

import { readFileSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import type { RunBench, Settings, Table } from './bench.ts'
import { type Running, start } from './felt/start.ts'
import { answerTask, call, callAndAnswer, rate, waitFor } from './load/calls.ts'
import type { Connection } from './load/connection.ts'
import { fixed, median } from './stat.ts'
import { type Databases, openPostgresServer, openSqliteFiles } from './task/database.ts'
import type { StoreAddress } from './task/subject.ts'

const CHILD = fileURLToPath(new URL('./felt/child.js', import.meta.url))
const CALLERS = 64

interface Effort {
  readonly rounds: number
  readonly calls: number
}

const FULL: Effort = { rounds: 3, calls: 2_000 }
const QUICK: Effort = { rounds: 2, calls: 500 }

/** A kind of call, as its client makes it. */
interface Kind {
  readonly name: string
  readonly store: boolean
  run(connection: Connection, url: URL, id: number): Promise<unknown>
}

const KINDS: readonly Kind[] = [
  { name: 'plain call', store: false, run: (connection, url, id) => call(connection, url, 'plain', id) },
  {
    name: 'call with one question',
    store: false,
    run: (connection, url, id) => callAndAnswer(connection, url, 'ask', id),
  },
  {
    name: 'task of one step',
    store: true,
    run: async (connection, url, id) =>
      waitFor(connection, url, await call(connection, url, 'step', id), 'completed'),
  },
  {
    name: 'task with one question',
    store: true,
    async run(connection, url, id) {
      const begun = await call(connection, url, 'park', id)
      await answerTask(connection, url, await waitFor(connection, url, begun, 'input_required'))
    },
  },
]

/** A task that waits for its answer: begun, and left alone. */
const PARKED: Kind = {
  name: 'parked question of a task',
  store: true,
  run: async (connection, url, id) =>
    waitFor(connection, url, await call(connection, url, 'park', id), 'input_required'),
}

/** What a call uses up. A figure that the database does not report is not a number. */
interface Cost {
  readonly nodeMicros: number
  readonly databaseMicros: number
  readonly walBytes: number
  readonly restBytes: number
}

interface Meter {
  read(): Promise<Omit<Cost, 'nodeMicros'>>
  close(): Promise<void>
}

interface Row {
  readonly kind: string
  readonly database: string
  readonly costs: Cost[]
}

export const run: RunBench = async (settings) => {
  const effort = settings.quick ? QUICK : FULL
  const opened = await Promise.all([
    settings.only === 'postgres' ? undefined : openSqliteFiles(),
    settings.only === 'sqlite' ? undefined : openPostgresServer(),
  ])
  const databases = opened.filter((one) => one !== undefined)
  try {
    const rows: Row[] = []
    for (const kind of KINDS.filter(({ store }) => !store))
      rows.push(await measure(kind, undefined, effort, settings))
    for (const one of databases)
      for (const kind of [...KINDS.filter(({ store }) => store), PARKED])
        rows.push(await measure(kind, one, effort, settings))
    return { tables: [toTable(rows), toPlan(rows)], data: rows }
  } finally {
    await Promise.all(databases.map((one) => one.close()))
  }
}

async function measure(
  kind: Kind,
  databases: Databases | undefined,
  { rounds, calls }: Effort,
  { progress }: Settings,
): Promise<Row> {
  const database = databases?.name ?? 'none'
  const address = databases?.create()
  const server = await start(CHILD, address)
  const meter = address && (await openMeter(address))
  const costs: Cost[] = []
  try {
    const { url } = server
    const send = () => rate(url, CALLERS, calls, (connection, id) => kind.run(connection, url, id))
    await send()
    for (let round = 1; round <= rounds; round++) {
      progress(`${kind.name}, ${database}: round ${round} of ${rounds}`)
      costs.push(await costOf(send, calls, server, meter))
    }
  } finally {
    server.stop()
    await meter?.close()
  }
  return { kind: kind.name, database, costs }
}

async function costOf(
  send: () => Promise<unknown>,
  calls: number,
  server: Running,
  meter: Meter | undefined,
): Promise<Cost> {
  const none = { databaseMicros: 0, walBytes: 0, restBytes: 0 }
  const [began, node] = [(await meter?.read()) ?? none, await server.used()]
  await send()
  const [ended, used] = [(await meter?.read()) ?? none, await server.used()]
  return {
    nodeMicros: (used - node) / calls,
    databaseMicros: (ended.databaseMicros - began.databaseMicros) / calls,
    walBytes: (ended.walBytes - began.walBytes) / calls,
    restBytes: (ended.restBytes - began.restBytes) / calls,
  }
}

async function openMeter(address: StoreAddress): Promise<Meter> {
  return address.kind === 'postgres' ? openPostgresMeter(address) : createSqliteMeter(address.file)
}

/** SQLite works in the process of the server, and its log is truncated from time to time. */
function createSqliteMeter(file: string): Meter {
  return {
    read: async () => ({ databaseMicros: 0, walBytes: Number.NaN, restBytes: (await stat(file)).size }),
    close: async () => {},
  }
}

async function openPostgresMeter({
  connectionString,
  schema,
}: Extract<StoreAddress, { kind: 'postgres' }>): Promise<Meter> {
  const client = new pg.Client({ connectionString })
  await client.connect()
  const one = async (sql: string, values: unknown[] = []): Promise<number> =>
    Number((await client.query({ text: sql, values, rowMode: 'array' })).rows[0]?.[0] ?? 0)
  return {
    async read() {
      const { rows } = await client.query<{ pid: number }>('SELECT pid FROM pg_stat_activity')
      return {
        databaseMicros: rows.reduce((sum, { pid }) => sum + cpuOf(pid), 0),
        walBytes: await one("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"),
        restBytes: await one(
          `SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE n.nspname = $1 AND c.relkind = 'r'`,
          [schema],
        ),
      }
    },
    close: () => client.end(),
  }
}

/** Linux counts in ticks of 10 ms. */
const TICK_MICROS = 10_000

/** CPU time of a process of this machine in µs; not a number if the system does not report it. */
function cpuOf(pid: number): number {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // The name of the process is in parentheses, and may contain spaces.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    return (Number(fields[11]) + Number(fields[12])) * TICK_MICROS
  } catch {
    return Number.NaN
  }
}

/** Calls a second that the plan is for, and questions that wait. */
const PLANNED_CALLS = 10_000
const PLANNED_PARKED = 10_000_000
/** The share of a core that is planned with: the rest is for peaks, and for instances that are replaced. */
const UTILIZATION = 0.6

/** The model, applied: cores and disk for so many calls a second, and room for so many questions that wait. */
function toPlan(rows: readonly Row[]): Table {
  const of = (costs: readonly Cost[], pick: (cost: Cost) => number): number => median(costs.map(pick))
  const cores = (micros: number): string => fixed((PLANNED_CALLS * micros) / 1e6 / UTILIZATION, 1)
  return {
    title: `Planned with: ${PLANNED_CALLS} calls a second at ${100 * UTILIZATION} % of each core, and ${PLANNED_PARKED} questions that wait`,
    mark: 'capacity-plan',
    columns: ['call', 'store', 'cores for Node', 'cores for the database', 'log, MB/s', 'waiting, GB'],
    rows: rows.map(({ kind, database, costs }) => [
      kind,
      database,
      cores(of(costs, ({ nodeMicros }) => nodeMicros)),
      cores(of(costs, ({ databaseMicros }) => databaseMicros)),
      fixed((PLANNED_CALLS * of(costs, ({ walBytes }) => walBytes)) / 1e6, 1),
      kind === PARKED.name ? fixed((PLANNED_PARKED * of(costs, ({ restBytes }) => restBytes)) / 1e9) : '–',
    ]),
  }
}

function toTable(rows: readonly Row[]): Table {
  const of = (costs: readonly Cost[], pick: (cost: Cost) => number): string => fixed(median(costs.map(pick)))
  return {
    title: 'What a call uses up on this machine',
    mark: 'capacity',
    columns: ['call', 'store', 'Node CPU, µs', 'database CPU, µs', 'log, bytes', 'at rest, bytes'],
    rows: rows.map(({ kind, database, costs }) => [
      kind,
      database,
      of(costs, ({ nodeMicros }) => nodeMicros),
      of(costs, ({ databaseMicros }) => databaseMicros),
      of(costs, ({ walBytes }) => walBytes),
      of(costs, ({ restBytes }) => restBytes),
    ]),
  }
}
