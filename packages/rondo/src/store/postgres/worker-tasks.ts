/**
 * The worker's side of tasks, in SQL, and the operator's. Every write of a worker carries `FENCE`.
 *
 * An append locks the row of its task, so that nobody can claim the task between the check of the fence and the commit.
 * Journals are read by a statement of their own after the claim has committed: a statement that began earlier could miss
 * an entry that the former worker had just written.
 */

import { RondoError } from '../../errors.ts'
import { decodeSlots, encodeSlots, type InputSlot, mergeSlots, waitingStatus } from '../input-slots.ts'
import type { Fence, OperatorTasks, WorkerTasks } from '../task-store.ts'
import {
  COUNT_LIMIT,
  endingColumns,
  groupJournals,
  isAsked,
  LEASE_COLUMNS,
  rankEnded,
  SUMMARY_COLUMNS,
  TASK_STATUSES,
  toLease,
  toSummary,
} from '../task-store.ts'
import { nowAt, type PostgresDatabase, type SeenSlots, toSeen } from './database.ts'
import type { PgRow } from './driver.ts'
import {
  type Columns,
  createWriteGroup,
  type GroupedStatement,
  groupUpdates,
  manyRows,
  oneRow,
  type RowChange,
} from './write-group.ts'

/**
 * Holds for the row `t` of a task if the worker that `q` names by id and epoch has it; `$1` is the time. The only thing that
 * keeps a worker which lost its lease away from the journal.
 */
export const FENCE: string = `t.id = q.id AND t.epoch = q.epoch AND t.worker IS NOT NULL AND t.expires_at > ${nowAt('$1')}`

/** SQL: the bytes of what an ended task `t` keeps for an operator. */
export const keptBytes = (schema: string): string => `length(t.head) + coalesce(length(t.inputs), 0)
  + (SELECT coalesce(sum(length(entry)), 0)::integer FROM ${schema}.journal WHERE task = t.id)`

/** SQL: holds for a task whose tool is not paused. */
const isFree = (schema: string, tool: string): string =>
  `NOT EXISTS (SELECT 1 FROM ${schema}.pause p WHERE p.tool = ${tool})`

/** Each lost race means that an answer or a message was stored. */
const MAX_RACES = 1000

/** The row that was written when a task parked, and the row as it is now, if that is known. */
interface Parked {
  readonly slots: readonly InputSlot[]
  readonly news: boolean
  readonly seen: SeenSlots | undefined
}

