/** The owner's side of tasks, in SQL. Every change is one statement whose condition names the state it expects. */

import { RondoError } from '../../errors.ts'
import {
  answerHook,
  answerSlots,
  decodeSlots,
  encodeSlots,
  type InputSlot,
  refusedHook,
  waitingStatus,
} from '../input-slots.ts'
import type { Cancellation, NewTask, Sealed, TaskOwner, TaskView } from '../task-engine.ts'
import { createBatch, LEASE_COLUMNS, newLease, toLease, toView, VIEW_COLUMNS } from '../task-rows.ts'
import type { Creation, Handover, HookHandover, Lease, OwnerTasks, Taker } from '../task-store.ts'
import { nowAt, type PostgresDatabase } from './database.ts'
import type { PgRow } from './driver.ts'

/** Each lost race means that another answer was stored, so this bounds the keys of a task. */
const MAX_RACES = 1000

/** New slots to write, and what the write leads to. */
interface Changed<T> {
  readonly slots: readonly InputSlot[]
  readonly wakes: boolean
  /** The owner has shown that it knows the id. */
  readonly known: boolean
  readonly result: T
}

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
  const isOpen = (status: unknown): boolean => status === 'working' || status === 'input_required'
  const slotsOf = (row: PgRow) => decodeSlots(row.inputs as string | null)
  /**
   * Changes the slots of a task, again if it changed since it was read. `decide` returns the result if there is nothing to
   * write. `wakes`: the task is due if no worker has it.
   */
  const change = async <T extends { readonly lease?: Lease }>(
    [id, owner]: [id: string, owner: TaskOwner],
    taker: Taker | undefined,
    decide: (row: PgRow | undefined) => T | Changed<T>,
  ): Promise<T> => {
    let claimed: number | undefined
    for (let race = 0; race < MAX_RACES; race++) {
      const [row] = await query(sql.inputs, [id, owner.tenant, owner.principal, now()])
      const decided = decide(row)
      if (!('slots' in decided) || row === undefined) {
        const lease = claimed === undefined ? undefined : await findLease(id, claimed, taker)
        return lease ? { ...(decided as T), lease } : (decided as T)
      }
      const { slots, wakes, known, result } = decided
      const at = [id, row.revision, now(), row.epoch, encodeSlots(slots), waitingStatus(slots), known]
      if (row.worker !== null || !wakes) {
        if ((await query(sql.answer, at)).length > 0) return result
        continue
      }
      if (taker) claimed = (row.epoch as number) + 1
      const [done] = await query(sql.resume, [...at, taker?.worker ?? null, taker?.leaseMs ?? 0])
      if (done === undefined) continue
      return taker ? { ...result, lease: toLease(done, done.journal as string[]) } : result
    }
    throw new RondoError('STORE_UNAVAILABLE', 'the task kept changing while answers were being added; retry')
  }
  const deliver = (
    id: string,
    owner: TaskOwner,
    answers: ReadonlyMap<string, Sealed>,
    taker: Taker | undefined,
  ): Promise<Handover> =>
    change<Handover>([id, owner], taker, (row) => {
      if (row === undefined) return { kind: 'unknown' }
      if (!isOpen(row.status)) return { kind: 'idle' }
      const { slots, taken, changed, open, wakes } = answerSlots(slotsOf(row), answers, Number(row.now))
      // Our answers may be stored already, if the connection was lost after the write.
      const isOurs = answers.size > 0 && taken === answers.size
      if (!changed && row.status === 'working') return { kind: isOurs ? 'resumed' : 'idle' }
      if (!changed) return { kind: 'partial' }
      const isRunning = row.worker !== null
      const resumes = isRunning ? open === 0 : wakes
      return { slots, wakes, known: isRunning || wakes, result: { kind: resumes ? 'resumed' : 'partial' } }
    })
  const deliverHook = (
    id: string,
    owner: TaskOwner,
    key: string,
    event: Sealed,
    taker: Taker | undefined,
  ): Promise<HookHandover> =>
    change<HookHandover>([id, owner], taker, (row) => {
      if (row === undefined) return { kind: 'unknown' }
      const before = slotsOf(row)
      const { slots, taken, changed } = answerHook(before, key, event, Number(row.now))
      if (!changed) return { kind: taken > 0 ? 'accepted' : refusedHook(before, key) }
      return { slots, wakes: true, known: false, result: { kind: 'accepted' } }
    })

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
    async deliverHook(id, owner, key, event, taker) {
      const handover = await deliverHook(id, owner, key, event, taker)
      if (handover.kind === 'accepted') {
        publish({ kind: 'changed', id })
        if (!handover.lease) publish({ kind: 'due' })
      }
      return handover
    },
    async slots(id, owner) {
      const [row] = await query(sql.inputs, [id, owner.tenant, owner.principal, now()])
      return row && isOpen(row.status) ? slotsOf(row) : undefined
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
  // The revision changes with the slots and the status, the epoch with the worker.
  const unchanged = `id = $1 AND revision = $2 AND epoch = $4 AND expires_at > ${nowAt('$3')}`
  const answered = `inputs = $5, status = $6, known = known OR $7::boolean, ${shown}`
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
    inputs: `SELECT status, inputs, revision, epoch, worker, ${nowAt('$4')} AS now FROM ${task}
      WHERE id = $1 AND tenant = $2 AND principal = $3 AND expires_at > ${nowAt('$4')}`,
    answer: `UPDATE ${task} SET ${answered} WHERE ${unchanged} RETURNING 1`,
    // All entries were written before the worker parked the task, so none is missed here.
    resume: `WITH done AS (UPDATE ${task} SET ${answered}, worker = $8::text,
        due_at = ${nowAt('$3')} + $9::bigint, epoch = epoch + ($8::text IS NOT NULL)::integer
        WHERE ${unchanged} AND worker IS NULL RETURNING ${LEASE_COLUMNS}, ${nowAt('$3')} AS now)
      SELECT done.*, ${entries} AS journal FROM done`,
    lease: `SELECT ${LEASE_COLUMNS}, ${nowAt('$4')} AS now, ${entries} AS journal FROM ${task} AS done
      WHERE id = $1 AND epoch = $2 AND worker = $3 AND expires_at > ${nowAt('$4')}`,
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
