/**
 * Servers of 2026-07-28 from outside, beside a bare one in the same rounds: `public.md` says what a server needs to take part.
 *
 * Everything is seen through HTTP alone, so that a server can be measured by its address. Each question is answered once: a
 * server may refuse a state that it has seen before.
 */

import { execFileSync, execSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Report, RunBench, Settings, Table } from './bench.ts'
import { CONNECTIONS, drive } from './load/drive.ts'
import { type Outside, openOutside, type Parked } from './load/outside.ts'
import {
  type PeerName,
  pinLoad,
  type ServerName,
  type ServerProcess,
  type SessionServerName,
  spawnServer,
} from './server/spawn-server.ts'
import { fixed, median, medianRatio } from './stat.ts'

const FULL = { rounds: 5, requests: 2_000, moved: 200, tasks: 50 }
const QUICK = { rounds: 3, requests: 500, moved: 50, tasks: 20 }
type Effort = typeof FULL

const LEGS = ['plain', 'asks', 'answers'] as const
type Leg = (typeof LEGS)[number]

const BARE = 'bare'

/** A server that takes part. It can be moved to: another instance, or itself after a restart. */
interface Subject {
  readonly name: string
  readonly outside: Outside
  second?(): Promise<Outside>
  restart?(): Promise<Outside>
  heapBytes?(): Promise<number>
  stop(): Promise<void>
}

interface Figures {
  /** Requests a second, one figure per round; or why there are none. */
  readonly rates: Record<Leg, number[]>
  /** Memory of the process for each question that waits for its answer. */
  readonly parkedBytes: number[]
  failure?: string
  second?: string
  restart?: string
  task?: string
}

const OWN: readonly [label: string, name: ServerName | SessionServerName | PeerName][] = [
  ['Rondo', 'rondo'],
  ['Rondo with tasks in SQLite', 'rondo-task'],
  ['official server', 'official'],
  ['mcp-handler', 'mcp-handler'],
  ['tmcp', 'tmcp'],
  ['FastMCP (TypeScript)', 'fastmcp'],
]

export const run: RunBench = async (settings) => {
  const effort = settings.quick ? QUICK : FULL
  pinLoad()
  const bare = await spawned(BARE, 'bare')
  const others =
    settings.url === undefined ? await startAll(settings) : [await addressed(settings.url, settings)]
  const subjects = [bare, ...others]
  try {
    const figures = await measure(subjects, effort, settings)
    return toReport(subjects, figures, effort)
  } finally {
    await Promise.all(subjects.map((subject) => subject.stop()))
  }
}

async function startAll({ progress }: Settings): Promise<readonly Subject[]> {
  if (!existsSync('bench/peers/node_modules')) {
    progress('installing the servers of others')
    const args = ['ci', '--prefix', 'bench/peers', '--no-audit', '--no-fund', '--ignore-scripts']
    execFileSync('npm', args, { stdio: 'ignore' })
  }
  const subjects: Subject[] = []
  for (const [label, name] of OWN) subjects.push(await spawned(label, name))
  return subjects
}

async function spawned(label: string, name: ServerName | SessionServerName | PeerName): Promise<Subject> {
  const start = () => spawnServer(name, 1, { execArgv: ['--expose-gc'] })
  const running: ServerProcess<string>[] = [await start()]
  const first = running[0] as ServerProcess<string>
  return {
    name: label,
    outside: openOutside(first.url),
    async second() {
      running.push(await start())
      return openOutside((running.at(-1) as ServerProcess<string>).url)
    },
    async restart() {
      await Promise.all(running.splice(0).map((server) => server.stop()))
      running.push(await start())
      return openOutside((running[0] as ServerProcess<string>).url)
    },
    heapBytes: async () => (await first.usage()).heapBytes,
    stop: async () => void (await Promise.all(running.map((server) => server.stop()))),
  }
}

async function addressed(url: string, { second, restart, header }: Settings): Promise<Subject> {
  const outside = openOutside(new URL(url), header)
  return {
    name: url,
    outside,
    ...(second === undefined ? {} : { second: async () => openOutside(new URL(second), header) }),
    ...(restart === undefined
      ? {}
      : {
          async restart() {
            execSync(restart, { stdio: 'inherit' })
            await untilItAnswers(outside)
            return outside
          },
        }),
    async stop() {},
  }
}

const RESTART_TRIES = 300

async function untilItAnswers(outside: Outside): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      return await drive(outside.url, 1, (id) => outside.plain(id))
    } catch (error) {
      if (tries === RESTART_TRIES) throw error
      await sleep(200)
    }
  }
}

