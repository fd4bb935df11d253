/**
 * What one request costs a server: a plain call, a first leg that asks, a second leg that completes, with 1, 20 and 100
 * tools registered.
 *
 * Rondo, the official server and a bare one each run in a process of their own. They take turns, round by round, on the
 * same requests, after a warm-up of each. The bench counts the CPU time of the server process.
 */

import type { Report, RunBench, Settings, Table } from './bench.ts'
import { drive, type Exchange } from './load/drive.ts'
import { LEGS, type Leg, prepareLegs } from './load/legs.ts'
import { pinLoad, type ServerName, type ServerProcess, spawnServer } from './server/spawn-server.ts'
import { fixed, median, medianRatio } from './stat.ts'

const SERVERS: readonly ServerName[] = ['rondo', 'official', 'bare']
const TOOL_COUNTS = [1, 20, 100]

interface Effort {
  readonly warmUp: number
  readonly rounds: number
  readonly requests: number
}

const FULL: Effort = { warmUp: 6_000, rounds: 9, requests: 1_500 }
const QUICK: Effort = { warmUp: 2_000, rounds: 3, requests: 500 }

interface Subject {
  readonly server: ServerProcess
  readonly idleRssBytes: number
  readonly exchanges: Readonly<Record<Leg, (index: number) => Exchange>>
}

/** CPU time of one request in microseconds, one figure per round. */
type Costs = Record<ServerName, number[]>

interface Measured {
  readonly tools: number
  readonly costs: Readonly<Record<Leg, Costs>>
  readonly idleRssBytes: Readonly<Record<ServerName, number>>
  readonly busyRssBytes: Readonly<Record<ServerName, number>>
}

export const run: RunBench = async (settings) => {
  const effort = settings.quick ? QUICK : FULL
  if (!pinLoad()) settings.progress('load and servers share their cores (no taskset)')
  const measured: Measured[] = []
  for (const tools of TOOL_COUNTS) measured.push(await measure(tools, effort, settings))
  return toReport(measured, effort)
}

async function measure(tools: number, effort: Effort, { progress }: Settings): Promise<Measured> {
  const subjects = await Promise.all(SERVERS.map((name) => prepare(name, tools)))
  try {
    progress(`${tools} tools: warming up`)
    for (const subject of subjects) {
      for (const leg of LEGS) await drive(subject.server.url, effort.warmUp, subject.exchanges[leg])
    }
    const costs: Record<Leg, Costs> = { plain: noCosts(), asks: noCosts(), answers: noCosts() }
    for (let round = 0; round < effort.rounds; round++) {
      progress(`${tools} tools: round ${round + 1} of ${effort.rounds}`)
      for (const leg of LEGS) {
        for (const subject of rotated(subjects, round)) {
          costs[leg][subject.server.name].push(await costOf(subject, leg, effort.requests))
        }
      }
    }
    const usages = await Promise.all(subjects.map(({ server }) => server.usage()))
    const busyRssBytes = byServer(usages.map((usage) => usage.rssBytes))
    return { tools, costs, idleRssBytes: byServer(subjects.map((one) => one.idleRssBytes)), busyRssBytes }
  } finally {
    await Promise.all(subjects.map(({ server }) => server.stop()))
  }
}

async function prepare(name: ServerName, tools: number): Promise<Subject> {
  const server = await spawnServer(name, tools)
  const { rssBytes } = await server.usage()
  return { server, idleRssBytes: rssBytes, exchanges: await prepareLegs(server.url) }
}

async function costOf({ server, exchanges }: Subject, leg: Leg, requests: number): Promise<number> {
  let before = 0
  await drive(server.url, requests, exchanges[leg], async () => {
    before = (await server.usage()).cpuMicros
  })
  return ((await server.usage()).cpuMicros - before) / requests
}

/** Rotates the order, so that no subject always goes first. */
function rotated<T>(list: readonly T[], by: number): readonly T[] {
  const first = by % list.length
  return [...list.slice(first), ...list.slice(0, first)]
}

function noCosts(): Costs {
  return { rondo: [], official: [], bare: [] }
}

function byServer(values: readonly number[]): Record<ServerName, number> {
  return Object.fromEntries(SERVERS.map((name, index) => [name, values[index]])) as Record<ServerName, number>
}

const LEG_NAMES: Readonly<Record<Leg, string>> = {
  plain: 'plain call',
  asks: 'first leg, asks',
  answers: 'second leg, completes',
}

function toReport(measured: readonly Measured[], effort: Effort): Report {
  return { tables: [costTable(measured), memoryTable(measured)], data: { effort, measured } }
}

function costTable(measured: readonly Measured[]): Table {
  const rows = LEGS.flatMap((leg) => measured.map(({ tools, costs }) => costRow(leg, tools, costs[leg])))
  const columns = ['request', 'tools', ...SERVERS.map((name) => `${name} µs`)]
  return {
    title:
      'Server CPU of one request, and how many requests of Rondo go into the CPU time of one of the other',
    columns: [...columns, 'rondo req/CPU-s', 'rondo ÷ official', 'rondo ÷ bare'],
    rows,
  }
}

function costRow(leg: Leg, tools: number, costs: Costs): readonly string[] {
  return [
    LEG_NAMES[leg],
    String(tools),
    ...SERVERS.map((name) => fixed(median(costs[name]))),
    fixed(1e6 / median(costs.rondo)),
    `${fixed(medianRatio(costs.official, costs.rondo), 1)}×`,
    `${fixed(100 * medianRatio(costs.bare, costs.rondo))} %`,
  ]
}

function memoryTable(measured: readonly Measured[]): Table {
  const megabytes = (bytes: number): string => fixed(bytes / 1e6)
  const rows = SERVERS.map((name) => [
    name,
    ...measured.flatMap(({ idleRssBytes, busyRssBytes }) => [
      megabytes(idleRssBytes[name]),
      megabytes(busyRssBytes[name]),
    ]),
  ])
  const columns = measured.flatMap(({ tools }) => [`${tools} tools, idle`, 'after the load'])
  return { title: 'Resident memory of the server process, MB', columns: ['server', ...columns], rows }
}
