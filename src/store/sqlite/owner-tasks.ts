/** What owners do with tasks, in SQL. Runs inside the commit queue: a write sees no other write in between. */

import { answerSlots, createMomentBatch, decodeSlots, encodeSlots, openInputs } from '../input-slots.ts'
import type { Cancellation, NewTask, Sealed, TaskOwner, TaskStatus, TaskView } from '../task-engine.ts'
import type { Creation, Handover, Lease, OwnerTasks, Taker } from '../task-store.ts'
import type { SqlRow } from './driver.ts'
import { type SqliteSession, workerName } from './session.ts'
import { LEASE, toLease } from './worker-tasks.ts'

const VIEW = `t.id, t.status, t.message, t.created_at, t.updated_at, t.expires_at, t.poll_ms, t.known, t.revision, t.outcome,
  CASE t.status WHEN 'input_required' THEN t.inputs END AS inputs`

export function createOwnerTasks(session: SqliteSession): OwnerTasks {
  const { queue, now, hints } = session
  const ask = prepareQueries(session)
  const getMany = createMomentBatch((items: readonly [string, TaskOwner][]) =>
    queue.read(() => {
      const keys = items.map(([id, { tenant, principal }]) => [id, tenant, principal])
      const rows = ask.get.all(JSON.stringify(keys), now())
      const views = new Map(rows.map((row) => [row.at, toView(row)]))
      return items.map((_, at) => views.get(at))
    }),
  )

  const find = (id: string, { tenant, principal }: TaskOwner): Creation => {
    const view = toView(ask.get.all(JSON.stringify([[id, tenant, principal]]), now())[0])
    return view ? { kind: 'created', view } : { kind: 'conflict' }
  }
  const isFull = ({ tenant, principal }: TaskOwner, limit: number): boolean =>
    limit !== Number.POSITIVE_INFINITY &&
    Number(ask.countOpen.get(tenant, principal, now(), limit)?.open) >= limit

  const create = (task: NewTask, openLimit: number, taker: Taker | undefined): Creation => {
    const { id, owner, head, message = null, ttlMs, pollMs, journal = [], known = true } = task
    if (isFull(owner, openLimit)) return ask.exists.get(id) ? find(id, owner) : { kind: 'limit' }
    const at = now()
    const times = [at, at, at + ttlMs]
    const place = taker ? [1, workerName(taker.worker), at + taker.leaseMs] : [0, null, at]
    const given = [id, owner.tenant, owner.principal, message, head, ...times, pollMs, ...place]
    const made = ask.insert.run(...given, known ? 1 : 0)
    if (made === 0) return find(id, owner)
    journal.forEach((entry, seq) => void ask.append.run(id, seq, entry))
    const view = newView(task, at)
    return { kind: 'created', view, lease: taker && newLease(task, view) }
  }

  const deliver = (
    id: string,
    owner: TaskOwner,
    answers: ReadonlyMap<string, Sealed>,
    taker: Taker | undefined,
  ): Handover => {
    const row = ask.inputs.get(id, owner.tenant, owner.principal, now())
    if (row === undefined) return { kind: 'unknown' }
    if (row.status !== 'input_required') return { kind: 'idle' }
    const { slots, changed, open } = answerSlots(decodeSlots(row.inputs as string | null), answers)
    if (!changed) return { kind: 'partial' }
    const at = now()
    const inputs = encodeSlots(slots)
    if (open > 0) {
      ask.answer.run(inputs, at, id)
      return { kind: 'partial' }
    }
    const place = taker ? [workerName(taker.worker), at + taker.leaseMs, 1] : [null, at, 0]
    const [resumed] = ask.resume.all(inputs, at, ...place, id)
    return { kind: 'resumed', lease: taker && resumed && toLease(resumed, readJournal(id)) }
  }
  const readJournal = (id: string) => ask.journal.all(id).map((row) => row.entry as string)

  const cancel = (id: string, owner: TaskOwner): Cancellation => {
    const row = ask.inputs.get(id, owner.tenant, owner.principal, now())
    if (row === undefined) return 'unknown'
    if (row.status !== 'working' && row.status !== 'input_required') return 'ended'
    ask.cancel.run(now(), id)
    ask.dropJournal.run(id)
    return 'cancelled'
  }

  return {
    async create(task, openLimit, taker) {
      const creation = await queue.write(() => create(task, openLimit, taker))
      if (creation.kind === 'created' && !creation.lease) hints.tell({ kind: 'due' })
      return creation
    },
    get: (id, owner) => getMany([id, owner]),
    async deliver(id, owner, answers, taker) {
      const handover = await queue.write(() => deliver(id, owner, answers, taker))
      const { kind, lease } = handover
      if (kind === 'partial' || kind === 'resumed') hints.tell({ kind: 'changed', id })
      if (kind === 'resumed' && !lease) hints.tell({ kind: 'due' })
      return handover
    },
    async cancel(id, owner) {
      const cancellation = await queue.write(() => cancel(id, owner))
      if (cancellation === 'cancelled') hints.tell({ kind: 'changed', id })
      return cancellation
    },
    async confirm(id, owner) {
      const done = await queue.write(() => ask.confirm.run(now(), id, owner.tenant, owner.principal))
      if (done > 0) hints.tell({ kind: 'due' })
    },
    async revisions(ids) {
      const rows = await queue.read(() => ask.revisions.all(JSON.stringify(ids), now()))
      return new Map(rows.map((row) => [row.id as string, row.revision as number]))
    },
  }
}

