/** What operators see of tasks, in SQL: nothing sealed. */

import { decodeSlots, openInputs } from '../input-slots.ts'
import type { TaskStatus } from '../task-engine.ts'
import type { OperatorTasks, TaskSummary } from '../task-store.ts'
import type { PgRow } from './postgres-pool.ts'
import { nowAt, type PostgresSession } from './postgres-session.ts'

export function createOperatorTasks({ query, now, schema }: PostgresSession): OperatorTasks {
  const task = `${schema}.task`
  // Counted on indexes. What is open and not parked has a time at which it is due.
  const stats = `WITH c AS (SELECT ${nowAt('$1')} AS now)
    SELECT c.now, count(*) FILTER (WHERE due_at <= c.now) AS due, min(due_at) AS oldest,
      count(*) FILTER (WHERE due_at > c.now AND worker IS NOT NULL) AS running,
      (SELECT count(*) FROM ${task} o WHERE o.status IN ('working', 'input_required') AND o.expires_at > c.now)
        - count(due_at) AS parked
    FROM c LEFT JOIN ${task} ON due_at IS NOT NULL AND expires_at > c.now GROUP BY c.now`
  const list = (
    owned: string,
  ) => `SELECT id, tenant, principal, status, created_at, updated_at, expires_at, failures, worker, due_at,
      CASE status WHEN 'input_required' THEN inputs END AS inputs,
      (SELECT count(*) FROM ${schema}.journal WHERE task = id) AS entries
    FROM ${task} WHERE ${owned} expires_at > ${nowAt('$1')} AND ($2::text IS NULL OR id = $2)
      AND ($3::text IS NULL OR status = $3) AND ($4::bigint IS NULL OR (created_at, id) < ($4, $5::text))
    ORDER BY created_at DESC, id DESC LIMIT $6`
  const listAll = list('')
  const listOwned = list('tenant = $7 AND principal = $8 AND')
  return {
    async stats() {
      const [row] = await query(stats, [now()])
      const due = Number(row?.due)
      const oldestDueMs = due > 0 ? Number(row?.now) - Number(row?.oldest) : 0
      return { due, oldestDueMs, running: Number(row?.running), parked: Number(row?.parked) }
    },
    async list({ id = null, status = null, owner, after, limit = 100 }) {
      const given = [now(), id, status, after?.createdAt ?? null, after?.id ?? null, limit]
      const rows = await (owner
        ? query(listOwned, [...given, owner.tenant, owner.principal])
        : query(listAll, given))
      return rows.map(toSummary)
    },
  }
}

function toSummary(row: PgRow): TaskSummary {
  return {
    id: row.id as string,
    owner: { tenant: row.tenant as string, principal: row.principal as string },
    status: row.status as TaskStatus,
    createdAt: Number(row.created_at),
    updatedAt: Number(row.updated_at),
    expiresAt: Number(row.expires_at),
    failures: row.failures as number,
    worker: (row.worker ?? undefined) as string | undefined,
    dueAt: row.due_at === null ? undefined : Number(row.due_at),
    openKeys: [...openInputs(decodeSlots(row.inputs as string | null)).keys()],
    entries: Number(row.entries),
  }
}
