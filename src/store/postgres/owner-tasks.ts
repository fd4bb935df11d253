/** What owners do with tasks, in SQL. Every change is one statement that names what it expects to find. */

import { RondoError } from '../../errors.ts'
import { answerSlots, createMomentBatch, decodeSlots, encodeSlots, openInputs } from '../input-slots.ts'
import type { Cancellation, NewTask, Sealed, TaskOwner, TaskStatus, TaskView } from '../task-engine.ts'
import type { Creation, Handover, Lease, OwnerTasks, Taker } from '../task-store.ts'
import type { PgRow } from './driver.ts'
import { nowAt, type PostgresSession } from './session.ts'
import { LEASE, toLease } from './worker-tasks.ts'

/** Each lost race means that somebody else's answer landed, so a task with this many keys is the bound. */
const MAX_RACES = 1000

export function createOwnerTasks(session: PostgresSession): OwnerTasks {
  const { query, ask, now, tell } = session
  const sql = writeQueries(session.schema)
  const get = createMomentBatch(async (items: readonly [string, TaskOwner][]) => {
    const ids = items.map(([id]) => id)
    const tenants = items.map(([, { tenant }]) => tenant)
    const principals = items.map(([, { principal }]) => principal)
    const rows = await query(sql.get, [ids, tenants, principals, now()])
    const views = new Map(rows.map((row) => [Number(row.at) - 1, toView(row)]))
    return items.map((_, at) => views.get(at))
  })

  const create = async (task: NewTask, openLimit: number, taker: Taker | undefined): Promise<Creation> => {
    const { id, owner, head, message = null, ttlMs, pollMs, journal = [], known = true } = task
    const limit = openLimit === Number.POSITIVE_INFINITY ? null : openLimit
    const row = [id, owner.tenant, owner.principal, message, head, ttlMs, pollMs]
    const place = [taker?.worker ?? null, taker?.leaseMs ?? null]
    const { rows, retried } = await ask(sql.create, [...row, limit, now(), journal, ...place, known])
    const created = (view: TaskView, isOurs: boolean): Creation => ({
      kind: 'created',
      view,
      lease: taker && isOurs ? newLease(task, view) : undefined,
    })
    if (rows[0] !== undefined) return created(toView(rows[0]), true)
    const [same] = await query(sql.exists, [id])
    if (same === undefined) return { kind: 'limit' }
    const view = await get([id, owner])
    // Made by our first try, whose answer got lost.
    const isOurs = retried && same.worker === taker?.worker && same.epoch === 1
    return view === undefined ? { kind: 'conflict' } : created(view, isOurs)
  }

  /** The lease that a first try of ours took, if its answer got lost. */
  const findLease = async (id: string, epoch: number | undefined, taker: Taker | undefined) => {
    if (!taker || epoch === undefined) return undefined
    const [row] = await query(sql.lease, [id, epoch, taker.worker, now()])
    return row && toLease(row, row.journal as string[])
  }
  const deliver = async (
    id: string,
    owner: TaskOwner,
    answers: ReadonlyMap<string, Sealed>,
    taker: Taker | undefined,
  ): Promise<Handover> => {
    const place = [taker?.worker ?? null, taker?.leaseMs ?? 0]
    let claimed: number | undefined
    for (let race = 0; race < MAX_RACES; race++) {
      const [row] = await query(sql.inputs, [id, owner.tenant, owner.principal, now()])
      if (row === undefined) return { kind: 'unknown' }
      const { slots, taken, changed, open } = answerSlots(decodeSlots(row.inputs as string | null), answers)
      // Our own answers may be there already, if the connection was lost after they were written.
      const isOurs = answers.size > 0 && taken === answers.size
      if (row.status === 'working' && isOurs)
        return { kind: 'resumed', lease: await findLease(id, claimed, taker) }
      if (row.status !== 'input_required') return { kind: 'idle' }
      if (!changed) return { kind: 'partial' }
      const values = [id, row.revision, now(), encodeSlots(slots)]
      if (open > 0) {
        if ((await query(sql.answer, values)).length > 0) return { kind: 'partial' }
        continue
      }
      claimed = (row.epoch as number) + 1
      const [done] = await query(sql.resume, [...values, ...place])
      if (done !== undefined)
        return { kind: 'resumed', lease: taker && toLease(done, done.journal as string[]) }
    }
    throw new RondoError('STORE_UNAVAILABLE', 'a task changed faster than answers could be added')
  }

  return {
    async create(task, openLimit, taker) {
      const creation = await create(task, openLimit, taker)
      if (creation.kind === 'created' && !creation.lease) tell({ kind: 'due' })
      return creation
    },
    get: (id, owner) => get([id, owner]),
    async deliver(id, owner, answers, taker) {
      const handover = await deliver(id, owner, answers, taker)
      const { kind, lease } = handover
      if (kind === 'partial' || kind === 'resumed') tell({ kind: 'changed', id })
      if (kind === 'resumed' && !lease) tell({ kind: 'due' })
      return handover
    },
    async cancel(id, owner): Promise<Cancellation> {
      const [row] = await query(sql.cancel, [id, owner.tenant, owner.principal, now()])
      if (row !== undefined) {
        tell({ kind: 'changed', id })
        return 'cancelled'
      }
      return (await get([id, owner])) === undefined ? 'unknown' : 'ended'
    },
    async confirm(id, owner) {
      const rows = await query(sql.confirm, [id, owner.tenant, owner.principal, now()])
      if (rows.length > 0) tell({ kind: 'due' })
    },
    async revisions(ids) {
      const rows = await query(sql.revisions, [ids, now()])
      return new Map(rows.map((row) => [row.id as string, row.revision as number]))
    },
  }
}

