/** The owner's side of tasks, in SQL. Every change is one statement whose condition names the state it expects. */

import { RondoError } from '../../errors.ts'
import { answerSlots, decodeSlots, encodeSlots } from '../input-slots.ts'
import type { Cancellation, NewTask, Sealed, TaskOwner, TaskView } from '../task-engine.ts'
import { createBatch, LEASE_COLUMNS, newLease, toLease, toView, VIEW_COLUMNS } from '../task-rows.ts'
import type { Creation, Handover, OwnerTasks, Taker } from '../task-store.ts'
import { nowAt, type PostgresDatabase } from './database.ts'

/** Each lost race means that another answer was stored, so this bounds the keys of a task. */
const MAX_RACES = 1000

export function createOwnerTasks(database: PostgresDatabase): OwnerTasks {
  const { query, execute, now, publish } = database
  const sql = createQueries(database.schema)
  const get = createBatch(async (items: readonly [string, TaskOwner][]) => {
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
    const claim = [taker?.worker ?? null, taker?.leaseMs ?? null]
    const { rows, retried } = await execute(sql.create, [...row, limit, now(), journal, ...claim, known])
    const created = (view: TaskView, isOurs: boolean): Creation => ({
      kind: 'created',
      view,
      lease: taker && isOurs ? newLease(task, view) : undefined,
    })
    if (rows[0] !== undefined) return created(toView(rows[0]), true)
    const [same] = await query(sql.exists, [id])
    if (same === undefined) return { kind: 'limit' }
    const view = await get([id, owner])
    // Created by our first attempt, whose response was lost.
    const isOurs = retried && same.worker === taker?.worker && same.epoch === 1
    return view === undefined ? { kind: 'conflict' } : created(view, isOurs)
  }

  /** The lease that our first attempt took, if its response was lost. */
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
    const claim = [taker?.worker ?? null, taker?.leaseMs ?? 0]
    let claimed: number | undefined
    for (let race = 0; race < MAX_RACES; race++) {
      const [row] = await query(sql.inputs, [id, owner.tenant, owner.principal, now()])
      if (row === undefined) return { kind: 'unknown' }
      const { slots, taken, changed, open } = answerSlots(decodeSlots(row.inputs as string | null), answers)
      // Our answers may be stored already, if the connection was lost after the write.
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
      const [done] = await query(sql.resume, [...values, ...claim])
      if (done !== undefined)
        return { kind: 'resumed', lease: taker && toLease(done, done.journal as string[]) }
    }
    throw new RondoError('STORE_UNAVAILABLE', 'the task kept changing while answers were being added; retry')
  }

  return {
    async create(task, openLimit, taker) {
      const creation = await create(task, openLimit, taker)
      if (creation.kind === 'created' && !creation.lease) publish({ kind: 'due' })
      return creation
    },
    get: (id, owner) => get([id, owner]),
    async deliver(id, owner, answers, taker) {
      const handover = await deliver(id, owner, answers, taker)
      const { kind, lease } = handover
      if (kind === 'partial' || kind === 'resumed') publish({ kind: 'changed', id })
      if (kind === 'resumed' && !lease) publish({ kind: 'due' })
      return handover
    },
    async cancel(id, owner): Promise<Cancellation> {
      const [row] = await query(sql.cancel, [id, owner.tenant, owner.principal, now()])
      if (row !== undefined) {
        publish({ kind: 'changed', id })
        return 'cancelled'
      }
      return (await get([id, owner])) === undefined ? 'unknown' : 'ended'
    },
    async confirm(id, owner) {
      const rows = await query(sql.confirm, [id, owner.tenant, owner.principal, now()])
      if (rows.length > 0) publish({ kind: 'due' })
    },
    async revisions(ids) {
      const rows = await query(sql.revisions, [ids, now()])
      return new Map(rows.map((row) => [row.id as string, row.revision as number]))
    },
  }
}

function createQueries(schema: string) {
  const task = `${schema}.task`
  const journal = `${schema}.journal`
  const shown = `updated_at = ${nowAt('$3')}, revision = revision + 1`
  const waiting = `id = $1 AND revision = $2 AND status = 'input_required' AND expires_at > ${nowAt('$3')}`
  const entries = `ARRAY(SELECT entry FROM ${journal} WHERE task = done.id ORDER BY seq)`
  return {
    get: `SELECT q.at, ${VIEW_COLUMNS} FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY
      AS q (id, tenant, principal, at) JOIN ${task} t USING (id, tenant, principal)
      WHERE t.expires_at > ${nowAt('$4')}`,
    // A task that has a journal from the start begins at epoch 1, so that its first worker reads it.
    create: `WITH made AS (
      INSERT INTO ${task} AS t (id, tenant, principal, status, message, head, created_at, updated_at, expires_at, poll_ms,
        revision, epoch, failures, worker, due_at, known)
      SELECT $1, $2, $3, 'working', $4, $5, c.now, c.now, c.now + $6::bigint, $7::integer, 1,
        CASE WHEN $11::text IS NULL THEN least(cardinality($10::text[]), 1) ELSE 1 END, 0, $11::text,
        c.now + coalesce($12::bigint, 0), $13::boolean
      FROM (SELECT ${nowAt('$9')} AS now) c
      WHERE $8::bigint IS NULL OR $8::bigint > ${schema}.open_tasks($2, $3, c.now, $8::bigint)
      ON CONFLICT (id) DO NOTHING RETURNING ${VIEW_COLUMNS}
    ), written AS (
      INSERT INTO ${journal} (task, seq, entry) SELECT made.id, e.at - 1, e.entry
      FROM made, unnest($10::text[]) WITH ORDINALITY AS e (entry, at)
    ) SELECT * FROM made`,
    exists: `SELECT worker, epoch FROM ${task} WHERE id = $1`,
    inputs: `SELECT status, inputs, revision, epoch FROM ${task}
      WHERE id = $1 AND tenant = $2 AND principal = $3 AND expires_at > ${nowAt('$4')}`,
    answer: `UPDATE ${task} SET inputs = $4, ${shown} WHERE ${waiting} RETURNING 1`,
    // All entries were written before the worker parked the task, so none is missed here.
    resume: `WITH done AS (UPDATE ${task} SET inputs = $4, status = 'working', known = true, worker = $5::text,
        due_at = ${nowAt('$3')} + $6::bigint, epoch = epoch + ($5::text IS NOT NULL)::integer, ${shown}
        WHERE ${waiting} RETURNING ${LEASE_COLUMNS})
      SELECT done.*, ${entries} AS journal FROM done`,
    lease: `SELECT ${LEASE_COLUMNS}, ${entries} AS journal FROM ${task} AS done
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
