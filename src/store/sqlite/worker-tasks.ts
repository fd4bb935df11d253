/** What workers do with tasks, in SQL. Every write of theirs carries `FENCE`. */

import { decodeSlots, encodeSlots, openInputs } from '../input-slots.ts'
import type { TaskStatus } from '../task-engine.ts'
import type { Fence, Lease, OperatorTasks, TaskSummary, WorkerTasks } from '../task-store.ts'
import type { SqlRow, SqlValue } from './driver.ts'
import { isProcessGone, type SqliteSession, workerName } from './session.ts'

/** Id, epoch, now. The only thing between a worker that lost its task and the journal. */
export const FENCE = "id = ? AND epoch = ? AND status = 'working' AND expires_at > ?"

/** What `toLease` reads. */
export const LEASE =
  'id, tenant, principal, head, inputs, created_at, expires_at, poll_ms, failures, epoch, known'

export function createWorkerTasks(session: SqliteSession): WorkerTasks {
  const { queue, now, hints } = session
  const ask = prepareQueries(session)
  const guard = ({ id, epoch }: Fence): [SqlValue, SqlValue, SqlValue] => [id, epoch, now()]
  const change = async (id: string, op: () => boolean) => {
    const done = await queue.write(op)
    if (done) hints.tell({ kind: 'changed', id })
    return done
  }
  const claim = (worker: string, leaseMs: number, count: number): Lease[] => {
    const at = now()
    const rows = ask.claim.all(workerName(worker), at + leaseMs, at, at, count)
    const journals = readJournals(ask.journals.all(JSON.stringify(rows.map((row) => row.id))))
    return rows.map((row) => toLease(row, journals.get(row.id as string) ?? []))
  }
  return {
    async claim(worker, leaseMs, count) {
      // Looking costs no lock; most polls find nothing.
      const due = await queue.read(() => ask.anyDue.get(now(), now()))
      return due === undefined ? [] : queue.write(() => claim(worker, leaseMs, count))
    },
    renew: (fences, leaseMs) =>
      queue.write(() => toSet(fences, (fence) => ask.renew.run(now() + leaseMs, ...guard(fence)) === 1)),
    held: (fences) =>
      queue.read(() => toSet(fences, (fence) => ask.fence.get(...guard(fence)) !== undefined)),
    append: (fence, from, entries) =>
      queue.write(() => {
        const [first = '', ...rest] = entries
        if (ask.append.run(from, first, ...guard(fence)) !== 1) return false
        ask.forgive.run(fence.id)
        rest.forEach((entry, i) => void ask.appendMore.run(fence.id, from + 1 + i, entry))
        return true
      }),
    status: (fence, message) => change(fence.id, () => ask.status.run(message, now(), ...guard(fence)) === 1),
    park: (fence, slots) =>
      change(fence.id, () => ask.park.run(encodeSlots(slots), now(), ...guard(fence)) === 1),
    settle: (fence, ending) =>
      change(fence.id, () => {
        const [status, outcome] =
          ending.kind === 'complete' ? ['completed', ending.result] : ['failed', ending.error ?? null]
        if (ask.settle.run(status, outcome, now(), ...guard(fence)) !== 1) return false
        ask.dropJournal.run(fence.id)
        return true
      }),
    async release(fence, delayMs, failed) {
      const done = await queue.write(
        () => ask.release.run(now() + delayMs, failed ? 1 : 0, ...guard(fence)) === 1,
      )
      if (done) hints.tell({ kind: 'due' })
      return done
    },
    async hold(fence) {
      const done = await queue.write(() => ask.hold.run(now(), ...guard(fence)) === 1)
      // It may have become known while the turn ran.
      if (done) hints.tell({ kind: 'due' })
      return done
    },
    async absolve({ id, epoch }) {
      await queue.write(() => ask.absolve.run(id, epoch + 1))
    },
    async reclaim() {
      const workers = (await queue.read(() => ask.workers.all(now()))).map((row) => String(row.worker))
      const gone = workers.filter((worker) => isProcessGone(worker.split(' ')[0] ?? ''))
      if (gone.length === 0) return 0
      return queue.write(() => gone.reduce((sum, worker) => sum + ask.reclaim.run(now(), worker, now()), 0))
    },
  }
}

