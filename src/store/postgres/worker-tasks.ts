/**
 * The worker's side of tasks, in SQL, and the operator's. Every write of a worker carries `FENCE`.
 *
 * An append locks the row of its task, so that nobody can claim the task between the check of the fence and the commit.
 * Journals are read by a statement of their own after the claim has committed: a statement that began earlier could miss
 * an entry that the former worker had just written.
 */

import { RondoError } from '../../errors.ts'
import { decodeSlots, encodeSlots, type InputSlot, mergeSlots, waitingStatus } from '../input-slots.ts'
import {
  endingColumns,
  groupJournals,
  LEASE_COLUMNS,
  SUMMARY_COLUMNS,
  toLease,
  toSummary,
} from '../task-rows.ts'
import type { Fence, OperatorTasks, WorkerTasks } from '../task-store.ts'
import { nowAt, type PostgresDatabase } from './database.ts'
import type { PgRow } from './driver.ts'

/** Parameters: id, epoch, now. The only thing that keeps a worker which lost its lease away from the journal. */
export const FENCE: string = `id = $1 AND epoch = $2 AND worker IS NOT NULL AND expires_at > ${nowAt('$3')}`

/** Each lost race means that an answer or a message was stored. */
const MAX_RACES = 1000

export function createWorkerTasks(database: PostgresDatabase): WorkerTasks {
  const { query, execute, now, publish } = database
  const sql = createQueries(database.schema)
  const guard = ({ id, epoch }: Fence): unknown[] => [id, epoch, now()]
  const arrays = (fences: readonly Fence[]) => [
    fences.map(({ id }) => id),
    fences.map(({ epoch }) => epoch),
    now(),
  ]
  const toSet = (rows: readonly PgRow[]) => new Set(rows.map((row) => row.id as string))

  /** Executes a fenced write. If it was retried, its first attempt may have succeeded. */
  const write = async (text: string, fence: Fence, values: unknown[], status: string): Promise<boolean> => {
    const { rows, retried } = await execute(text, [...guard(fence), ...values])
    if (rows.length > 0) return true
    if (!retried) return false
    const [row] = await query(sql.reached, [fence.id, fence.epoch, status])
    return row !== undefined
  }
  const announce = async (fence: Fence, written: Promise<boolean>) => {
    const done = await written
    if (done) publish({ kind: 'changed', id: fence.id })
    return done
  }
  const append = async (fence: Fence, from: number, entries: readonly string[]): Promise<boolean> => {
    try {
      return (await query(sql.append, [...guard(fence), from, entries])).length > 0
    } catch (error) {
      if (!isDuplicate(error)) throw error
      const rows = await query(sql.read, [fence.id, from, from + entries.length])
      if (rows.length === entries.length && rows.every(({ entry }, i) => entry === entries[i])) return true
      throw new RondoError(
        'STORE_UNAVAILABLE',
        `entry ${from} of this journal already exists with other content`,
        {
          cause: error,
        },
      )
    }
  }
  /** Writes slots over those that were read, again if answers arrived in between. If a write was retried, it may have succeeded. */
  const writeSlots = async (
    text: string,
    fence: Fence,
    given: readonly InputSlot[],
    toValues: (news: boolean) => readonly unknown[] = () => [],
  ) => {
    for (let race = 0; race < MAX_RACES; race++) {
      const [row] = await query(sql.inputs, guard(fence))
      if (row === undefined) return undefined
      const merged = mergeSlots(decodeSlots(row.inputs as string | null), given)
      const inputs = encodeSlots(merged.slots)
      const values = [row.revision, inputs, waitingStatus(merged.slots), ...toValues(merged.news)]
      const { rows, retried } = await execute(text, [...guard(fence), ...values])
      if (rows.length > 0) return merged
      if (!retried) continue
      const [written] = await query(sql.reachedSlots, [fence.id, fence.epoch, row.revision, inputs])
      if (written !== undefined) return merged
    }
    throw new RondoError(
      'STORE_UNAVAILABLE',
      'the task kept changing while its slots were being written; retry',
    )
  }
  return {
    async claim(worker, leaseMs, count) {
      const rows = await query(sql.claim, [worker, leaseMs, count, now()])
      const old = rows.filter((row) => (row.epoch as number) > 1).map((row) => row.id)
      const journals = groupJournals(old.length > 0 ? await query(sql.journals, [old]) : [])
      return rows.map((row) => toLease(row, journals.get(row.id) ?? []))
    },
    renew: async (fences, leaseMs) => toSet(await query(sql.renew, [...arrays(fences), leaseMs])),
    held: async (fences) => toSet(await query(sql.held, arrays(fences))),
    append,
    status: (fence, message) => announce(fence, write(sql.status, fence, [message], 'working')),
    async publish(fence, given) {
      const merged = await writeSlots(sql.publish, fence, given)
      if (merged) publish({ kind: 'changed', id: fence.id })
      return merged?.slots
    },
    async park(fence, given, wakeAt) {
      const merged = await writeSlots(sql.park, fence, given, (news) => [news, wakeAt ?? null])
      if (!merged) return false
      publish({ kind: 'changed', id: fence.id })
      if (merged.news) publish({ kind: 'due' })
      return true
    },
    settle(fence, ending) {
      const [status, outcome] = endingColumns(ending)
      return announce(fence, write(sql.settle, fence, [status, outcome], status))
    },
    async hold(fence) {
      const done = (await query(sql.hold, guard(fence))).length > 0
      // The task may have become known while the turn ran.
      if (done) publish({ kind: 'due' })
      return done
    },
    async nextDueMs(withinMs) {
      const [row] = await query(sql.nextDue, [now(), withinMs])
      return row?.next === null || row === undefined ? undefined : Number(row.next)
    },
    async release(fence, delayMs, failed) {
      const done = (await query(sql.release, [...guard(fence), delayMs, failed ? 1 : 0])).length > 0
      if (done) publish({ kind: 'due' })
      return done
    },
  }
}

