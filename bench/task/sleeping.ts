/** Tasks that wait for a time: memory of the process that parked them, and how late they wake. */

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Table } from '../bench.ts'
import { messageOf } from '../message-of.ts'
import { fixed, percentile } from '../stat.ts'
import type { Databases } from './database.ts'
import type { SleepCost, Woken } from './sleeping-child.ts'

const CHILD = fileURLToPath(new URL('./sleeping-child.js', import.meta.url))

export interface SleepFigures extends SleepCost {
  readonly database: string
}

/** The number of sleeping tasks, the seconds for which others wake at 1,000 a second, and the number that wake at one moment. */
export interface SleepEffort {
  readonly parked: number
  readonly seconds: number
  readonly herd: number
}

export async function measureSleeping(
  databases: Databases,
  { parked, seconds, herd }: SleepEffort,
): Promise<SleepFigures> {
  const args = [JSON.stringify(databases.create()), ...[parked, seconds, herd].map(String)]
  const child = fork(CHILD, args, { execArgv: ['--expose-gc'] })
  const cost = await messageOf<SleepCost>(child, 'slept')
  await once(child, 'exit')
  return { database: databases.name, ...cost }
}

const megabytes = (bytes: number): string => fixed(bytes / 1e6, 1)

export function sleepingTables(figures: readonly SleepFigures[]): Table[] {
  return [
    {
      title: 'Sleeping tasks: memory of the process before and after they were parked, MB',
      mark: 'sleeping-memory',
      columns: ['database', 'sleeping tasks', 'heap before, MB', 'after', 'resident before, MB', 'after'],
      rows: figures.map(({ database, count, rssBefore, rssAfter, heapBefore, heapAfter }) => [
        database,
        String(count),
        ...[heapBefore, heapAfter, rssBefore, rssAfter].map(megabytes),
      ]),
    },
    {
      title:
        'Wake-ups beside them: how late the tasks run, ms, and whether the worker keeps up with the rate',
      mark: 'sleeping-late',
      columns: ['database', 'due a second', 'tasks', 'median late, ms', 'p99', 'latest', 'worker'],
      rows: figures.flatMap(({ database, woken }) =>
        [...woken].sort((a, b) => a.rate - b.rate).map(toRow(database)),
      ),
    },
    {
      title: 'Tasks that are all due at one moment',
      mark: 'sleeping-herd',
      columns: ['database', 'due at once', 'all ended, s', 'ended a second', 'largest heap, MB'],
      rows: figures.map(({ database, herd, herdMs, herdHeap }) => [
        database,
        String(herd),
        fixed(herdMs / 1000, 1),
        fixed((herd / herdMs) * 1000),
        megabytes(herdHeap),
      ]),
    },
  ]
}

function toRow(database: string): (woken: Woken) => string[] {
  return ({ rate, late, keptUp }) => {
    const sorted = [...late].sort((a, b) => a - b)
    const times = [0.5, 0.99, 1].map((share) => fixed(percentile(sorted, share)))
    return [database, String(rate), String(late.length), ...times, keptUp ? 'keeps up' : 'saturated']
  }
}
