/**
 * The worker's side of tasks, in SQL, and the operator's. Every write of a worker carries `FENCE`.
 *
 * Rows name a worker together with its process, so that after a crash other processes on the machine can take over at
 * once instead of waiting for the lease. This works on Linux; elsewhere no process is ever declared dead.
 */

import { readFileSync, readlinkSync } from 'node:fs'
import { decodeSlots, encodeSlots, type InputSlot, mergeSlots, waitingStatus } from '../input-slots.ts'
import type { Fence, Lease, OperatorTasks, WorkerTasks } from '../task-store.ts'
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
import type { SqliteDatabase, SqlValue } from './database.ts'

/** Parameters: id, epoch, now. The only thing that keeps a worker which lost its lease away from the journal. */
export const FENCE = 'id = ? AND epoch = ? AND worker IS NOT NULL AND expires_at > ?'

/** Holds for a task whose tool is not paused. */
const FREE = '(tool IS NULL OR tool NOT IN (SELECT tool FROM pause))'

/** The bytes of what an ended task keeps for an operator. */
export const KEPT_BYTES = `length(head) + coalesce(length(inputs), 0)
  + (SELECT coalesce(sum(length(entry)), 0) FROM journal WHERE task = task.id)`

export function createWorkerTasks(database: SqliteDatabase): WorkerTasks {
  const { queue, now, publish } = database
  const sql = createQueries(database)
  const guard = ({ id, epoch }: Fence): [SqlValue, SqlValue, SqlValue] => [id, epoch, now()]
  const announce = async (fence: Fence, write: () => boolean) => {
    const done = await queue.write(write)
    if (done) publish({ kind: 'changed', id: fence.id })
    return done
  }
  const claim = (worker: string, leaseMs: number, count: number): Lease[] => {
    const at = now()
    const due = sql.due.all(at, at, count)
    const left = new Set(due.filter((row) => row.taken_over).map((row) => row.id))
    const claimed = sql.claim.all(workerName(worker), at + leaseMs, JSON.stringify(due.map((row) => row.id)))
    const rows = claimed.map((row) => (left.has(row.id) ? { ...row, taken_over: 1 } : row))
    const journals = groupJournals(sql.journals.all(JSON.stringify(rows.map((row) => row.id))))
    return rows.map((row) => toLease(row, journals.get(row.id) ?? [], at))
  }
  /** The slots of a task that is still held, with the answers that arrived meanwhile. */
  const merge = (fence: Fence, given: readonly InputSlot[]) => {
    const row = sql.inputs.get(...guard(fence))
    return row && mergeSlots(decodeSlots(row.inputs as string | null), given)
  }
  return {
    async claim(worker, leaseMs, count) {
      // Reading takes no lock, and most polls find nothing.
      const due = await queue.read(() => sql.anyDue.get(now(), now()))
      return due === undefined ? [] : queue.write(() => claim(worker, leaseMs, count))
    },
    renew: (fences, leaseMs) =>
      queue.write(() => toSet(fences, (fence) => sql.renew.run(now() + leaseMs, ...guard(fence)) === 1)),
    held: (fences) =>
      queue.read(() => toSet(fences, (fence) => sql.fence.get(...guard(fence)) !== undefined)),
    append: (fence, from, entries) =>
      queue.write(() => {
        const [first = '', ...rest] = entries
        if (sql.append.run(from, first, ...guard(fence)) !== 1) return false
        sql.forgive.run(fence.id)
        rest.forEach((entry, i) => void sql.appendMore.run(fence.id, from + 1 + i, entry))
        return true
      }),
    status: (fence, message) => announce(fence, () => sql.status.run(message, now(), ...guard(fence)) === 1),
    async publish(fence, given) {
      const slots = await queue.write(() => {
        const merged = merge(fence, given)?.slots
        if (merged) sql.publish.run(encodeSlots(merged), waitingStatus(merged), now(), ...guard(fence))
        return merged
      })
      if (slots) publish({ kind: 'changed', id: fence.id })
      return slots
    },
    async park(fence, given, wakeAt, liveUntil = 0) {
      const merged = await queue.write(() => {
        const found = merge(fence, given)
        if (!found) return undefined
        const { slots, news } = found
        const due = news ? now() : (wakeAt ?? null)
        sql.park.run(encodeSlots(slots), waitingStatus(slots), due, liveUntil, now(), ...guard(fence))
        return found
      })
      if (!merged) return false
      publish({ kind: 'changed', id: fence.id })
      if (merged.news) publish({ kind: 'due' })
      return true
    },
    settle: (fence, ending) =>
      announce(fence, () => {
        const keepMs = ending.kind === 'fail' ? (ending.keepMs ?? 0) : 0
        if (keepMs > 0) {
          const [, outcome, bytes] = endingColumns(ending)
          return sql.settleKept.run(outcome, bytes, now(), now() + keepMs, ...guard(fence)) === 1
        }
        if (sql.settle.run(...endingColumns(ending), now(), ...guard(fence)) !== 1) return false
        sql.deleteJournal.run(fence.id)
        return true
      }),
    async hold(fence) {
      const done = await queue.write(() => sql.hold.run(now(), ...guard(fence)) === 1)
      // The task may have become known while the turn ran.
      if (done) publish({ kind: 'due' })
      return done
    },
    async trim({ tenant, principal }, { count, bytes }) {
      const beyond = () => sql.beyond.all(tenant, principal, now(), count, bytes).map((row) => row.id)
      // Reading takes no lock.
      if ((await queue.read(beyond)).length === 0) return 0
      const gone = await queue.write(() => {
        const ids = JSON.stringify(beyond())
        sql.deleteJournals.run(ids)
        return sql.remove.run(ids)
      })
      if (gone > 0) publish({ kind: 'changed' })
      return gone
    },
    async nextDueMs(withinMs) {
      const at = now()
      const next = (await queue.read(() => sql.nextDue.get(at + withinMs, at)))?.next
      return typeof next === 'number' ? Math.max(0, next - at) : undefined
    },
    async release(fence, delayMs, failed) {
      const done = await queue.write(
        () => sql.release.run(now() + delayMs, failed ? 1 : 0, ...guard(fence)) === 1,
      )
      if (done) publish({ kind: 'due' })
      return done
    },
    async absolve({ id, epoch }) {
      await queue.write(() => sql.absolve.run(id, epoch + 1))
    },
    async reclaim() {
      const workers = (await queue.read(() => sql.workers.all())).map((row) => String(row.worker))
      const gone = workers.filter((worker) => isProcessGone(worker.split(' ')[0] ?? ''))
      if (gone.length === 0) return 0
      return queue.write(() => gone.reduce((sum, worker) => sum + sql.reclaim.run(now(), worker, now()), 0))
    },
  }
}

