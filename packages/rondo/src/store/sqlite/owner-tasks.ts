/** The owner's side of tasks, in SQL. Runs inside the commit queue, so no other write comes between two statements. */

import {
  answerHook,
  answerSlots,
  decodeSlots,
  encodeSlots,
  type InputSlot,
  refusedHook,
  waitingStatus,
} from '../input-slots.ts'
import {
  type Cancellation,
  isOpen,
  type NewTask,
  type Sealed,
  type TaskOwner,
  type TaskView,
} from '../task-engine.ts'
import type { Creation, Handover, HookHandover, Lease, OwnerTasks, Taker } from '../task-store.ts'
import {
  createBatch,
  ENDED_BYTES,
  LEASE_COLUMNS,
  newLease,
  toLease,
  toView,
  VIEW_COLUMNS,
} from '../task-store.ts'
import type { SqliteDatabase } from './database.ts'
import { workerName } from './worker-tasks.ts'

export function createOwnerTasks(database: SqliteDatabase): OwnerTasks {
  const { queue, now, publish } = database
  const sql = createQueries(database)
  const find = (items: readonly [string, TaskOwner][]) => {
    const keys = items.map(([id, { tenant, principal }]) => [id, tenant, principal])
    const rows = sql.get.all(JSON.stringify(keys), now())
    const views = new Map(rows.map((row) => [row.at, toView(row)]))
    return items.map((_, at) => views.get(at))
  }
  const get = createBatch((items: readonly [string, TaskOwner][]) => queue.read(() => find(items)))

  const findCreated = (id: string, owner: TaskOwner): Creation => {
    const [view] = find([[id, owner]])
    return view ? { kind: 'created', view } : { kind: 'conflict' }
  }
  const isFull = ({ tenant, principal }: TaskOwner, limit: number): boolean =>
    limit !== Number.POSITIVE_INFINITY &&
    Number(sql.countOpen.get(tenant, principal, now(), limit)?.open) >= limit

  const create = (task: NewTask, openLimit: number, taker: Taker | undefined): Creation => {
    const { id, owner, head, message = null, ttlMs, pollMs, journal = [], known = true, tool = null } = task
    if (isFull(owner, openLimit)) return sql.exists.get(id) ? findCreated(id, owner) : { kind: 'limit' }
    const at = now()
    const times = [at, at, at + ttlMs]
    const free = tool === null || sql.paused.get(tool) === undefined
    const claim = taker && free ? [1, workerName(taker.worker), at + taker.leaseMs] : [0, null, at]
    const row = [id, owner.tenant, owner.principal, message, head, ...times, pollMs, ...claim]
    const inserted = sql.create.run(...row, known ? 1 : 0, tool)
    if (inserted === 0) return findCreated(id, owner)
    journal.forEach((entry, seq) => void sql.append.run(id, seq, entry))
    const view = newView(task, at)
    return { kind: 'created', view, lease: taker && free ? newLease(task, view) : undefined }
  }

  const answer = (id: string, slots: readonly InputSlot[], known: boolean): void =>
    void sql.answer.run(encodeSlots(slots), waitingStatus(slots), known ? 1 : 0, now(), id)
  /** Makes a parked task due, and claims it for the taker. */
  const wake = (id: string, wanted: Taker | undefined): Lease | undefined => {
    const at = now()
    const taker = wanted && sql.pausedTask.get(id) === undefined ? wanted : undefined
    const claim = taker ? [workerName(taker.worker), at + taker.leaseMs, 1] : [null, at, 0]
    const [done] = sql.wake.all(...claim, id)
    return taker && done && toLease(done, readJournal(id), at)
  }
  const deliver = (
    id: string,
    owner: TaskOwner,
    answers: ReadonlyMap<string, Sealed>,
    taker: Taker | undefined,
  ): Handover => {
    const row = sql.inputs.get(id, owner.tenant, owner.principal, now())
    if (row === undefined) return { kind: 'unknown' }
    if (!isOpen(row.status)) return { kind: 'idle' }
    const { slots, changed, open, wakes } = answerSlots(
      decodeSlots(row.inputs as string | null),
      answers,
      now(),
    )
    if (!changed) return { kind: row.status === 'input_required' ? 'partial' : 'idle' }
    const isRunning = row.worker !== null
    answer(id, slots, isRunning || wakes)
    if (isRunning) return { kind: open > 0 ? 'partial' : 'resumed' }
    return wakes ? { kind: 'resumed', lease: wake(id, taker) } : { kind: 'partial' }
  }
  const deliverHook = (
    id: string,
    owner: TaskOwner,
    key: string,
    event: Sealed,
    taker: Taker | undefined,
  ): HookHandover => {
    const row = sql.inputs.get(id, owner.tenant, owner.principal, now())
    if (row === undefined) return { kind: 'unknown' }
    if (!isOpen(row.status)) return { kind: 'closed' }
    const before = decodeSlots(row.inputs as string | null)
    const { slots, taken, changed } = answerHook(before, key, event, now())
    if (!changed) return { kind: taken > 0 ? 'accepted' : refusedHook(before, key) }
    answer(id, slots, false)
    return { kind: 'accepted', lease: row.worker === null ? wake(id, taker) : undefined }
  }
  const readJournal = (id: string) => sql.journal.all(id).map((row) => row.entry as string)

  const cancel = (id: string, owner: TaskOwner): Cancellation => {
    const row = sql.inputs.get(id, owner.tenant, owner.principal, now())
    if (row === undefined) return 'unknown'
    if (!isOpen(row.status)) return 'ended'
    sql.cancel.run(now(), id)
    sql.deleteJournal.run(id)
    return 'cancelled'
  }

  return {
    async create(task, openLimit, taker) {
      const creation = await queue.write(() => create(task, openLimit, taker))
      if (creation.kind === 'created' && !creation.lease) publish({ kind: 'due', count: 1 })
      return creation
    },
    get: (id, owner) => get([id, owner]),
    async deliver(id, owner, answers, taker) {
      const handover = await queue.write(() => deliver(id, owner, answers, taker))
      const { kind, lease } = handover
      if (kind === 'partial' || kind === 'resumed') publish({ kind: 'changed', id })
      if (kind === 'resumed' && !lease) publish({ kind: 'due', count: 1 })
      return handover
    },
    async deliverHook(id, owner, key, event, taker) {
      const handover = await queue.write(() => deliverHook(id, owner, key, event, taker))
      if (handover.kind === 'accepted') {
        publish({ kind: 'changed', id })
        if (!handover.lease) publish({ kind: 'due', count: 1 })
      }
      return handover
    },
    async slots(id, owner) {
      const row = await queue.read(() => sql.inputs.get(id, owner.tenant, owner.principal, now()))
      return row && isOpen(row.status) ? decodeSlots(row.inputs as string | null) : undefined
    },
    async cancel(id, owner) {
      const cancellation = await queue.write(() => cancel(id, owner))
      if (cancellation === 'cancelled') {
        publish({ kind: 'changed', id })
        // An alarm may follow the task.
        publish({ kind: 'due' })
      }
      return cancellation
    },
    async confirm(id, owner) {
      const changes = await queue.write(() => sql.confirm.run(now(), id, owner.tenant, owner.principal))
      if (changes > 0) publish({ kind: 'due', count: 1 })
    },
    async revisions(ids) {
      const rows = await queue.read(() => sql.revisions.all(JSON.stringify(ids), now()))
      return new Map(rows.map((row) => [row.id as string, row.revision as number]))
    },
  }
}