async function measure(
  subjects: readonly Subject[],
  effort: Effort,
  { progress }: Settings,
): Promise<ReadonlyMap<Subject, Figures>> {
  const figures = new Map<Subject, Figures>()
  for (const subject of subjects) {
    figures.set(subject, { rates: { plain: [], asks: [], answers: [] }, parkedBytes: [] })
  }
  // The first round warms up.
  for (let round = 0; round <= effort.rounds; round++) {
    for (const [subject, found] of figures) {
      if (found.failure !== undefined) continue
      progress(`${subject.name}: ${round === 0 ? 'warming up' : `round ${round} of ${effort.rounds}`}`)
      try {
        await playRound(subject, effort.requests, round === 0 ? undefined : found)
      } catch (error) {
        found.failure = reasonOf(error)
      }
    }
  }
  for (const [subject, found] of figures) {
    if (found.failure !== undefined || subject.name === BARE) continue
    progress(`${subject.name}: tasks, second instance, restart`)
    found.task = await shown(() => timeTasks(subject, effort.tasks))
    found.second = await shown(() => move(subject.outside, subject.second, effort.moved))
    found.restart = await shown(() => move(subject.outside, subject.restart, effort.moved))
  }
  return figures
}

async function playRound({ outside, heapBytes }: Subject, requests: number, found?: Figures): Promise<void> {
  const plain = await rate(outside, requests, (id) => outside.plain(id))
  const parked: Parked[] = []
  const before = await heapBytes?.()
  const asks = await rate(outside, requests, (id) => outside.ask(id, (one) => void parked.push(one)))
  const after = await heapBytes?.()
  const waiting = parked.length
  const answers = await rate(outside, requests, () => outside.answer(parked.pop()))
  if (found === undefined) return
  found.rates.plain.push(plain)
  found.rates.asks.push(asks)
  found.rates.answers.push(answers)
  if (before !== undefined && after !== undefined) found.parkedBytes.push((after - before) / waiting)
}

async function rate(
  { url }: Outside,
  requests: number,
  exchangeAt: Parameters<typeof drive>[2],
): Promise<number> {
  let began = 0
  await drive(url, requests, exchangeAt, async () => {
    began = performance.now()
  })
  return (1_000 * requests) / (performance.now() - began)
}

/** Asks at one place, and answers at another. */
async function move(
  from: Outside,
  open: (() => Promise<Outside>) | undefined,
  count: number,
): Promise<string> {
  if (open === undefined) return 'not tried'
  const parked: Parked[] = []
  // Each connection sends one request before it begins to count.
  const counted = count - CONNECTIONS
  await drive(from.url, counted, (id) => from.ask(id, (one) => void parked.push(one)))
  const to = await open()
  let completed = 0
  let reason = ''
  await drive(to.url, counted, () => {
    const { request, check } = to.answer(parked.pop())
    return {
      request,
      check(response) {
        try {
          check(response)
          completed++
        } catch (error) {
          reason = ` (${reasonOf(error)})`
        }
      },
    }
  })
  return `${completed} of ${count}${reason}`
}

async function timeTasks({ outside }: Subject, count: number): Promise<string> {
  const times: number[] = []
  for (let id = 0; id < count; id++) {
    const ms = await outside.task(id)
    if (ms === undefined) return 'none'
    times.push(ms)
  }
  return `${fixed(median(times))} ms`
}

async function shown(measured: () => Promise<string>): Promise<string> {
  try {
    return await measured()
  } catch (error) {
    return `failed: ${reasonOf(error)}`
  }
}

const MAX_REASON = 40

function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error)
  return text.length > MAX_REASON ? `${text.slice(0, MAX_REASON)}…` : text
}

function toReport(
  subjects: readonly Subject[],
  figures: ReadonlyMap<Subject, Figures>,
  effort: Effort,
): Report {
  const bare = figures.get(subjects[0] as Subject)
  if (bare?.failure !== undefined) throw new Error(`The bare server failed: ${bare.failure}`)
  const rows = subjects.map((subject) => {
    const found = figures.get(subject) as Figures
    if (found.failure !== undefined)
      return [subject.name, `does not take part: ${found.failure}`, '', '', '', '', '', '']
    const ratios = LEGS.map((leg) => `${fixed(medianRatio(found.rates[leg], bare?.rates[leg] ?? []), 2)}×`)
    const bytes = found.parkedBytes.length === 0 ? '–' : `${fixed(Math.max(0, median(found.parkedBytes)))} B`
    const moves = [found.task ?? '–', found.second ?? '–', found.restart ?? '–']
    return [subject.name, ...ratios, bytes, ...moves]
  })
  const table: Table = {
    title: `Servers from outside: requests a second beside the bare server (${effort.rounds} rounds of ${effort.requests})`,
    mark: 'public',
    columns: [
      'server',
      'plain call',
      'asks',
      'answers',
      'memory per parked question',
      'task learnt after',
      'answered at a second instance',
      'answered after a restart',
    ],
    rows,
  }
  return {
    tables: [table],
    data: Object.fromEntries(subjects.map((subject) => [subject.name, figures.get(subject)])),
  }
}
