/** Permits in memory. */

import {
  decidePermit,
  firstWaiting,
  GRACE_MS,
  LOST,
  type PermitGrant,
  type PermitRequest,
  type PermitRow,
  type PermitStore,
  taskOf,
  WAIT_MS,
} from '../permits.ts'
import { isOpen } from '../task-engine.ts'
import type { MemoryTable } from './tasks.ts'

interface Row extends PermitRow {
  readonly grant: string
}

export function createMemoryPermits(table: MemoryTable): { port: PermitStore; sweep(limit: number): number } {
  let rows: Row[] = []
  const counts = ({ until, task, since }: PermitRow): boolean => {
    if (until <= table.now()) return false
    if (task === undefined) return true
    if (!table.has(task)) return since > table.now() - GRACE_MS
    const row = table.live(task)
    return row !== undefined && isOpen(row.status)
  }
  const ofTags = (tags: readonly string[]) => rows.filter((row) => tags.includes(row.tag) && counts(row))
  const acquire = (request: PermitRequest): PermitGrant => {
    const { holder, tags, holdMs, queues, turn } = request
    const epoch = table.live(request.task ?? '')?.epoch
    if (turn !== undefined && epoch !== undefined && epoch !== turn) return LOST
    const decision = decidePermit(ofTags(tags), request, table.now())
    const held = decision.kind === 'hold'
    if (!held && !queues) return decision.busy
    const until = table.now() + (held ? holdMs : WAIT_MS)
    const grant = held ? decision.grant : ''
    const task = taskOf(request, held)
    rows = rows.filter((row) => row.holder !== holder)
    for (const tag of tags) rows.push({ tag, holder, held, since: decision.since, until, task, grant })
    return held ? { kind: 'held', grant } : decision.busy
  }
  const port: PermitStore = {
    acquire: async (request) => acquire(request),
    async renew(holder, grant, holdMs, task) {
      const mine = rows.filter((row) => row.holder === holder && row.held && row.grant === grant)
      if (mine.length === 0 || !mine.every(counts)) return false
      const until = table.now() + holdMs
      rows = rows.map((row) => (mine.includes(row) ? { ...row, until, task: task ?? row.task } : row))
      return true
    },
    async release(holder, grant) {
      const mine = rows.filter((row) => row.holder === holder && (grant === undefined || row.grant === grant))
      rows = rows.filter((row) => !mine.includes(row))
      const first = firstWaiting(ofTags(mine.map(({ tag }) => tag)))
      const task = first === undefined ? undefined : table.live(first)
      if (task && isOpen(task.status) && task.worker === undefined) table.rest(task, table.now())
    },
  }
  return {
    port,
    sweep(limit) {
      const gone = rows.filter((row) => !counts(row)).slice(0, limit)
      rows = rows.filter((row) => !gone.includes(row))
      return gone.length
    },
  }
}