function createQueries({ sql }: SqliteDatabase) {
  return {
    get: sql(`SELECT q.key AS at, ${VIEW_COLUMNS} FROM json_each(?) q CROSS JOIN task t
      ON t.id = json_extract(q.value, '$[0]') AND t.tenant = json_extract(q.value, '$[1]')
      AND t.principal = json_extract(q.value, '$[2]') WHERE t.expires_at > ?`),
    countOpen: sql(`SELECT count(*) AS open FROM (SELECT 1 FROM task WHERE tenant = ? AND principal = ?
      AND status IN ('working', 'input_required') AND expires_at > ? LIMIT ?)`),
    create:
      sql(`INSERT OR IGNORE INTO task (id, tenant, principal, status, message, head, created_at, updated_at,
      expires_at, poll_ms, epoch, worker, due_at, known, tool, revision, failures)
      VALUES (?, ?, ?, 'working', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 0)`),
    paused: sql('SELECT 1 FROM pause WHERE tool = ?'),
    pausedTask: sql('SELECT 1 FROM task t JOIN pause p ON p.tool = t.tool WHERE t.id = ?'),
    append: sql('INSERT INTO journal (task, seq, entry) VALUES (?, ?, ?)'),
    exists: sql('SELECT 1 FROM task WHERE id = ?'),
    inputs: sql(
      'SELECT status, inputs, worker FROM task WHERE id = ? AND tenant = ? AND principal = ? AND expires_at > ?',
    ),
    answer: sql(`UPDATE task SET inputs = ?, status = ?, known = max(known, ?), updated_at = ?,
      revision = revision + 1 WHERE id = ?`),
    wake: sql(
      `UPDATE task SET worker = ?, due_at = ?, epoch = epoch + ? WHERE id = ? RETURNING ${LEASE_COLUMNS}`,
    ),
    journal: sql('SELECT entry FROM journal WHERE task = ? ORDER BY seq'),
    cancel: sql(`UPDATE task SET status = 'cancelled', worker = NULL, due_at = NULL, inputs = NULL, head = '',
      bytes = ${ENDED_BYTES} + coalesce(length(message), 0), updated_at = ?, revision = revision + 1 WHERE id = ?`),
    deleteJournal: sql('DELETE FROM journal WHERE task = ?'),
    confirm: sql(`UPDATE task SET known = 1,
      due_at = CASE WHEN due_at IS NULL AND status = 'working' THEN ?1 ELSE due_at END
      WHERE id = ?2 AND tenant = ?3 AND principal = ?4 AND expires_at > ?1 AND known = 0`),
    revisions: sql(`SELECT t.id, t.revision FROM json_each(?) q CROSS JOIN task t ON t.id = q.value
      WHERE t.expires_at > ?`),
  }
}

function newView({ id, message, pollMs, ttlMs, known = true }: NewTask, at: number): TaskView {
  const times = { createdAt: at, updatedAt: at, expiresAt: at + ttlMs }
  return { id, status: 'working', message, ...times, pollMs, known, revision: 1, inputs: new Map() }
}
