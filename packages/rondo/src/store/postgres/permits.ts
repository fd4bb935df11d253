/**
 * Permits in PostgreSQL. Who acquires or releases locks the tags first, in their order, so that two cannot wait for each other.
 *
 * A renewal locks only its rows. Who acquires deletes the rows whose time is up before it counts the others: the row decides
 * which of a renewal and a deletion comes first, and the later one finds out.
 */

import {
  decidePermit,
  firstWaiting,
  GRACE_MS,
  LOST,
  type PermitGrant,
  type PermitRow,
  type PermitStore,
  taskOf,
  WAIT_MS,
} from '../permits.ts'
import { patiently, type RunInTransaction } from './approvals.ts'
import { nowAt, type PostgresDatabase } from './database.ts'

export const permitTables = (schema: string): string => `
CREATE TABLE ${schema}.permit (
  tag text NOT NULL,
  holder text NOT NULL,
  held boolean NOT NULL,
  grant_id text NOT NULL,
  since bigint NOT NULL,
  until bigint NOT NULL,
  task text,
  PRIMARY KEY (tag, holder)
) WITH (autovacuum_vacuum_scale_factor = 0.02)`

/** Each index by its name: the table, and the rest of its definition. */
export const PERMIT_INDEXES: Readonly<Record<string, readonly [table: string, definition: string]>> = {
  permit_holder: ['permit', '(holder)'],
  permit_task: ['permit', '(task) WHERE task IS NOT NULL'],
  permit_expiry: ['permit', '(until)'],
}

/** Holds for the permit `p` of a task that is open, or not yet created; `at` is the time. */
const isOpen = (schema: string, at: string): string =>
  `coalesce((SELECT t.status IN ('working', 'input_required') AND t.expires_at > ${at} FROM ${schema}.task t
    WHERE t.id = p.task), p.since > ${at} - ${GRACE_MS})`

export function createPermits(database: PostgresDatabase): PermitStore {
  const { schema, query, now, publish } = database
  const permit = `${schema}.permit`
  const at = nowAt('$1')
  const counts = `p.until > ${at} AND (p.task IS NULL OR ${isOpen(schema, at)})`
  // The locks come first: a statement sees what was committed before it began.
  const lock = `SELECT pg_advisory_xact_lock(hashtextextended('${schema} permit ' || tag, 0))
    FROM (SELECT DISTINCT tag FROM unnest($1::text[]) AS tag ORDER BY tag) tags`
  const purge = `WITH over AS (SELECT p.tag, p.holder FROM ${permit} p WHERE p.tag = ANY ($2::text[]) AND NOT (${counts})
      ORDER BY p.tag, p.holder FOR UPDATE)
    DELETE FROM ${permit} p USING over WHERE p.tag = over.tag AND p.holder = over.holder`
  const ofTags = `SELECT p.* FROM ${permit} p WHERE p.tag = ANY ($1::text[])`
  const isLater = `SELECT 1 FROM ${schema}.task WHERE id = $1 AND epoch <> $2::integer`
  const leave = `DELETE FROM ${permit} WHERE holder = $1`
  const enter = `INSERT INTO ${permit} (tag, holder, held, grant_id, since, until, task)
    SELECT DISTINCT tag, $2, $3::boolean, $4, $5::bigint, $6::bigint, $7 FROM unnest($1::text[]) AS tag`
  const extend = `WITH mine AS (SELECT p.tag, p.holder FROM ${permit} p
      WHERE p.holder = $4 AND p.grant_id = $5 AND p.held AND ${counts} ORDER BY p.tag, p.holder FOR UPDATE)
    UPDATE ${permit} p SET until = ${at} + $2::bigint, task = coalesce($3::text, p.task)
    FROM mine WHERE p.tag = mine.tag AND p.holder = mine.holder RETURNING 1`
  const wake = `UPDATE ${schema}.task SET due_at = least(coalesce(due_at, ${at}), ${at})
    WHERE id = $2 AND worker IS NULL AND status IN ('working', 'input_required') AND expires_at > ${at} RETURNING 1`
  const time = `SELECT ${at} AS now`

  const find = async (run: RunInTransaction, tags: readonly string[]) => {
    await run(purge, [now(), tags])
    return (await run(ofTags, [tags])).map(toRow)
  }
  return {
    acquire: (request) =>
      patiently(database, async (run): Promise<PermitGrant> => {
        const { holder, tags, holdMs, queues, task, turn } = request
        await run(lock, [tags])
        if ((await run(isLater, [task ?? null, turn ?? null])).length > 0) return LOST
        const [clock] = await run(time, [now()])
        const current = Number(clock?.now)
        const decision = decidePermit(await find(run, tags), request, current)
        const held = decision.kind === 'hold'
        if (!held && !queues) return decision.busy
        const until = current + (held ? holdMs : WAIT_MS)
        const grant = held ? decision.grant : ''
        await run(leave, [holder])
        await run(enter, [tags, holder, held, grant, decision.since, until, taskOf(request, held) ?? null])
        return held ? { kind: 'held', grant } : decision.busy
      }),
    async renew(holder, grant, holdMs, task) {
      return (await query(extend, [now(), holdMs, task ?? null, holder, grant])).length > 0
    },
    async release(holder, grant) {
      const woken = await patiently(database, async (run) => {
        const found = await run(`SELECT tag FROM ${permit} WHERE holder = $1 ORDER BY tag`, [holder])
        const tags = found.map(({ tag }) => String(tag))
        await run(lock, [tags])
        const gone = await run(`${leave} AND ($2::text IS NULL OR grant_id = $2) RETURNING 1`, [
          holder,
          grant ?? null,
        ])
        if (gone.length === 0) return false
        const first = firstWaiting(await find(run, tags))
        return first !== undefined && (await run(wake, [now(), first])).length > 0
      })
      if (woken) publish({ kind: 'due' })
    },
  }
}

/** Deletes permits whose time is up or whose task has ended; returns how many. */
export async function sweepPermits({ query, now, schema }: PostgresDatabase, limit: number): Promise<number> {
  const remove = (
    where: string,
  ) => `DELETE FROM ${schema}.permit WHERE (tag, holder) IN (SELECT p.tag, p.holder
    FROM ${schema}.permit p WHERE ${where} LIMIT $2 FOR UPDATE OF p SKIP LOCKED) RETURNING 1`
  const at = nowAt('$1')
  const expired = await query(remove(`p.until <= ${at}`), [now(), limit])
  const ended = await query(remove(`p.task IS NOT NULL AND NOT ${isOpen(schema, at)}`), [now(), limit])
  return expired.length + ended.length
}

function toRow(row: Readonly<Record<string, unknown>>): PermitRow {
  return {
    tag: String(row.tag),
    holder: String(row.holder),
    held: row.held === true,
    since: Number(row.since),
    until: Number(row.until),
    task: (row.task ?? undefined) as string | undefined,
  }
}