function createQueries(schema: string) {
  const task = `${schema}.task`
  const journal = `${schema}.journal`
  const fences = `unnest($1::text[], $2::integer[]) AS f (id, epoch) JOIN ${task} t USING (id, epoch)
    WHERE t.worker IS NOT NULL AND t.expires_at > ${nowAt('$3')}`
  const shown = `updated_at = ${nowAt('$3')}, revision = revision + 1`
  return {
    // A row that still names a worker was never released: that worker died or hangs.
    claim: `UPDATE ${task} t SET failures = failures + (worker IS NOT NULL)::integer, worker = $1,
      due_at = ${nowAt('$4')} + $2::bigint, epoch = epoch + 1
      FROM (SELECT id AS due, worker AS former FROM ${task} WHERE due_at <= ${nowAt('$4')} AND expires_at > ${nowAt('$4')}
        ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED) found
      WHERE t.id = due
      RETURNING ${LEASE_COLUMNS}, former IS NOT NULL AS taken_over, ${nowAt('$4')} AS now`,
    nextDue: `SELECT min(due_at) - ${nowAt('$1')} AS next FROM ${task}
      WHERE due_at > ${nowAt('$1')} AND due_at <= ${nowAt('$1')} + $2::bigint`,
    journals: `SELECT task, entry FROM ${journal} WHERE task = ANY ($1::text[]) ORDER BY task, seq`,
    read: `SELECT entry FROM ${journal} WHERE task = $1 AND seq >= $2 AND seq < $3 ORDER BY seq`,
    renew: `UPDATE ${task} SET due_at = ${nowAt('$3')} + $4::bigint
      WHERE id IN (SELECT t.id FROM ${fences} FOR UPDATE OF t) RETURNING id`,
    held: `SELECT t.id FROM ${fences}`,
    reached: `SELECT 1 FROM ${task} WHERE id = $1 AND epoch = $2 AND status = $3`,
    append: `WITH held AS (SELECT id, failures FROM ${task} WHERE ${FENCE} FOR UPDATE),
      forgiven AS (UPDATE ${task} t SET failures = 0 FROM held WHERE t.id = held.id AND held.failures > 0),
      added AS (INSERT INTO ${journal} (task, seq, entry) SELECT held.id, $4::integer + e.at - 1, e.entry
        FROM held, unnest($5::text[]) WITH ORDINALITY AS e (entry, at))
      SELECT id FROM held`,
    status: `UPDATE ${task} SET message = $4, ${shown} WHERE ${FENCE} RETURNING 1`,
    inputs: `SELECT inputs, revision FROM ${task} WHERE ${FENCE}`,
    publish: `UPDATE ${task} SET inputs = $5, status = $6, ${shown} WHERE ${FENCE} AND revision = $4 RETURNING 1`,
    park: `UPDATE ${task} SET inputs = $5, status = $6, ${shown}, worker = NULL, failures = 0,
      due_at = CASE WHEN $7::boolean THEN ${nowAt('$3')} ELSE $8::bigint END WHERE ${FENCE} AND revision = $4 RETURNING 1`,
    // A parked task has no worker, so the fence says nothing about a write that may have succeeded.
    reachedSlots: `SELECT 1 FROM ${task} WHERE id = $1 AND epoch >= $2 AND revision > $3 AND inputs = $4`,
    settle: `WITH done AS (UPDATE ${task} SET status = $4, outcome = $5, ${shown}, worker = NULL, due_at = NULL,
        inputs = NULL, head = '' WHERE ${FENCE} RETURNING id),
      gone AS (DELETE FROM ${journal} USING done WHERE task = done.id)
      SELECT id FROM done`,
    // Nobody knows the id, so nobody misses what it asks: a task that is held looks as if it asked nothing.
    hold: `UPDATE ${task} SET due_at = CASE WHEN known THEN ${nowAt('$3')} END, worker = NULL, epoch = epoch + 1, status = 'working'
      WHERE ${FENCE} RETURNING 1`,
    release: `UPDATE ${task} SET due_at = ${nowAt('$3')} + $4::bigint, failures = failures + $5::integer, worker = NULL,
      epoch = epoch + 1 WHERE ${FENCE} RETURNING 1`,
  }
}

function isDuplicate(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined
  return cause instanceof Error && (cause as { code?: string }).code === '23505'
}

export function createOperatorTasks({ query, now, schema }: PostgresDatabase): OperatorTasks {
  const task = `${schema}.task`
  // Counted on partial indexes. A task that is open is due, running or parked, perhaps until a time.
  const stats = `WITH c AS (SELECT ${nowAt('$1')} AS now)
    SELECT c.now, count(*) FILTER (WHERE due_at <= c.now) AS due, min(due_at) AS oldest,
      count(*) FILTER (WHERE due_at > c.now AND worker IS NOT NULL) AS running,
      (SELECT count(*) FROM ${task} o WHERE o.status IN ('working', 'input_required') AND o.expires_at > c.now)
        - count(*) FILTER (WHERE due_at <= c.now OR worker IS NOT NULL) AS parked
    FROM c LEFT JOIN ${task} ON due_at IS NOT NULL AND expires_at > c.now GROUP BY c.now`
  const list = (
    owned: string,
  ) => `SELECT ${SUMMARY_COLUMNS}, (SELECT count(*) FROM ${schema}.journal WHERE task = id) AS entries
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
