/**
 * What the users of a server feel, each figure with its aim: how late the end of a task is learnt, what a store costs a call that
 * does not use it, followed tasks a second, the log that a task writes, plain calls while the disk is slow, and tasks that one client
 * follows with a subscription. With `--against` the build of another checkout is measured in the same rounds.
 */

import { execFileSync, fork } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { type Aim, aimTable } from './aim.ts'
import type { RunBench } from './bench.ts'
import { type Running, start } from './felt/start.ts'
import { call, follow, rate } from './load/calls.ts'
import type { Connection } from './load/connection.ts'
import { median, percentile } from './stat.ts'
import { linkCheckout } from './task/before.ts'
import { type Databases, openPostgresServer, openSqliteFiles } from './task/database.ts'
import type { StoreAddress } from './task/subject.ts'

const CHILD = fileURLToPath(new URL('./felt/child.js', import.meta.url))
const FOLLOWER = fileURLToPath(new URL('./felt/follower.js', import.meta.url))
const PARTS = ['ends', 'asks', 'follow', 'wal', 'disk', 'stream'] as const
type Part = (typeof PARTS)[number]

interface Effort {
  readonly rounds: number
  readonly calls: number
}

/** A server that is measured, and what it is called in the table. */
interface Subject {
  readonly name: string
  readonly child: string
  /** The program of a client that follows tasks. */
  readonly follower: string
}

/** The figure of this checkout, and of the other one if there is one. */
type Figures = Pick<Aim, 'found' | 'before'>

export const run: RunBench = async ({ quick, against, part, progress }) => {
  const effort = quick ? { rounds: 3, calls: 600 } : { rounds: 5, calls: 3_000 }
  const before = against === undefined ? undefined : await linkCheckout(against)
  const subjects: Subject[] = [{ name: 'rondo', child: CHILD, follower: FOLLOWER }]
  if (before)
    subjects.push({
      name: 'before',
      child: before.file('felt/child.js'),
      follower: before.file('felt/follower.js'),
    })
  const postgres = await openPostgresServer()
  const sqlite = await openSqliteFiles()
  const measure: Record<Part, () => Promise<Aim[]>> = {
    ends: async () => (postgres ? measureEnds(subjects, postgres, effort) : []),
    asks: async () => measureAsks(subjects, [sqlite, ...(postgres ? [postgres] : [])], effort),
    follow: async () => (postgres ? measureFollowed(subjects, postgres, effort) : []),
    wal: async () => (postgres ? measureWal(subjects, postgres, effort) : []),
    disk: () => measureSlowDisk(subjects, sqlite, effort),
    stream: async () => (postgres ? measureStreams(subjects, postgres, effort) : []),
  }
  const felt: Aim[] = []
  try {
    for (const name of PARTS) {
      if ((part ?? name) !== name) continue
      progress(name)
      felt.push(...(await measure[name]()))
    }
  } finally {
    await before?.remove()
    await sqlite.close()
    await postgres?.close()
  }
  return { tables: [aimTable(felt, 'felt')], data: felt }
}

/** One figure for each subject: the median of rounds in which the subjects take turns. */
async function inTurns(
  subjects: readonly Subject[],
  rounds: number,
  measure: (subject: Subject) => Promise<number>,
): Promise<Figures> {
  const figures = new Map(subjects.map(({ name }) => [name, [] as number[]]))
  for (let round = 0; round < rounds; round++)
    for (const subject of subjects) figures.get(subject.name)?.push(await measure(subject))
  const [ours, before] = [figures.get('rondo') ?? [], figures.get('before')]
  return { found: median(ours), ...(before && { before: median(before) }) }
}

async function withServer<T>(
  subject: Subject,
  address: StoreAddress | undefined,
  use: (server: Running) => Promise<T>,
): Promise<T> {
  const server = await start(subject.child, address)
  try {
    return await use(server)
  } finally {
    server.stop()
  }
}

/** How late a client that polls as often as the server says learns that a task has ended, and how many reads that takes. */
async function measureEnds(
  subjects: readonly Subject[],
  databases: Databases,
  { rounds }: Effort,
): Promise<Aim[]> {
  const aims: Aim[] = []
  // With a fixed interval of a second the first takes one read, and the second two: the first poll allows the effect.
  for (const [tool, what, most, mostReads] of [
    ['wait', '100 ms of work', 250, 4],
    ['pay', 'an effect of 100 ms', 400, 5],
  ] as const) {
    const reads = new Map(subjects.map(({ name }) => [name, [] as number[]]))
    const figures = await inTurns(subjects, rounds, (subject) =>
      withServer(subject, databases.create(), async ({ url }) => {
        const times: number[] = []
        await rate(url, 4, 24, async (connection, id) => {
          const began = performance.now()
          reads.get(subject.name)?.push(await follow(connection, url, tool, id, true))
          times.push(performance.now() - began)
        })
        return median(times)
      }),
    )
    const [found = Number.NaN, before] = [...reads.values()].map(mean)
    aims.push({ what: `the end of ${what} is learnt after`, ...figures, unit: ' ms', most })
    aims.push({ what: `the end of ${what} is learnt with`, found, before, unit: ' reads', most: mostReads })
  }
  return aims
}

const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length