function createQueries({ sql }: SqliteDatabase) {
  return {
    anyDue: sql(`SELECT 1 FROM task WHERE due_at <= ? AND expires_at > ? AND ${FREE} LIMIT 1`),
    nextDue: sql(
      `SELECT due_at AS next FROM task WHERE due_at <= ? AND expires_at > ? AND ${FREE} ORDER BY due_at LIMIT 1`,
    ),
    // A row that still names a worker was never released: that worker died or hangs.
    due: sql(`SELECT id, worker IS NOT NULL AS taken_over FROM task
      WHERE due_at <= ? AND expires_at > ? AND ${FREE} ORDER BY due_at LIMIT ?`),
    claim:
      sql(`UPDATE task SET failures = failures + (worker IS NOT NULL), worker = ?, due_at = ?, epoch = epoch + 1
      WHERE id IN (SELECT value FROM json_each(?))
      RETURNING ${LEASE_COLUMNS}`),
    journals: sql(`SELECT j.task, j.entry FROM json_each(?) q CROSS JOIN journal j ON j.task = q.value
      ORDER BY j.task, j.seq`),
    renew: sql(`UPDATE task SET due_at = ? WHERE ${FENCE}`),
    fence: sql(`SELECT 1 FROM task WHERE ${FENCE}`),
    append: sql(`INSERT INTO journal (task, seq, entry) SELECT id, ?, ? FROM task WHERE ${FENCE}`),
    appendMore: sql('INSERT INTO journal (task, seq, entry) VALUES (?, ?, ?)'),
    forgive: sql('UPDATE task SET failures = 0 WHERE id = ? AND failures > 0'),
    status: sql(`UPDATE task SET message = ?, updated_at = ?, revision = revision + 1 WHERE ${FENCE}`),
    inputs: sql(`SELECT inputs FROM task WHERE ${FENCE}`),
    publish: sql(
      `UPDATE task SET inputs = ?, status = ?, updated_at = ?, revision = revision + 1 WHERE ${FENCE}`,
    ),
    park: sql(`UPDATE task SET inputs = ?, status = ?, due_at = ?, expires_at = max(expires_at, ?), updated_at = ?, revision = revision + 1,
      worker = NULL, failures = 0 WHERE ${FENCE}`),
    beyond:
      sql(`SELECT id FROM (${rankEnded('task INDEXED BY task_ended', 'tenant = ? AND principal = ? AND expires_at > ?')})
      WHERE rank > 1 AND (rank > ? OR total > ?)`),
    remove: sql('DELETE FROM task WHERE id IN (SELECT value FROM json_each(?))'),
    settle:
      sql(`UPDATE task SET status = ?, outcome = ?, bytes = ? + coalesce(length(message), 0), updated_at = ?, revision = revision + 1, worker = NULL,
      due_at = NULL, inputs = NULL, head = '' WHERE ${FENCE}`),
    settleKept:
      sql(`UPDATE task SET status = 'failed', outcome = ?1, bytes = ?2 + coalesce(length(message), 0) + ${KEPT_BYTES},
      updated_at = ?3, revision = revision + 1, worker = NULL, due_at = NULL, kept_until = ?4,
      expires_at = max(expires_at, ?4) WHERE id = ?5 AND epoch = ?6 AND worker IS NOT NULL AND expires_at > ?7`),
    deleteJournal: sql('DELETE FROM journal WHERE task = ?'),
    deleteJournals: sql('DELETE FROM journal WHERE task IN (SELECT value FROM json_each(?))'),
    // Nobody knows the id, so nobody misses what it asks: a task that is held looks as if it asked nothing.
    hold: sql(`UPDATE task SET due_at = CASE known WHEN 1 THEN ? END, worker = NULL, epoch = epoch + 1, status = 'working'
      WHERE ${FENCE}`),
    release: sql(`UPDATE task SET due_at = ?, failures = failures + ?, worker = NULL, epoch = epoch + 1
      WHERE ${FENCE}`),
    absolve: sql(`UPDATE task SET failures = failures - 1
      WHERE id = ? AND epoch = ? AND worker IS NOT NULL AND failures > 0`),
    workers: sql('SELECT DISTINCT worker FROM task WHERE worker IS NOT NULL'),
    reclaim: sql('UPDATE task SET due_at = ? WHERE worker = ? AND due_at > ?'),
  }
}

