/**
 * What tasks cost on SQLite and PostgreSQL: created and completed, parked and resumed, read, through the real engine
 * and store, compared with the same rows written by hand with the bare driver; by one process and by two.
 *
 * The subjects take turns, round by round. Commits are durable everywhere. What a hundred thousand parked tasks cost, and
 * the whole server in front of them, have tables of their own.
 */

import type { RunBench, Settings, Table } from './bench.ts'
import { fixed, median, medianRatio } from './stat.ts'
import { type Databases, openPostgresServer, openSqliteFiles } from './task/database.ts'
import { measureParked, type ParkedFigures, parkedTable } from './task/parked.ts'
import { measureServer, type ServerFigures, serverTable } from './task/server.ts'
import { type Crew, spawnCrew } from './task/spawn-crew.ts'
import type { SubjectName, Work } from './task/subject.ts'

const SUBJECTS: readonly SubjectName[] = ['rondo', 'bare', 'grouped']
const WORKS: readonly Work[] = ['complete', 'resume', 'get']
const PROCESSES = [1, 2]

interface Effort {
  readonly rounds: number
  readonly ms: number
  readonly calls: number
  readonly parked: number
}

const FULL: Effort = { rounds: 7, ms: 1_500, calls: 3_000, parked: 100_000 }
const QUICK: Effort = { rounds: 3, ms: 500, calls: 500, parked: 5_000 }

/** Times a second, one figure for each round. */
type Rates = Record<SubjectName, number[]>

interface Measured {
  readonly database: string
  readonly processes: number
  readonly rates: Readonly<Record<Work, Rates>>
}

export const run: RunBench = async (settings) => {
  const effort = settings.quick ? QUICK : FULL
  const measured: Measured[] = []
  const servers: ServerFigures[] = []
  const parked: ParkedFigures[] = []
  for (const open of [openSqliteFiles, openPostgresServer]) {
    const databases = await open()
    if (databases === undefined) continue
    try {
      for (const count of PROCESSES) measured.push(await measure(databases, count, effort, settings))
      settings.progress(`${databases.name}: the whole server`)
      servers.push(await measureServer(databases, effort))
      settings.progress(`${databases.name}: parking ${effort.parked} tasks`)
      parked.push(await measureParked(databases, effort.parked))
    } finally {
      await databases.close()
    }
  }
  const tables = [rateTable(measured), serverTable(servers), parkedTable(parked)]
  return { tables, data: { effort, measured, servers, parked } }
}

async function measure(
  databases: Databases,
  processes: number,
  { rounds, ms }: Effort,
  { progress }: Settings,
): Promise<Measured> {
  const label = `${databases.name}, ${processes} processes`
  const rates: Record<Work, Rates> = { complete: noRates(), resume: noRates(), get: noRates() }
  const crews: Crew[] = []
  try {
    for (const name of SUBJECTS) crews.push(await spawnCrew(name, databases.create(), processes))
    progress(`${label}: warming up`)
    for (const crew of crews) for (const work of WORKS) await crew.rate(work, ms)
    for (let round = 0; round < rounds; round++) {
      for (const work of WORKS) {
        progress(`${label}: ${work}, round ${round + 1} of ${rounds}`)
        for (const crew of rotated(crews, round)) rates[work][crew.name].push(await crew.rate(work, ms))
      }
    }
  } finally {
    await Promise.all(crews.map((crew) => crew.stop()))
  }
  return { database: databases.name, processes, rates }
}

/** Rotates the order, so that no subject always goes first. */
function rotated<T>(list: readonly T[], by: number): readonly T[] {
  const first = by % list.length
  return [...list.slice(first), ...list.slice(0, first)]
}

function noRates(): Rates {
  return { rondo: [], bare: [], grouped: [] }
}

const NAMES: Readonly<Record<Work, string>> = {
  complete: 'create, complete',
  resume: 'create, park, answer, complete',
  get: 'get',
}

function rateTable(measured: readonly Measured[]): Table {
  const rows = measured.flatMap(({ database, processes, rates }) =>
    WORKS.map((work) => [
      NAMES[work],
      database,
      String(processes),
      ...SUBJECTS.map((name) => fixed(median(rates[work][name]))),
      `${fixed(100 * medianRatio(rates[work].rondo, rates[work].bare))} %`,
      `${fixed(100 * medianRatio(rates[work].rondo, rates[work].grouped))} %`,
    ]),
  )
  const columns = ['task', 'database', 'processes', 'rondo /s', 'by hand /s', 'by hand, grouped /s']
  return {
    title: 'Tasks a second, and the same rows written by hand with the bare driver',
    columns: [...columns, 'of by hand', 'of grouped'],
    rows,
  }
}
