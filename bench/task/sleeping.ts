/** Tasks that wait for a time: memory of the process that parked them, and how late they wake. */

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Table } from '../bench.ts'
import { messageOf } from '../message-of.ts'
import { fixed } from '../stat.ts'
import type { Databases } from './database.ts'
import type { SleepCost } from './sleeping-child.ts'

const CHILD = fileURLToPath(new URL('./sleeping-child.js', import.meta.url))

export interface SleepFigures extends SleepCost {
  readonly database: string
}

/** How many sleep, how many wake one per millisecond, and how many at one moment. */
export interface SleepEffort {
  readonly parked: number
  readonly due: number
  readonly herd: number
}

export async function measureSleeping(
  databases: Databases,
  { parked, due, herd }: SleepEffort,
): Promise<SleepFigures> {
  const args = [JSON.stringify(databases.create()), ...[parked, due, herd].map(String)]
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
      columns: ['database', 'tasks', 'resident before', 'after', 'heap before', 'after'],
      rows: figures.map(({ database, count, rssBefore, rssAfter, heapBefore, heapAfter }) => [
        database,
        String(count),
        ...[rssBefore, rssAfter, heapBefore, heapAfter].map(megabytes),
      ]),
    },
    {
      title: 'Wake-ups beside them: how late the tasks run, ms; and tasks that are all due at one moment',
      columns: [
        'database',
        'due /s',
        'median',
        'p99',
        'latest',
        'due at once',
        'all ended, s',
        'largest heap, MB',
      ],
      rows: figures.map(({ database, dueRate, lateMedian, lateP99, lateMax, herd, herdMs, herdHeap }) => [
        database,
        String(dueRate),
        ...[lateMedian, lateP99, lateMax].map((ms) => fixed(ms)),
        String(herd),
        fixed(herdMs / 1000, 1),
        megabytes(herdHeap),
      ]),
    },
  ]
}