/** CPU of the server for a round that asks, with a store as a multiple of that without one. */
async function measureAsks(
  subjects: readonly Subject[],
  all: readonly Databases[],
  { rounds, calls }: Effort,
): Promise<Aim[]> {
  const felt: Aim[] = []
  const cost = async ({ url, used }: Running): Promise<number> => {
    const before = await used()
    await rate(url, 16, calls, (connection, id) => call(connection, url, 'ask', id))
    return (await used()) - before
  }
  for (const databases of all) {
    const figures = await inTurns(subjects, rounds, (subject) =>
      withServer(subject, undefined, (bare) =>
        withServer(subject, databases.create(), async (stored) => {
          await cost(bare)
          await cost(stored)
          const [first, second] = [await cost(bare), await cost(stored)]
          return second / first
        }),
      ),
    )
    felt.push({
      what: `a round that asks, with ${databases.name}, ÷ without a store`,
      ...figures,
      unit: '×',
      most: 1.05,
    })
  }
  return felt
}

async function measureFollowed(
  subjects: readonly Subject[],
  databases: Databases,
  { rounds, calls }: Effort,
): Promise<Aim[]> {
  const felt: Aim[] = []
  for (const [callers, least] of [
    [32, 1_800],
    [200, 2_300],
  ] as const) {
    const figures = await inTurns(subjects, rounds, (subject) =>
      withServer(subject, databases.create(), async ({ url }) => {
        const work = (connection: Connection, id: number) => follow(connection, url, 'step', id, false)
        await rate(url, callers, calls, work)
        return rate(url, callers, calls, work)
      }),
    )
    felt.push({
      what: `tasks of one step, polled to their end by ${callers} callers`,
      ...figures,
      unit: ' a second',
      least,
    })
  }
  return felt
}

const STREAMED = 200

/** CPU of the server for a task of 100 ms, of many that one client begins at once and follows with a subscription. */
async function measureStreams(
  subjects: readonly Subject[],
  databases: Databases,
  { rounds }: Effort,
): Promise<Aim[]> {
  const figures = await inTurns(subjects, rounds, (subject) =>
    withServer(subject, databases.create(), async ({ url, used }) => {
      const follow = () => runFollower(subject, url)
      await follow()
      const before = await used()
      await follow()
      return ((await used()) - before) / STREAMED / 1_000
    }),
  )
  const what = `a task that one client follows, of ${STREAMED} at once`
  return [{ what, ...figures, unit: ' ms', most: 1.2 }]
}

function runFollower({ follower }: Subject, url: URL): Promise<void> {
  const child = fork(follower, [url.href, String(STREAMED)])
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (code) =>
      code === 0 ? resolve() : reject(new Error(`The client ended with ${code}`)),
    )
  })
}

/** What PostgreSQL writes to its log for a task. */
async function measureWal(
  subjects: readonly Subject[],
  databases: Databases,
  { rounds, calls }: Effort,
): Promise<Aim[]> {
  const figures = await inTurns(subjects, rounds, async (subject) => {
    const address = databases.create()
    if (address.kind !== 'postgres') return Number.NaN
    const client = new pg.Client({ connectionString: address.connectionString })
    await client.connect()
    const bytes = async () =>
      Number((await client.query("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn AS bytes")).rows[0].bytes)
    try {
      return await withServer(subject, address, async ({ url }) => {
        const work = (connection: Connection, id: number) => follow(connection, url, 'step', id, false)
        await rate(url, 32, calls, work)
        // Full images of pages after a checkpoint would be counted otherwise.
        const began = await bytes()
        await rate(url, 32, calls, work)
        return ((await bytes()) - began) / calls / 1_000
      })
    } finally {
      await client.end()
    }
  })
  return [{ what: 'log of PostgreSQL for a task of one step', ...figures, unit: ' kB', most: 6 }]
}

/** Plain calls while tasks are written to a disk that takes 20 ms longer: p50 as a multiple of that on the same disk at its own pace. */
async function measureSlowDisk(
  subjects: readonly Subject[],
  databases: Databases,
  { rounds, calls }: Effort,
): Promise<Aim[]> {
  const folder = mkdtempSync(join(tmpdir(), 'rondo-disk-'))
  const library = join(folder, 'slow-disk.so')
  try {
    execFileSync('cc', ['-shared', '-fPIC', '-o', library, 'bench/felt/slow-disk.c', '-ldl'])
  } catch {
    console.warn('\n*** NOT MEASURED: a slow disk needs a C compiler (cc) ***\n')
    rmSync(folder, { recursive: true })
    return []
  }
  const p50 = async (subject: Subject, slowMs: number): Promise<number> => {
    const server = await start(subject.child, databases.create(), {
      LD_PRELOAD: library,
      SLOW_DISK_MS: String(slowMs),
    })
    const { url } = server
    const times: number[] = []
    let over = false
    const writers = rate(url, 8, Number.POSITIVE_INFINITY, async (connection, id) => {
      if (!over) await call(connection, url, 'step', id)
      else throw new Error('over')
    }).catch(() => {})
    await rate(url, 8, calls, async (connection, id) => {
      const began = performance.now()
      await call(connection, url, 'plain', id)
      times.push(performance.now() - began)
    })
    over = true
    await writers
    server.stop()
    return percentile(
      times.sort((a, b) => a - b),
      0.5,
    )
  }
  const figures = await inTurns(
    subjects,
    rounds,
    async (subject) => (await p50(subject, 20)) / (await p50(subject, 0)),
  )
  rmSync(folder, { recursive: true })
  return [{ what: 'plain calls beside tasks in SQLite, fsync + 20 ms', ...figures, unit: '×', most: 1.5 }]
}