export function createWorkerTasks(database: PostgresDatabase): WorkerTasks {
  const { query, now, publish, seenSlots, parkedHere } = database
  const sql = createQueries(database.schema)
  const group = (statement: GroupedStatement) => createWriteGroup(database, statement)
  const groups = {
    append: group(sql.append),
    status: group(sql.status),
    inputs: group(sql.inputs),
    publish: group(sql.publish),
    park: group(sql.park),
    settle: group(sql.settle),
    hold: group(sql.hold),
    release: group(sql.release),
  }
  const arrays = (fences: readonly Fence[]) => [
    now(),
    fences.map(({ id }) => id),
    fences.map(({ epoch }) => epoch),
  ]
  const toSet = (rows: readonly PgRow[]) => new Set(rows.map((row) => row.id as string))

  /** Executes a fenced write. If it was retried, its first attempt may have succeeded. */
  const write = async (
    kind: 'status' | 'settle',
    { id, epoch }: Fence,
    values: unknown[],
    status: string,
  ): Promise<boolean> => {
    const { rows, retried } = await groups[kind]({ values: [id, epoch, ...values] })
    if (rows.length > 0) return true
    if (!retried) return false
    const [row] = await query(sql.reached, [id, epoch, status])
    return row !== undefined
  }
  const announce = async (fence: Fence, written: Promise<boolean>) => {
    const done = await written
    if (done) publish({ kind: 'changed', id: fence.id })
    return done
  }
  const append = async ({ id, epoch }: Fence, from: number, entries: readonly string[]): Promise<boolean> => {
    try {
      return (await groups.append({ values: [id, epoch], entries, from })).rows.length > 0
    } catch (error) {
      if (!isDuplicate(error)) throw error
      const rows = await query(sql.read, [id, from, from + entries.length])
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
  const readSlots = async ({ id, epoch }: Fence) => {
    const [row] = (await groups.inputs({ values: [id, epoch] })).rows
    return row as SeenSlots | undefined
  }
  /** Writes slots over those that were seen, again if answers arrived in between. If a write was retried, it may have succeeded. */
  const writeSlots = async (
    kind: 'publish' | 'park',
    fence: Fence,
    given: readonly InputSlot[],
    toValues: (news: boolean) => readonly unknown[] = () => [],
  ) => {
    const { id, epoch } = fence
    for (let race = 0; race < MAX_RACES; race++) {
      const row = (race === 0 && seenSlots.get(fence)) || (await readSlots(fence))
      if (row === undefined) return undefined
      const merged = mergeSlots(decodeSlots(row.inputs), given)
      const inputs = encodeSlots(merged.slots)
      const values = [id, epoch, row.revision, inputs, waitingStatus(merged.slots), ...toValues(merged.news)]
      // A guess that was wrong must not look right after somebody else's change.
      seenSlots.delete(fence)
      const { rows, retried } = await groups[kind]({ values })
      if (rows.length > 0) {
        const seen = { ...row, revision: row.revision + 1, inputs }
        seenSlots.set(fence, seen)
        return { ...merged, seen }
      }
      if (!retried) continue
      const [written] = await query(sql.reachedSlots, [id, epoch, row.revision, inputs])
      if (written !== undefined) return { ...merged, seen: undefined }
    }
    throw new RondoError(
      'STORE_UNAVAILABLE',
      'the task kept changing while its slots were being written; retry',
    )
  }
  /** The database decides whether an answer is late. */
  const keepParked = ({ id, epoch }: Fence, { slots, news, seen }: Parked) => {
    if (news || seen?.tenant === undefined || slots.some((slot) => slot.kind === 'open' && slot.until)) return
    const { revision, inputs, tenant, principal } = seen
    const row = {
      revision,
      inputs,
      tenant,
      principal,
      epoch,
      worker: null,
      status: waitingStatus(slots),
      now: 0,
    }
    parkedHere.keep(id, row)
  }
  return {
    async claim(worker, leaseMs, count) {
      const rows = await query(sql.claim, [worker, leaseMs, count, now()])
      const old = rows.filter((row) => (row.epoch as number) > 1).map((row) => row.id)
      const journals = groupJournals(old.length > 0 ? await query(sql.journals, [old]) : [])
      return rows.map((row) => {
        const lease = toLease(row, journals.get(row.id) ?? [])
        seenSlots.set(lease.fence, toSeen(row))
        return lease
      })
    },
    renew: async (fences, leaseMs) => toSet(await query(sql.renew, [...arrays(fences), leaseMs])),
    held: async (fences) => toSet(await query(sql.held, arrays(fences))),
    append,
    async status(fence, message) {
      const done = await announce(fence, write('status', fence, [message], 'working'))
      const seen = seenSlots.get(fence)
      if (done && seen) seenSlots.set(fence, { ...seen, revision: seen.revision + 1 })
      return done
    },
    async publish(fence, given) {
      const merged = await writeSlots('publish', fence, given)
      if (merged) publish({ kind: 'changed', id: fence.id })
      return merged?.slots
    },
    async park(fence, given, wakeAt, liveUntil = 0) {
      const merged = await writeSlots('park', fence, given, (news) => [news, wakeAt ?? null, liveUntil])
      if (!merged) return false
      keepParked(fence, merged)
      publish({ kind: 'changed', id: fence.id })
      if (merged.news) publish({ kind: 'due' })
      return true
    },
    settle(fence, ending) {
      const [status, outcome, bytes] = endingColumns(ending)
      const keepMs = (ending.kind === 'fail' && ending.keepMs) || null
      return announce(fence, write('settle', fence, [status, outcome, bytes, keepMs], status))
    },
    async hold({ id, epoch }) {
      const done = (await groups.hold({ values: [id, epoch] })).rows.length > 0
      // The task may have become known while the turn ran.
      if (done) publish({ kind: 'due' })
      return done
    },
    async trim({ tenant, principal }, { count, bytes }) {
      const rows = await query(sql.trim, [tenant, principal, now(), count, bytes])
      if (rows.length > 0) publish({ kind: 'changed' })
      return rows.length
    },
    async nextDueMs(withinMs) {
      const [row] = await query(sql.nextDue, [now(), withinMs])
      return row && Number(row.next)
    },
    async release({ id, epoch }, delayMs, failed) {
      const { rows } = await groups.release({ values: [id, epoch, delayMs, failed ? 1 : 0] })
      if (rows.length > 0) publish({ kind: 'due' })
      return rows.length > 0
    },
  }
}

function createQueries(schema: string) {
  const task = `${schema}.task`
  const journal = `${schema}.journal`
  const fences = `unnest($2::text[], $3::integer[]) AS q (id, epoch) JOIN ${task} t ON ${FENCE}`
  const shown = `updated_at = ${nowAt('$1')}, revision = t.revision + 1`
  const fenced = (columns: Columns, change: Omit<RowChange, 'task' | 'where'>, where = '') =>
    groupUpdates({ id: 'text', epoch: 'integer', ...columns }, { task, where: FENCE + where, ...change })
  const append = (
    source: string,
    skip: string,
  ) => `WITH held AS (SELECT q.at, q.id, t.failures FROM ${source} JOIN ${task} t ON ${FENCE}
        FOR UPDATE OF t ${skip}),
      forgiven AS (UPDATE ${task} t SET failures = 0 FROM held WHERE t.id = held.id AND held.failures > 0),
      added AS (INSERT INTO ${journal} (task, seq, entry) SELECT held.id, e.seq, e.entry
        FROM held JOIN unnest($4::bigint[], $5::integer[], $6::text[]) AS e (at, seq, entry) USING (at))
      SELECT at FROM held`
  const fence = { id: 'text', epoch: 'integer' }
  return {
    // A row that still names a worker was never released: that worker died or hangs.
    claim: `UPDATE ${task} t SET failures = failures + (worker IS NOT NULL)::integer, worker = $1,
      due_at = ${nowAt('$4')} + $2::bigint, epoch = epoch + 1
      FROM (SELECT id AS due, worker AS former FROM ${task} c WHERE due_at <= ${nowAt('$4')} AND expires_at > ${nowAt('$4')}
        AND ${isFree(schema, 'c.tool')} ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED) found
      WHERE t.id = due
      RETURNING ${LEASE_COLUMNS}, revision, former IS NOT NULL AS taken_over, ${nowAt('$4')} AS now`,
    nextDue: `SELECT greatest(0, due_at - ${nowAt('$1')}) AS next FROM ${task} t
      WHERE due_at <= ${nowAt('$1')} + $2::bigint AND expires_at > ${nowAt('$1')} AND ${isFree(schema, 't.tool')} ORDER BY due_at LIMIT 1`,
    journals: `SELECT task, entry FROM ${journal} WHERE task = ANY ($1::text[]) ORDER BY task, seq`,
    read: `SELECT entry FROM ${journal} WHERE task = $1 AND seq >= $2 AND seq < $3 ORDER BY seq`,
    renew: `UPDATE ${task} SET due_at = ${nowAt('$1')} + $4::bigint
      WHERE id IN (SELECT t.id FROM ${fences} ORDER BY t.id FOR UPDATE OF t) RETURNING id`,
    held: `SELECT t.id FROM ${fences}`,
    reached: `SELECT 1 FROM ${task} WHERE id = $1 AND epoch = $2 AND status = $3`,
    append: {
      one: append(oneRow(fence), ''),
      many: append(manyRows(fence), 'SKIP LOCKED'),
      entries: true,
    },
    status: fenced({ message: 'text' }, { set: `message = q.message, ${shown}` }),
    inputs: {
      reads: true,
      one: `SELECT t.inputs, t.revision FROM ${oneRow(fence)} JOIN ${task} t ON ${FENCE}`,
      many: `SELECT q.at, t.inputs, t.revision FROM ${manyRows(fence)} JOIN ${task} t ON ${FENCE}`,
    },
    publish: fenced(
      { revision: 'integer', inputs: 'text', status: 'text' },
      { set: `inputs = q.inputs, status = q.status, ${shown}` },
      ' AND t.revision = q.revision',
    ),
    park: fenced(
      {
        revision: 'integer',
        inputs: 'text',
        status: 'text',
        news: 'boolean',
        wake_at: 'bigint',
        live_until: 'bigint',
      },
      {
        set: `inputs = q.inputs, status = q.status, ${shown}, worker = NULL, failures = 0,
          due_at = CASE WHEN q.news THEN ${nowAt('$1')} ELSE q.wake_at END,
          expires_at = greatest(t.expires_at, q.live_until)`,
      },
      ' AND t.revision = q.revision',
    ),
    // A parked task has no worker, so the fence says nothing about a write that may have succeeded.
    reachedSlots: `SELECT 1 FROM ${task} WHERE id = $1 AND epoch >= $2 AND revision > $3 AND inputs = $4`,
    // Two that trim at once divide the rows between them.
    trim: `WITH gone AS (DELETE FROM ${task} WHERE id IN (SELECT id FROM ${task} WHERE id IN (SELECT id FROM
        (${rankEnded(task, `tenant = $1 AND principal = $2 AND expires_at > ${nowAt('$3')}`)}) ranked
        WHERE rank > 1 AND (rank > $4 OR total > $5)) FOR UPDATE SKIP LOCKED) RETURNING id),
      entries AS (DELETE FROM ${journal} USING gone WHERE task = gone.id) SELECT id FROM gone`,
    settle: fenced(
      { status: 'text', outcome: 'text', bytes: 'integer', keep: 'bigint' },
      {
        set: `status = q.status, outcome = q.outcome, bytes = q.bytes + coalesce(length(t.message), 0)
            + CASE WHEN q.keep IS NULL THEN 0 ELSE ${keptBytes(schema)} END,
          ${shown}, worker = NULL, due_at = NULL, kept_until = ${nowAt('$1')} + q.keep,
          expires_at = greatest(t.expires_at, ${nowAt('$1')} + q.keep),
          inputs = CASE WHEN q.keep IS NULL THEN NULL ELSE t.inputs END, head = CASE WHEN q.keep IS NULL THEN '' ELSE t.head END`,
        returning: 't.id, t.kept_until',
        also: `, gone AS (DELETE FROM ${journal} USING done WHERE task = done.id AND done.kept_until IS NULL)`,
      },
    ),
    // Nobody knows the id, so nobody misses what it asks: a task that is held looks as if it asked nothing.
    hold: fenced(
      {},
      {
        set: `due_at = CASE WHEN t.known THEN ${nowAt('$1')} END, worker = NULL, epoch = t.epoch + 1, status = 'working'`,
      },
    ),
    release: fenced(
      { delay: 'bigint', failed: 'integer' },
      {
        set: `due_at = ${nowAt('$1')} + q.delay, failures = t.failures + q.failed, worker = NULL, epoch = t.epoch + 1`,
      },
    ),
  }
}

function isDuplicate(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined
  return cause instanceof Error && (cause as { code?: string }).code === '23505'
}

export function createOperatorTasks({ query, now, schema }: PostgresDatabase): OperatorTasks {
  const task = `${schema}.task`
  const at = nowAt('$1')
  const count = (rows: string, limit = `${COUNT_LIMIT}`) =>
    `(SELECT count(*) AS n FROM (SELECT 1 FROM ${task} t WHERE ${rows} AND expires_at > ${at} LIMIT ${limit}) counted)`
  // Counted on partial indexes, up to a limit. A task that is open is due, running or parked, perhaps until a time.
  const stats = `WITH due AS ${count(`due_at <= ${at} AND ${isFree(schema, 't.tool')}`)},
      running AS ${count(`worker IS NOT NULL AND due_at > ${at}`)},
      busy AS (SELECT due.n + running.n AS n FROM due, running),
      open AS ${count("status IN ('working', 'input_required')", `${COUNT_LIMIT} + (SELECT n FROM busy)`)}
    SELECT due.n AS due, running.n AS running, open.n - busy.n AS parked,
      ${at} - (SELECT due_at FROM ${task} t WHERE due_at <= ${at} AND expires_at > ${at}
        AND ${isFree(schema, 't.tool')} ORDER BY due_at LIMIT 1) AS oldest
    FROM due, running, busy, open`
  const columns = `${SUMMARY_COLUMNS}, (SELECT count(*) FROM ${schema}.journal WHERE task = id) AS entries`
  const find = `SELECT ${columns} FROM ${task} WHERE id = $2 AND expires_at > ${at}`
  const after = '($2::bigint IS NULL OR (created_at, id) < ($2, $3::text))'
  const newest = (status: string) => `(SELECT id, created_at FROM ${task} WHERE status = '${status}'
    AND expires_at > ${at} AND ${after} ORDER BY created_at DESC, id DESC LIMIT $4)`
  const page = (statuses: readonly string[]) => `SELECT ${columns} FROM ${task} WHERE id IN
      (SELECT id FROM (${statuses.map(newest).join(' UNION ALL ')}) found ORDER BY created_at DESC, id DESC LIMIT $4)
    ORDER BY created_at DESC, id DESC`
  const owned = `SELECT ${columns} FROM ${task} WHERE tenant = $5 AND principal = $6 AND expires_at > ${at}
      AND ($7::text IS NULL OR status = $7) AND ${after}
    ORDER BY created_at DESC, id DESC LIMIT $4`
  const labelled = `SELECT ${columns} FROM ${task} WHERE id IN (SELECT task FROM ${schema}.task_label
        WHERE tag IN (SELECT jsonb_array_elements_text($9::jsonb -> 0)))
      AND NOT EXISTS (SELECT 1 FROM jsonb_array_elements($9::jsonb) tags WHERE NOT EXISTS
        (SELECT 1 FROM ${schema}.task_label l WHERE l.task = id AND l.tag IN (SELECT jsonb_array_elements_text(tags))))
      AND ($5::text[] IS NULL OR tool = ANY ($5)) AND expires_at > ${at} AND ($10::text IS NULL OR id = $10)
      AND ($6::text IS NULL OR status = $6) AND ($7::text IS NULL OR (tenant = $7 AND principal = $8::text)) AND ${after}
    ORDER BY created_at DESC, id DESC LIMIT $4`
  const ofTools = `SELECT ${columns} FROM ${task} WHERE tool = ANY ($5::text[]) AND expires_at > ${at}
      AND ($6::text IS NULL OR status = $6) AND ($7::text IS NULL OR (tenant = $7 AND principal = $8::text)) AND ${after}
    ORDER BY created_at DESC, id DESC LIMIT $4`
  return {
    async stats() {
      const [row] = await query(stats, [now()])
      const [due, running, parked] = [Number(row?.due), Number(row?.running), Number(row?.parked)]
      return { due, oldestDueMs: Number(row?.oldest ?? 0), running, parked }
    },
    async list({ id, status, owner, tools, labels, after: place, limit = 100 }) {
      if (id !== undefined && !labels?.length) {
        const tasks = (await query(find, [now(), id])).map(toSummary)
        return tasks.filter((one) => isAsked(one, { status, owner, tools, after: place }))
      }
      const given = [now(), place?.createdAt ?? null, place?.id ?? null, limit]
      if (tools || labels?.length) {
        const of = [tools ?? null, status ?? null, owner?.tenant ?? null, owner?.principal ?? null]
        const found = labels?.length
          ? query(labelled, [...given, ...of, JSON.stringify(labels), id ?? null])
          : query(ofTools, [...given, ...of])
        return (await found).map(toSummary)
      }
      const rows = await (owner
        ? query(owned, [...given, owner.tenant, owner.principal, status ?? null])
        : query(page(TASK_STATUSES.filter((one) => one === (status ?? one))), given))
      return rows.map(toSummary)
    },
  }
}