function prepareQueries({ sql }: SqliteSession) {
  return {
    anyDue: sql('SELECT 1 FROM task WHERE due_at <= ? AND expires_at > ? LIMIT 1'),
    // A row that still names a worker was never let go of: that worker died or hangs.
    claim:
      sql(`UPDATE task SET failures = failures + (worker IS NOT NULL), worker = ?, due_at = ?, epoch = epoch + 1
      WHERE id IN (SELECT id FROM task WHERE due_at <= ? AND expires_at > ? ORDER BY due_at LIMIT ?)
      RETURNING ${LEASE}`),
    journals: sql(`SELECT j.task, j.entry FROM json_each(?) q CROSS JOIN journal j ON j.task = q.value
      ORDER BY j.task, j.seq`),
    renew: sql(`UPDATE task SET due_at = ? WHERE ${FENCE}`),
    fence: sql(`SELECT 1 FROM task WHERE ${FENCE}`),
    append: sql(`INSERT INTO journal (task, seq, entry) SELECT id, ?, ? FROM task WHERE ${FENCE}`),
    appendMore: sql('INSERT INTO journal (task, seq, entry) VALUES (?, ?, ?)'),
    forgive: sql('UPDATE task SET failures = 0 WHERE id = ? AND failures > 0'),
    status: sql(`UPDATE task SET message = ?, updated_at = ?, revision = revision + 1 WHERE ${FENCE}`),
    park: sql(`UPDATE task SET status = 'input_required', inputs = ?, updated_at = ?, revision = revision + 1,
      worker = NULL, due_at = NULL, failures = 0 WHERE ${FENCE}`),
    settle:
      sql(`UPDATE task SET status = ?, outcome = ?, updated_at = ?, revision = revision + 1, worker = NULL,
      due_at = NULL, inputs = NULL, head = '' WHERE ${FENCE}`),
    dropJournal: sql('DELETE FROM journal WHERE task = ?'),
    release: sql(`UPDATE task SET due_at = ?, failures = failures + ?, worker = NULL, epoch = epoch + 1
      WHERE ${FENCE}`),
    hold: sql(`UPDATE task SET due_at = CASE known WHEN 1 THEN ? END, worker = NULL, epoch = epoch + 1
      WHERE ${FENCE}`),
    absolve: sql(`UPDATE task SET failures = failures - 1
      WHERE id = ? AND epoch = ? AND status = 'working' AND failures > 0`),
    workers: sql('SELECT DISTINCT worker FROM task WHERE worker IS NOT NULL AND due_at > ?'),
    reclaim: sql('UPDATE task SET due_at = ? WHERE worker = ? AND due_at > ?'),
  }
}

function toSet(fences: readonly Fence[], isHeld: (fence: Fence) => boolean): ReadonlySet<string> {
  return new Set(fences.filter(isHeld).map(({ id }) => id))
}

function readJournals(rows: readonly SqlRow[]): Map<string, string[]> {
  const journals = new Map<string, string[]>()
  for (const { task, entry } of rows as { task: string; entry: string }[]) {
    const journal = journals.get(task)
    if (journal === undefined) journals.set(task, [entry])
    else journal.push(entry)
  }
  return journals
}

export function toLease(row: SqlRow, journal: readonly string[]): Lease {
  const id = row.id as string
  const task = {
    id,
    owner: { tenant: row.tenant as string, principal: row.principal as string },
    head: row.head as string,
    createdAt: row.created_at as number,
    expiresAt: row.expires_at as number,
    pollMs: row.poll_ms as number,
    failures: row.failures as number,
    known: row.known === 1,
  }
  const slots = decodeSlots(row.inputs as string | null)
  return { fence: { id, epoch: row.epoch as number }, task, journal, slots }
}

/* What operators see of tasks, in SQL: nothing sealed. */

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
