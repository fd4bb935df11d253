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
import {
  type FormName,
  pinLoad,
  type ServerName,
  type ServerProcess,
  spawnServer,
} from './server/spawn-server.ts'
import { fixed, median, medianRatio } from './stat.ts'

const SERVERS: readonly ServerName[] = ['rondo', 'official', 'bare']
const TOOL_COUNTS = [1, 20, 100]
/** What the log and spans cost. */
const FORMS: readonly FormName[] = ['rondo', 'rondo-log', 'rondo-spans']

interface Effort {
  readonly warmUp: number
  readonly rounds: number
  readonly requests: number
}

const FULL: Effort = { warmUp: 6_000, rounds: 9, requests: 1_500 }
const QUICK: Effort = { warmUp: 2_000, rounds: 3, requests: 500 }

interface Subject<Name extends string = ServerName> {
  readonly server: ServerProcess<Name>
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
  const forms = await measureForms(effort, settings)
  return toReport(measured, forms, effort)
}

type FormCosts = Readonly<Record<Leg, Readonly<Record<FormName, number[]>>>>

async function measureForms(effort: Effort, { progress }: Settings): Promise<FormCosts> {
  const subjects = await Promise.all(FORMS.map((name) => prepare(name, 1)))
  const none = (): Record<FormName, number[]> => ({ rondo: [], 'rondo-log': [], 'rondo-spans': [] })
  const costs = { plain: none(), asks: none(), answers: none() }
  try {
    for (const subject of subjects) {
      for (const leg of LEGS) await drive(subject.server.url, effort.warmUp, subject.exchanges[leg])
    }
    for (let round = 0; round < effort.rounds; round++) {
      progress(`log and spans: round ${round + 1} of ${effort.rounds}`)
      for (const leg of LEGS) {
        for (const subject of rotated(subjects, round)) {
          costs[leg][subject.server.name].push(await costOf(subject, leg, effort.requests))
        }
      }
    }
    return costs
  } finally {
    await Promise.all(subjects.map(({ server }) => server.stop()))
  }
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

async function prepare<Name extends ServerName | FormName>(
  name: Name,
  tools: number,
): Promise<Subject<Name>> {
  const server = await spawnServer(name, tools)
  const { rssBytes } = await server.usage()
  return { server, idleRssBytes: rssBytes, exchanges: await prepareLegs(server.url) }
}

async function costOf({ server, exchanges }: Subject<string>, leg: Leg, requests: number): Promise<number> {
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

function toReport(measured: readonly Measured[], forms: FormCosts, effort: Effort): Report {
  const tables = [costTable(measured), formTable(forms), memoryTable(measured)]
  return { tables, data: { effort, measured, forms } }
}

function formTable(costs: FormCosts): Table {
  const more = (leg: Leg, form: FormName): string =>
    `${fixed(100 * (medianRatio(costs[leg][form], costs[leg].rondo) - 1), 1)} %`
  return {
    title: 'What the JSON log and spans add to the server CPU of one request',
    columns: ['request', 'rondo µs', 'log adds', 'spans add'],
    rows: LEGS.map((leg) => [
      LEG_NAMES[leg],
      fixed(median(costs[leg].rondo)),
      more(leg, 'rondo-log'),
      more(leg, 'rondo-spans'),
    ]),
  }
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