const VIEW = `t.id, t.status, t.message, t.created_at, t.updated_at, t.expires_at, t.poll_ms, t.known, t.revision, t.outcome,
  CASE t.status WHEN 'input_required' THEN t.inputs END AS inputs`

function writeQueries(schema: string) {
  const task = `${schema}.task`
  const journal = `${schema}.journal`
  const shown = `updated_at = ${nowAt('$3')}, revision = revision + 1`
  const waiting = `id = $1 AND revision = $2 AND status = 'input_required' AND expires_at > ${nowAt('$3')}`
  const entries = `ARRAY(SELECT entry FROM ${journal} WHERE task = done.id ORDER BY seq)`
  return {
    get: `SELECT q.at, ${VIEW} FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY
      AS q (id, tenant, principal, at) JOIN ${task} t USING (id, tenant, principal)
      WHERE t.expires_at > ${nowAt('$4')}`,
    // A task that begins with a journal begins at epoch 1: its first worker knows that there is one to read.
    create: `WITH made AS (
      INSERT INTO ${task} AS t (id, tenant, principal, status, message, head, created_at, updated_at, expires_at, poll_ms,
        revision, epoch, failures, worker, due_at, known)
      SELECT $1, $2, $3, 'working', $4, $5, c.now, c.now, c.now + $6::bigint, $7::integer, 1,
        CASE WHEN $11::text IS NULL THEN least(cardinality($10::text[]), 1) ELSE 1 END, 0, $11::text,
        c.now + coalesce($12::bigint, 0), $13::boolean
      FROM (SELECT ${nowAt('$9')} AS now) c
      WHERE $8::bigint IS NULL OR $8::bigint > ${schema}.open_tasks($2, $3, c.now, $8::bigint)
      ON CONFLICT (id) DO NOTHING RETURNING ${VIEW}
    ), written AS (
      INSERT INTO ${journal} (task, seq, entry) SELECT made.id, e.at - 1, e.entry
      FROM made, unnest($10::text[]) WITH ORDINALITY AS e (entry, at)
    ) SELECT * FROM made`,
    exists: `SELECT worker, epoch FROM ${task} WHERE id = $1`,
    inputs: `SELECT status, inputs, revision, epoch FROM ${task}
      WHERE id = $1 AND tenant = $2 AND principal = $3 AND expires_at > ${nowAt('$4')}`,
    answer: `UPDATE ${task} SET inputs = $4, ${shown} WHERE ${waiting} RETURNING 1`,
    // The worker that parked it had written all entries before that revision came to be, so none can be missed here.
    resume: `WITH done AS (UPDATE ${task} SET inputs = $4, status = 'working', known = true, worker = $5::text,
        due_at = ${nowAt('$3')} + $6::bigint, epoch = epoch + ($5::text IS NOT NULL)::integer, ${shown}
        WHERE ${waiting} RETURNING ${LEASE})
      SELECT done.*, ${entries} AS journal FROM done`,
    lease: `SELECT ${LEASE}, ${entries} AS journal FROM ${task} AS done
      WHERE id = $1 AND epoch = $2 AND worker = $3 AND status = 'working' AND expires_at > ${nowAt('$4')}`,
    cancel: `WITH done AS (
      UPDATE ${task} SET status = 'cancelled', worker = NULL, due_at = NULL, inputs = NULL, head = '',
        updated_at = ${nowAt('$4')}, revision = revision + 1
      WHERE id = $1 AND tenant = $2 AND principal = $3 AND status IN ('working', 'input_required')
        AND expires_at > ${nowAt('$4')} RETURNING id
    ), gone AS (DELETE FROM ${journal} USING done WHERE task = done.id)
    SELECT id FROM done`,
    confirm: `UPDATE ${task} SET known = true,
        due_at = CASE WHEN due_at IS NULL AND status = 'working' THEN ${nowAt('$4')} ELSE due_at END
      WHERE id = $1 AND tenant = $2 AND principal = $3 AND expires_at > ${nowAt('$4')} AND NOT known RETURNING 1`,
    revisions: `SELECT id, revision FROM ${task} WHERE id = ANY ($1::text[]) AND expires_at > ${nowAt('$2')}`,
  }
}

function newLease(
  { id, owner, head, pollMs, journal = [], known = true }: NewTask,
  { createdAt, expiresAt }: TaskView,
): Lease {
  const task = { id, owner, head, createdAt, expiresAt, pollMs, failures: 0, known }
  return { fence: { id, epoch: 1 }, task, journal, slots: [] }
}

function toView(row: PgRow): TaskView {
  const status = row.status as TaskStatus
  const outcome = (row.outcome ?? undefined) as Sealed | undefined
  return {
    id: row.id as string,
    status,
    message: (row.message ?? undefined) as Sealed | undefined,
    createdAt: Number(row.created_at),
    updatedAt: Number(row.updated_at),
    expiresAt: Number(row.expires_at),
    pollMs: row.poll_ms as number,
    known: row.known === true,
    revision: row.revision as number,
    inputs: openInputs(decodeSlots(row.inputs as string | null)),
    result: status === 'completed' ? outcome : undefined,
    error: status === 'failed' ? outcome : undefined,
  }
}
