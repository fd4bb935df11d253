/**
 * The cost of tasks on SQLite and PostgreSQL: created and completed, parked and resumed, read, through the real engine
 * and store, compared with the same rows written by hand with the bare driver; by one process and by two.
 *
 * The subjects take turns, round by round. Commits are durable everywhere. What a hundred thousand parked tasks and
 * a hundred thousand sleeping ones cost, how late these wake, and the whole server in front of them, have tables of their own.
 */

import type { RunBench, Settings, Table } from './bench.ts'
import { fixed, median, medianRatio } from './stat.ts'
import { type Before, linkCheckout } from './task/before.ts'
import { type Databases, openPostgresServer, openSqliteFiles } from './task/database.ts'
import { measureParked, type ParkedFigures, parkedTable } from './task/parked.ts'
import { measureServer, type ServerFigures, serverTable } from './task/server.ts'
import { measureSleeping, type SleepFigures, sleepingTables } from './task/sleeping.ts'
import { type Crew, spawnCrew } from './task/spawn-crew.ts'
import type { Lone, SubjectName, Work } from './task/subject.ts'

const SUBJECTS: readonly SubjectName[] = ['rondo', 'bare', 'grouped']
const WORKS: readonly Work[] = ['complete', 'resume', 'get']
const LONE: readonly Lone[] = ['complete', 'resume']
const PROCESSES = [1, 2]
const OPEN = { sqlite: openSqliteFiles, postgres: openPostgresServer }

interface Effort {
  readonly rounds: number
  readonly ms: number
  readonly calls: number
  readonly parked: number
  /** The seconds for which sleeping tasks wake at 1,000 a second, and the number of others that wake at one moment. */
  readonly seconds: number
  readonly herd: number
  /** Lone tasks in a round, and such rounds. */
  readonly lone: number
  readonly loneRounds: number
}

const FULL: Effort = {
  rounds: 5,
  ms: 1_000,
  calls: 3_000,
  parked: 100_000,
  seconds: 10,
  herd: 20_000,
  lone: 100,
  loneRounds: 15,
}
const QUICK: Effort = {
  rounds: 3,
  ms: 500,
  calls: 500,
  parked: 5_000,
  seconds: 2,
  herd: 1_000,
  lone: 30,
  loneRounds: 6,
}

/** Times a second, one figure for each round. */
type Rates = Record<SubjectName, number[]>

interface Measured {
  readonly database: string
  readonly processes: number
  readonly rates: Readonly<Record<Work, Rates>>
}

interface LoneFigures {
  readonly database: string
  /** In ms. */
  readonly times: Readonly<Record<Lone, Rates>>
}

const PARTS = ['rates', 'lone', 'server', 'parked', 'sleeping'] as const
const COMPARED: readonly (typeof PARTS)[number][] = ['rates', 'lone']

export const run: RunBench = async (settings) => {
  const effort = settings.quick ? QUICK : FULL
  const measured: Measured[] = []
  const alone: LoneFigures[] = []
  const servers: ServerFigures[] = []
  const parked: ParkedFigures[] = []
  const slept: SleepFigures[] = []
  const { only, against, part } = settings
  assertOneOf('database', only, Object.keys(OPEN))
  assertOneOf('part', part, PARTS)
  if (against !== undefined) settings.progress(`linking ${against}`)
  const before = against === undefined ? undefined : await linkCheckout(against)
  const includes = (name: (typeof PARTS)[number]) =>
    (part ?? name) === name && (before === undefined || COMPARED.includes(name))
  try {
    for (const [name, open] of Object.entries(OPEN)) {
      const databases = (only ?? name) === name ? await open() : undefined
      if (databases === undefined) continue
      const begin = (text: string) => settings.progress(`${databases.name}: ${text}`)
      try {
        // First: what the other parts leave behind in the database would slow one program more than the other.
        if (includes('lone')) alone.push(await measureLone(databases, effort, settings, before))
        for (const count of includes('rates') ? PROCESSES : [])
          measured.push(await measure(databases, count, effort, settings, before))
        if (includes('server')) {
          begin('the whole server')
          servers.push(await measureServer(databases, effort))
        }
        if (includes('parked')) {
          begin(`parking ${effort.parked} tasks`)
          parked.push(await measureParked(databases, effort.parked))
        }
        if (includes('sleeping')) {
          begin(`${effort.parked} sleeping tasks`)
          slept.push(await measureSleeping(databases, effort))
        }
      } finally {
        await databases.close()
      }
    }
  } finally {
    await before?.remove()
  }
  const tables = [
    ...(includes('rates') ? [rateTable(measured)] : []),
    ...(includes('lone') ? [loneTable(alone)] : []),
    ...(includes('server') ? [serverTable(servers)] : []),
    ...(includes('parked') ? [parkedTable(parked)] : []),
    ...(includes('sleeping') ? sleepingTables(slept) : []),
  ]
  return { tables, data: { effort, against, measured, alone, servers, parked, slept } }
}

