/** The cost of tasks that wait for an answer: memory of the process that parked them, and space in the database. */

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Table } from '../bench.ts'
import { messageOf } from '../message-of.ts'
import { fixed } from '../stat.ts'
import type { Databases } from './database.ts'
import type { ParkedCost } from './parked-child.ts'

const CHILD = fileURLToPath(new URL('./parked-child.js', import.meta.url))

export interface ParkedFigures extends ParkedCost {
  readonly database: string
}

export async function measureParked(databases: Databases, count: number): Promise<ParkedFigures> {
  const args = [JSON.stringify(databases.create()), String(count)]
  const child = fork(CHILD, args, { execArgv: ['--expose-gc'] })
  const cost = await messageOf<ParkedCost>(child, 'parked')
  await once(child, 'exit')
  return { database: databases.name, ...cost }
}

export function parkedTable(figures: readonly ParkedFigures[]): Table {
  const megabytes = (bytes: number): string => fixed(bytes / 1e6, 1)
  return {
    title:
      'Parked tasks: memory of the process before and after they were parked, MB, and bytes of a task in the database',
    mark: 'tasks-parked',
    columns: ['database', 'tasks', 'resident before', 'after', 'heap before', 'after', 'bytes of a task'],
    rows: figures.map(({ database, count, rssBefore, rssAfter, heapBefore, heapAfter, rowBytes }) => [
      database,
      String(count),
      megabytes(rssBefore),
      megabytes(rssAfter),
      megabytes(heapBefore),
      megabytes(heapAfter),
      fixed(rowBytes),
    ]),
  }
}
