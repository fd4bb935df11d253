/** Permits in SQLite. A write transaction is exclusive, so a request is decided without a lock of its own. */

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
import type { SqliteDatabase, SqlRow } from './database.ts'

export const PERMIT_TABLES = `
CREATE TABLE permit (
  tag TEXT NOT NULL,
  holder TEXT NOT NULL,
  held INTEGER NOT NULL,
  grant_id TEXT NOT NULL,
  since INTEGER NOT NULL,
  until INTEGER NOT NULL,
  task TEXT,
  PRIMARY KEY (tag, holder)
) STRICT, WITHOUT ROWID
`

export const PERMIT_INDEXES: readonly string[] = [
  'CREATE INDEX permit_holder ON permit (holder)',
  'CREATE INDEX permit_task ON permit (task) WHERE task IS NOT NULL',
  'CREATE INDEX permit_expiry ON permit (until)',
]

/** Holds for the permit `p` of a task that is open, or not yet created; the parameter is the time. */
const OPEN = `coalesce((SELECT t.status IN ('working', 'input_required') AND t.expires_at > ?1 FROM task t WHERE t.id = p.task),
  p.since > ?1 - ${GRACE_MS})`
const COUNTS = `p.until > ?1 AND (p.task IS NULL OR ${OPEN})`

export function createPermits({ sql, queue, now, publish }: SqliteDatabase): PermitStore {
  const ofTags = sql(
    `SELECT p.* FROM permit p WHERE ${COUNTS} AND p.tag IN (SELECT value FROM json_each(?2))`,
  )
  const isLater = sql('SELECT 1 FROM task WHERE id = ? AND epoch <> ?')
  const ofHolder = sql('SELECT tag, grant_id FROM permit WHERE holder = ?')
  const leave = sql('DELETE FROM permit WHERE holder = ?')
  const enter = sql(`INSERT INTO permit (tag, holder, held, grant_id, since, until, task)
    VALUES (?, ?, ?, ?, ?, ?, ?)`)
  const extend = sql(`UPDATE permit AS p SET until = ?1 + ?2, task = coalesce(?3, task)
    WHERE p.holder = ?4 AND p.grant_id = ?5 AND p.held = 1 AND ${COUNTS}`)
  const wake = sql(`UPDATE task SET due_at = min(coalesce(due_at, ?1), ?1)
    WHERE id = ?2 AND worker IS NULL AND status IN ('working', 'input_required') AND expires_at > ?1`)
  const find = (tags: readonly string[]) => ofTags.all(now(), JSON.stringify(tags)).map(toRow)

  const acquire = (request: PermitRequest): PermitGrant => {
    const { holder, tags, holdMs, queues, turn } = request
    if (isLater.get(request.task ?? null, turn ?? null)) return LOST
    const decision = decidePermit(find(tags), request, now())
    const held = decision.kind === 'hold'
    if (!held && !queues) return decision.busy
    const until = now() + (held ? holdMs : WAIT_MS)
    const grant = held ? decision.grant : ''
    const task = taskOf(request, held) ?? null
    leave.run(holder)
    for (const tag of tags) enter.run(tag, holder, held ? 1 : 0, grant, decision.since, until, task)
    return held ? { kind: 'held', grant } : decision.busy
  }
  const release = (holder: string, grant: string | undefined): boolean => {
    const mine = ofHolder.all(holder)
    if (mine.length === 0 || (grant !== undefined && mine.some((row) => row.grant_id !== grant))) return false
    leave.run(holder)
    const first = firstWaiting(find(mine.map((row) => String(row.tag))))
    return first !== undefined && wake.run(now(), first) === 1
  }
  return {
    acquire: (request) => queue.write(() => acquire(request)),
    renew: (holder, grant, holdMs, task) =>
      queue.write(() => extend.run(now(), holdMs, task ?? null, holder, grant) > 0),
    async release(holder, grant) {
      if (await queue.write(() => release(holder, grant))) publish({ kind: 'due' })
    },
  }
}

/** Deletes permits whose time is up or whose task has ended; returns how many. */
export function createPermitSweep({ sql, now }: SqliteDatabase): (limit: number) => number {
  const remove = sql(`DELETE FROM permit WHERE (tag, holder) IN
    (SELECT tag, holder FROM permit p WHERE p.until <= ?1 LIMIT ?2)`)
  const removeEnded = sql(`DELETE FROM permit WHERE (tag, holder) IN
    (SELECT p.tag, p.holder FROM permit p WHERE p.task IS NOT NULL AND NOT ${OPEN} LIMIT ?2)`)
  return (limit) => remove.run(now(), limit) + removeEnded.run(now(), limit)
}

function toRow(row: SqlRow): PermitRow {
  return {
    tag: String(row.tag),
    holder: String(row.holder),
    held: row.held === 1,
    since: Number(row.since),
    until: Number(row.until),
    task: (row.task ?? undefined) as string | undefined,
  }
}