function assertOneOf(what: string, given: string | undefined, known: readonly string[]): void {
  if (given !== undefined && !known.includes(given))
    throw new TypeError(`Unknown ${what} "${given}": ${known.join(' or ')}`)
}

async function measure(
  databases: Databases,
  processes: number,
  { rounds, ms }: Effort,
  { progress }: Settings,
  before: Before | undefined,
): Promise<Measured> {
  const label = `${databases.name}, ${processes} processes`
  const rates: Record<Work, Rates> = { complete: noRates(), resume: noRates(), get: noRates() }
  const crews: Crew[] = []
  try {
    for (const name of before === undefined ? SUBJECTS : [...SUBJECTS, 'before' as const])
      crews.push(await spawnCrew(name, databases.create(), processes, before?.file('task/child.js')))
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

/** One task after the other, in databases in which nothing else happens and which have as many rows. */
async function measureLone(
  databases: Databases,
  { lone, loneRounds }: Effort,
  { progress }: Settings,
  before: Before | undefined,
): Promise<LoneFigures> {
  const times: Record<Lone, Rates> = { complete: noRates(), resume: noRates() }
  const crews: Crew[] = []
  try {
    for (const name of before === undefined ? (['rondo'] as const) : (['rondo', 'before'] as const))
      crews.push(await spawnCrew(name, databases.create(), 1, before?.file('task/child.js')))
    progress(`${databases.name}, lone tasks: warming up`)
    for (const crew of crews) for (const work of LONE) await crew.lone(work, 5 * lone)
    for (let round = 0; round < loneRounds; round++) {
      progress(`${databases.name}, lone tasks: round ${round + 1} of ${loneRounds}`)
      for (const work of LONE)
        for (const crew of rotated(crews, round))
          times[work][crew.name].push(...(await crew.lone(work, lone)))
    }
  } finally {
    await Promise.all(crews.map((crew) => crew.stop()))
  }
  return { database: databases.name, times }
}

/** Rotates the order, so that no subject always goes first. */
function rotated<T>(list: readonly T[], by: number): readonly T[] {
  const first = by % list.length
  return [...list.slice(first), ...list.slice(0, first)]
}

function noRates(): Rates {
  return { rondo: [], before: [], bare: [], grouped: [] }
}

const NAMES: Readonly<Record<Work, string>> = {
  complete: 'create, complete',
  resume: 'create, park, answer, complete',
  get: 'get',
}

function rateTable(measured: readonly Measured[]): Table {
  const hasBefore = measured.some(({ rates }) => rates.complete.before.length > 0)
  const rows = measured.flatMap(({ database, processes, rates }) =>
    WORKS.map((work) => [
      NAMES[work],
      database,
      String(processes),
      ...SUBJECTS.map((name) => fixed(median(rates[work][name]))),
      `${fixed(100 * medianRatio(rates[work].rondo, rates[work].bare))} %`,
      `${fixed(100 * medianRatio(rates[work].rondo, rates[work].grouped))} %`,
      ...(hasBefore
        ? [
            fixed(median(rates[work].before)),
            `${fixed(100 * medianRatio(rates[work].before, rates[work].grouped))} %`,
            fixed(medianRatio(rates[work].rondo, rates[work].before), 2),
          ]
        : []),
    ]),
  )
  const columns = ['task', 'database', 'processes', 'rondo /s', 'by hand /s', 'by hand, grouped /s']
  return {
    title: 'Tasks a second, and the same rows written by hand with the bare driver',
    mark: 'tasks',
    columns: [
      ...columns,
      'of by hand',
      'of grouped',
      ...(hasBefore ? ['before /s', 'before, of grouped', 'rondo / before'] : []),
    ],
    rows,
  }
}

/** The time that one task takes while nothing else happens. */
function loneTable(alone: readonly LoneFigures[]): Table {
  const rows = alone.flatMap(({ database, times }) =>
    LONE.flatMap((work) =>
      (['rondo', 'before'] as const)
        .filter((name) => times[work][name].length > 0)
        .map((name) => {
          const sorted = [...times[work][name]].sort((a, b) => a - b)
          const at = (part: number) => fixed(sorted[Math.floor(part * sorted.length)] ?? Number.NaN, 2)
          return [NAMES[work], database, name, String(sorted.length), at(0.5), at(0.99)]
        }),
    ),
  )
  return {
    title: 'A lone task, one process: ms from its creation to its end',
    mark: 'tasks-lone',
    columns: ['task', 'database', 'program', 'tasks', 'p50', 'p99'],
    rows,
  }
}