function prepareQueries({ sql }: SqliteSession) {
  return {
    get: sql(`SELECT q.key AS at, ${VIEW} FROM json_each(?) q CROSS JOIN task t
      ON t.id = json_extract(q.value, '$[0]') AND t.tenant = json_extract(q.value, '$[1]')
      AND t.principal = json_extract(q.value, '$[2]') WHERE t.expires_at > ?`),
    exists: sql('SELECT 1 FROM task WHERE id = ?'),
    countOpen: sql(`SELECT count(*) AS open FROM (SELECT 1 FROM task WHERE tenant = ? AND principal = ?
      AND status IN ('working', 'input_required') AND expires_at > ? LIMIT ?)`),
    insert:
      sql(`INSERT OR IGNORE INTO task (id, tenant, principal, status, message, head, created_at, updated_at,
      expires_at, poll_ms, epoch, worker, due_at, known, revision, failures)
      VALUES (?, ?, ?, 'working', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 0)`),
    append: sql('INSERT INTO journal (task, seq, entry) VALUES (?, ?, ?)'),
    inputs: sql(
      'SELECT status, inputs FROM task WHERE id = ? AND tenant = ? AND principal = ? AND expires_at > ?',
    ),
    answer: sql('UPDATE task SET inputs = ?, updated_at = ?, revision = revision + 1 WHERE id = ?'),
    resume: sql(`UPDATE task SET inputs = ?, updated_at = ?, worker = ?, due_at = ?, epoch = epoch + ?,
      status = 'working', known = 1, revision = revision + 1 WHERE id = ? RETURNING ${LEASE}`),
    confirm: sql(`UPDATE task SET known = 1,
      due_at = CASE WHEN due_at IS NULL AND status = 'working' THEN ?1 ELSE due_at END
      WHERE id = ?2 AND tenant = ?3 AND principal = ?4 AND expires_at > ?1 AND known = 0`),
    journal: sql('SELECT entry FROM journal WHERE task = ? ORDER BY seq'),
    cancel: sql(`UPDATE task SET status = 'cancelled', worker = NULL, due_at = NULL, inputs = NULL, head = '',
      updated_at = ?, revision = revision + 1 WHERE id = ?`),
    dropJournal: sql('DELETE FROM journal WHERE task = ?'),
    revisions: sql(`SELECT t.id, t.revision FROM json_each(?) q CROSS JOIN task t ON t.id = q.value
      WHERE t.expires_at > ?`),
  }
}

function newLease(
  { id, owner, head, pollMs, journal = [], known = true }: NewTask,
  { createdAt, expiresAt }: TaskView,
): Lease {
  const task = { id, owner, head, createdAt, expiresAt, pollMs, failures: 0, known }
  return { fence: { id, epoch: 1 }, task, journal, slots: [] }
}

function newView({ id, message, pollMs, ttlMs, known = true }: NewTask, at: number): TaskView {
  const times = { createdAt: at, updatedAt: at, expiresAt: at + ttlMs }
  return { id, status: 'working', message, ...times, pollMs, known, revision: 1, inputs: new Map() }
}

function toView(row: SqlRow): TaskView
function toView(row: SqlRow | undefined): TaskView | undefined
function toView(row: SqlRow | undefined): TaskView | undefined {
  if (row === undefined) return undefined
  const status = row.status as TaskStatus
  const outcome = (row.outcome ?? undefined) as Sealed | undefined
  return {
    id: row.id as string,
    status,
    message: (row.message ?? undefined) as Sealed | undefined,
    createdAt: row.created_at as number,
    updatedAt: row.updated_at as number,
    expiresAt: row.expires_at as number,
    pollMs: row.poll_ms as number,
    known: row.known === 1,
    revision: row.revision as number,
    inputs: openInputs(decodeSlots(row.inputs as string | null)),
    result: status === 'completed' ? outcome : undefined,
    error: status === 'failed' ? outcome : undefined,
  }
}
