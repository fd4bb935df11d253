/** What operators see of tasks, in SQL: nothing sealed. */

import { decodeSlots, openInputs } from '../input-slots.ts'
import type { TaskStatus } from '../task-engine.ts'
import type { OperatorTasks, TaskSummary } from '../task-store.ts'
import type { SqlRow } from './sqlite-driver.ts'
import type { SqliteSession } from './sqlite-session.ts'

export function createOperatorTasks({ sql, queue, now }: SqliteSession): OperatorTasks {
  // Each part is counted on an index that holds nothing else: a look at all rows would hold up the event loop. What is
  // open and not parked has a time at which it is due.
  const stats = sql(`SELECT count(*) FILTER (WHERE due_at <= ?) AS due, min(due_at) AS oldest,
    count(*) FILTER (WHERE due_at > ? AND worker IS NOT NULL) AS running,
    (SELECT count(*) FROM task INDEXED BY task_open
      WHERE status IN ('working', 'input_required') AND expires_at > ?) - count(*) AS parked
    FROM task INDEXED BY task_due WHERE due_at IS NOT NULL AND expires_at > ?`)
  const listing = (owned: string) =>
    sql(`SELECT id, tenant, principal, status, created_at, updated_at, expires_at, failures, worker, due_at,
    CASE status WHEN 'input_required' THEN inputs END AS inputs,
    (SELECT count(*) FROM journal WHERE task = id) AS entries
    FROM task WHERE ${owned} expires_at > ? AND id = coalesce(?, id) AND status = coalesce(?, status)
    AND (created_at, id) < (?, ?) ORDER BY created_at DESC, id DESC LIMIT ?`)
  const list = listing('')
  const listOwned = listing('tenant = ? AND principal = ? AND')
  return {
    async stats() {
      const at = now()
      const row = (await queue.read(() => stats.get(at, at, at, at))) ?? {}
      const due = Number(row.due)
      const oldestDueMs = due > 0 ? at - Number(row.oldest) : 0
      return { due, oldestDueMs, running: Number(row.running), parked: Number(row.parked) }
    },
    async list({ id = null, status = null, owner, after, limit = 100 }) {
      const [createdAt, afterId] = [after?.createdAt ?? Number.MAX_SAFE_INTEGER, after?.id ?? '']
      const rows = await queue.read(() => {
        const rest = [now(), id, status, createdAt, afterId, limit]
        return owner ? listOwned.all(owner.tenant, owner.principal, ...rest) : list.all(...rest)
      })
      return rows.map(toSummary)
    },
  }
}

function toSummary(row: SqlRow): TaskSummary {
  return {
    id: row.id as string,
    owner: { tenant: row.tenant as string, principal: row.principal as string },
    status: row.status as TaskStatus,
    createdAt: row.created_at as number,
    updatedAt: row.updated_at as number,
    expiresAt: row.expires_at as number,
    failures: row.failures as number,
    worker: (row.worker as string | null)?.split(' ')[1],
    dueAt: (row.due_at ?? undefined) as number | undefined,
    openKeys: [...openInputs(decodeSlots(row.inputs as string | null)).keys()],
    entries: row.entries as number,
  }
}
