/**
 * SQLite, PostgreSQL and Restate beside each other: tasks a second, how long a lone task takes, and how long a task waits
 * after the process that ran it was killed. All on the same Node, one process each, with the engine's own settings.
 *
 * The engines take turns, round by round. Commits are durable everywhere; Restate runs as one node.
 */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { startBalancer } from '../test/support/restate/balancer.ts'
import { freePort } from '../test/support/restate/site.ts'
import type { RunBench, Settings, Table } from './bench.ts'
import { messageOf } from './message-of.ts'
import { fixed, median } from './stat.ts'
import {
  type Databases,
  findNewNode,
  openPostgresServer,
  openRestateServer,
  openSqliteFiles,
} from './task/database.ts'
import type { FromWaiter } from './task/recovery-child.ts'
import { type Crew, spawnCrew } from './task/spawn-crew.ts'
import type { EngineAddress, Lone, Work } from './task/subject.ts'

const WORKS: readonly Work[] = ['complete', 'resume', 'get']
const LONE: readonly Lone[] = ['complete', 'resume']

interface Effort {
  readonly rounds: number
  readonly ms: number
  readonly lone: number
  readonly kills: number
}

const FULL: Effort = { rounds: 5, ms: 2_000, lone: 30, kills: 3 }
const QUICK: Effort = { rounds: 2, ms: 2_000, lone: 10, kills: 1 }

interface Figures {
  readonly name: string
  readonly rates: Record<Work, number[]>
  readonly times: Record<Lone, number[]>
  /** Ms from the kill of a worker to the beginning of the next turn elsewhere. */
  readonly recovery: number[]
}

export const run: RunBench = async (settings) => {
  const effort = settings.quick ? QUICK : FULL
  const node = findNewNode()
  const opened = await Promise.all([openSqliteFiles(), openPostgresServer(), openRestateServer()])
  const databases = opened.filter((one) => one !== undefined)
  try {
    const figures = await measure(databases, effort, settings, node)
    for (const [i, each] of databases.entries()) {
      for (let kill = 0; kill < effort.kills; kill++) {
        settings.progress(`${each.name}: kill ${kill + 1} of ${effort.kills}`)
        figures[i]?.recovery.push(await measureRecovery(each.create(), node))
      }
    }
    return { tables: [toTable(figures)], data: { effort, node, figures } }
  } finally {
    await Promise.all(databases.map((each) => each.close()))
  }
}

async function measure(
  databases: readonly Databases<EngineAddress>[],
  { rounds, ms, lone }: Effort,
  { progress }: Settings,
  node: string,
): Promise<Figures[]> {
  const crews: Crew[] = []
  const figures = databases.map(
    ({ name }): Figures => ({
      name,
      rates: { complete: [], resume: [], get: [] },
      times: { complete: [], resume: [] },
      recovery: [],
    }),
  )
  try {
    for (const each of databases) {
      progress(`${each.name}: starting`)
      crews.push(await spawnCrew('rondo', each.create(), 1, '', node))
    }
    for (const crew of crews) for (const work of WORKS) await crew.rate(work, ms)
    for (let round = 0; round < rounds; round++) {
      for (const [i, crew] of crews.entries()) {
        progress(`${figures[i]?.name}: round ${round + 1} of ${rounds}`)
        for (const work of WORKS) figures[i]?.rates[work].push(await crew.rate(work, ms))
        for (const work of LONE) figures[i]?.times[work].push(...(await crew.lone(work, lone)))
      }
    }
  } finally {
    await Promise.all(crews.map((crew) => crew.stop()))
  }
  return figures
}

const WAITER = fileURLToPath(new URL('./task/recovery-child.js', import.meta.url))

/** Kills a worker in the middle of a turn while another is there, and waits until that one begins the turn. */
async function measureRecovery(address: EngineAddress, node: string): Promise<number> {
  const balancer = address.kind === 'restate' ? await startBalancer() : undefined
  const start = async (hangs: boolean): Promise<ChildProcess> => {
    const port = await freePort()
    balancer?.add(port)
    const own = address.kind === 'restate' ? { ...address, port, url: balancer?.url } : address
    const child = fork(WAITER, [JSON.stringify(own), String(hangs)], { execPath: node })
    await messageOf<FromWaiter>(child, 'ready')
    return child
  }
  const children: ChildProcess[] = []
  try {
    const first = await start(true)
    children.push(first)
    const began = messageOf<FromWaiter>(first, 'began')
    first.send('create')
    await began
    const second = await start(false)
    children.push(second)
    const resumed = messageOf<FromWaiter>(second, 'began')
    const killedAt = performance.now()
    first.kill('SIGKILL')
    await resumed
    return performance.now() - killedAt
  } finally {
    for (const child of children) {
      const ended = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : undefined
      child.kill('SIGKILL')
      await ended
    }
    await balancer?.close()
  }
}

function toTable(figures: readonly Figures[]): Table {
  const row = (title: string, of: (one: Figures) => readonly number[], digits = 0) => [
    title,
    ...figures.map((one) => fixed(median(of(one)), digits)),
  ]
  return {
    title: 'SQLite, PostgreSQL and Restate, one process, medians',
    mark: 'engines',
    columns: ['', ...figures.map(({ name }) => name)],
    rows: [
      row('create, complete: tasks a second', ({ rates }) => rates.complete),
      row('create, park, answer, complete: tasks a second', ({ rates }) => rates.resume),
      row('get: reads a second', ({ rates }) => rates.get),
      row('a lone task, created and completed: ms', ({ times }) => times.complete, 1),
      row('a lone task that parks and is answered: ms', ({ times }) => times.resume, 1),
      row('kill -9 of a worker until another has its task: ms', ({ recovery }) => recovery),
    ],
  }
}