function toSet(fences: readonly Fence[], isHeld: (fence: Fence) => boolean): ReadonlySet<string> {
  return new Set(fences.filter(isHeld).map(({ id }) => id))
}

export function createOperatorTasks({ sql, queue, now }: SqliteDatabase): OperatorTasks {
  // Counted on partial indexes, up to a limit, since scanning all rows would block the event loop. A task that is open is due,
  // running or parked, perhaps until a time.
  const count = (rows: string) => sql(`SELECT count(*) AS n FROM (SELECT 1 FROM task ${rows} LIMIT ?)`)
  const countDue = count(`INDEXED BY task_due WHERE due_at <= ? AND expires_at > ? AND ${FREE}`)
  const countRunning = count(
    'INDEXED BY task_worker WHERE worker IS NOT NULL AND due_at > ? AND expires_at > ?',
  )
  const countOpen = count(
    "INDEXED BY task_open WHERE status IN ('working', 'input_required') AND expires_at > ?",
  )
  const oldest =
    sql(`SELECT due_at FROM task INDEXED BY task_due WHERE due_at <= ? AND expires_at > ? AND ${FREE}
    ORDER BY due_at LIMIT 1`)
  const find = sql(`SELECT ${SUMMARY_COLUMNS}, (SELECT count(*) FROM journal WHERE task = id) AS entries
    FROM task WHERE id = ? AND expires_at > ?`)
  const newest = (
    status: string,
  ) => `SELECT * FROM (SELECT id, created_at FROM task WHERE status = '${status}'
    AND expires_at > ?1 AND (created_at, id) < (?2, ?3) ORDER BY created_at DESC, id DESC LIMIT ?4)`
  const page = (statuses: readonly string[]) =>
    sql(`SELECT ${SUMMARY_COLUMNS}, (SELECT count(*) FROM journal WHERE task = id) AS entries
    FROM task WHERE id IN (SELECT id FROM (${statuses.map(newest).join(' UNION ALL ')})
      ORDER BY created_at DESC, id DESC LIMIT ?4) ORDER BY created_at DESC, id DESC`)
  const pages = new Map(TASK_STATUSES.map((status) => [status, page([status])]))
  const allPages = page(TASK_STATUSES)
  const owned = sql(`SELECT ${SUMMARY_COLUMNS}, (SELECT count(*) FROM journal WHERE task = id) AS entries
    FROM task WHERE tenant = ? AND principal = ? AND expires_at > ? AND status = coalesce(?, status)
    AND (created_at, id) < (?, ?) ORDER BY created_at DESC, id DESC LIMIT ?`)
  const labelled = sql(`SELECT ${SUMMARY_COLUMNS}, (SELECT count(*) FROM journal WHERE task = id) AS entries
    FROM task WHERE id IN (SELECT task FROM task_label WHERE tag IN (SELECT value FROM json_each(?9 -> 0)))
    AND NOT EXISTS (SELECT 1 FROM json_each(?9) any WHERE NOT EXISTS
      (SELECT 1 FROM task_label l WHERE l.task = task.id AND l.tag IN (SELECT value FROM json_each(any.value))))
    AND (?1 IS NULL OR tool IN (SELECT value FROM json_each(?1))) AND expires_at > ?2 AND status = coalesce(?3, status)
    AND (?4 IS NULL OR (tenant = ?4 AND principal = ?5)) AND (created_at, id) < (?6, ?7) AND id = coalesce(?10, id)
    ORDER BY created_at DESC, id DESC LIMIT ?8`)
  const ofTools = sql(`SELECT ${SUMMARY_COLUMNS}, (SELECT count(*) FROM journal WHERE task = id) AS entries
    FROM task WHERE tool IN (SELECT value FROM json_each(?1)) AND expires_at > ?2 AND status = coalesce(?3, status)
    AND (?4 IS NULL OR (tenant = ?4 AND principal = ?5)) AND (created_at, id) < (?6, ?7)
    ORDER BY created_at DESC, id DESC LIMIT ?8`)
  return {
    stats: () =>
      queue.read(() => {
        const at = now()
        const due = Number(countDue.get(at, at, COUNT_LIMIT)?.n)
        const running = Number(countRunning.get(at, at, COUNT_LIMIT)?.n)
        const open = Number(countOpen.get(at, COUNT_LIMIT + due + running)?.n)
        const first = oldest.get(at, at)?.due_at
        const oldestDueMs = first === undefined ? 0 : at - Number(first)
        return { due, oldestDueMs, running, parked: open - due - running }
      }),
    async list({ id, status, owner, tools, labels, after, limit = 100 }) {
      const [createdAt, afterId] = [after?.createdAt ?? Number.MAX_SAFE_INTEGER, after?.id ?? '']
      const rows = await queue.read(() => {
        if (id !== undefined && !labels?.length) return find.all(id, now())
        if (tools || labels?.length) {
          const of = [
            tools ? JSON.stringify(tools) : null,
            now(),
            status ?? null,
            owner?.tenant ?? null,
            owner?.principal ?? null,
          ]
          const place = [createdAt, afterId, limit]
          return labels?.length
            ? labelled.all(...of, ...place, JSON.stringify(labels), id ?? null)
            : ofTools.all(...of, ...place)
        }
        if (owner)
          return owned.all(owner.tenant, owner.principal, now(), status ?? null, createdAt, afterId, limit)
        const found = status === undefined ? allPages : (pages.get(status) ?? allPages)
        return found.all(now(), createdAt, afterId, limit)
      })
      const tasks = rows.map((row) =>
        toSummary({ ...row, worker: (row.worker as string | null)?.split(' ')[1] }),
      )
      return id === undefined ? tasks : tasks.filter((task) => isAsked(task, { status, owner, tools, after }))
    },
  }
}

export const workerName = (worker: string): string => `${processTag()} ${worker}`

/** Identifies this process: boot, pid namespace, pid and start time, because pids are reused. */
export function processTag(): string {
  own ??= `${systemTag()}:${process.pid}:${startOf(process.pid) ?? 'unknown'}`
  return own
}

let own: string | undefined

/** True only if the tag is from this machine and its process has ended. */
export function isProcessGone(tag: string): boolean {
  const [, system, pid, start] = /^(.+:.+):(\d+):(\d+)$/.exec(tag) ?? []
  if (system === undefined || system !== systemTag()) return false
  return startOf(Number(pid)) !== start
}

let system: string | undefined

function systemTag(): string {
  system ??= readSystemTag()
  return system
}

function readSystemTag(): string {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    return `${boot}:${readlinkSync('/proc/self/ns/pid').replace(/\D/g, '')}`
  } catch {
    return 'no:proc'
  }
}

/** Undefined for a process that does not exist or is a zombie. */
function startOf(pid: number): string | undefined {
  try {
    // The name in parentheses may contain spaces, so fields are counted after it. State is the 3rd, start time the 22nd.
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? []
    return fields[0] === 'Z' || fields[0] === 'X' ? undefined : fields[19]
  } catch {
    return undefined
  }
}
