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
import { nowAt, type PostgresDatabase, toSeen } from './database.ts'
import type { PgRow } from './driver.ts'
import { createWriteGroup, groupUpdates, manyRows, oneRow } from './write-group.ts'

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
  const { query, now, publish, seenSlots, parkedHere } = database
  const sql = createQueries(database.schema)
  const groups = {
    create: createWriteGroup(database, sql.create),
    inputs: createWriteGroup(database, sql.inputs),
    answer: createWriteGroup(database, sql.answer),
    resume: createWriteGroup(database, sql.resume),
    confirm: createWriteGroup(database, sql.confirm),
  }
  const read = async (id: string, { tenant, principal }: TaskOwner) =>
    (await groups.inputs({ values: [id, tenant, principal] })).rows[0]
  const get = createBatch(async (items: readonly [string, TaskOwner][]) => {
    const ids = items.map(([id]) => id)
    const tenants = items.map(([, { tenant }]) => tenant)
    const principals = items.map(([, { principal }]) => principal)
    const rows = await query(sql.get, [ids, tenants, principals, now()])
    const views = new Map(rows.map((row) => [Number(row.at) - 1, toView(row)]))
    return items.map((_, at) => views.get(at))
  })

  const create = async (task: NewTask, openLimit: number, taker: Taker | undefined): Promise<Creation> => {
    const { id, owner, head, message = null, ttlMs, pollMs, journal = [], known = true, tool = null } = task
    const limit = openLimit === Number.POSITIVE_INFINITY ? null : openLimit
    const row = [id, owner.tenant, owner.principal, message, head, ttlMs, pollMs, limit]
    const claim = [taker?.worker ?? null, taker?.leaseMs ?? null]
    const values = [...row, ...claim, known, tool, journal.length]
    const { rows, retried } = await groups.create({ values, entries: journal })
    const created = (view: TaskView, isOurs: boolean): Creation => {
      if (!taker || !isOurs) return { kind: 'created', view }
      const lease = newLease(task, view)
      seenSlots.set(lease.fence, { revision: 1, inputs: null, ...owner })
      return { kind: 'created', view, lease }
    }
    // A task of a paused tool is not claimed.
    if (rows[0] !== undefined) return created(toView(rows[0]), rows[0].worker !== null)
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
      const guess = race === 0 ? parkedHere.take(id, owner) : undefined
      const row = guess ?? (await read(id, owner))
      const decided = decide(row)
      // Only a write finds out whether a guess is right.
      if (guess && !('slots' in decided)) continue
      if (!('slots' in decided) || row === undefined) {
        const lease = claimed === undefined ? undefined : await findLease(id, claimed, taker)
        return lease ? { ...(decided as T), lease } : (decided as T)
      }
      const { slots, wakes, known, result } = decided
      const values = [id, row.revision, row.epoch, encodeSlots(slots), waitingStatus(slots), known]
      if (row.worker !== null || !wakes) {
        if ((await groups.answer({ values })).rows.length > 0) return result
        continue
      }
      const claim = [taker?.worker ?? null, taker?.leaseMs ?? 0]
      const { rows, retried } = await groups.resume({ values: [...values, ...claim] })
      // Otherwise a lease of this epoch is that of another delivery, perhaps in this process.
      if (taker && retried) claimed = (row.epoch as number) + 1
      const [done] = rows
      if (done === undefined) continue
      if (!taker || done.worker === null) return result
      const lease = toLease(done, done.journal as string[])
      seenSlots.set(lease.fence, toSeen({ ...done, revision: (row.revision as number) + 1 }))
      return { ...result, lease }
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
      if (!isOpen(row.status)) return { kind: 'closed' }
      const before = slotsOf(row)
      const { slots, taken, changed } = answerHook(before, key, event, Number(row.now))
      if (!changed) return { kind: taken > 0 ? 'accepted' : refusedHook(before, key) }
      return { slots, wakes: true, known: false, result: { kind: 'accepted' } }
    })

  return {
    async create(task, openLimit, taker) {
      const creation = await create(task, openLimit, taker)
      if (creation.kind === 'created' && !creation.lease) publish({ kind: 'due', count: 1 })
      return creation
    },
    get: (id, owner) => get([id, owner]),
    async deliver(id, owner, answers, taker) {
      const handover = await deliver(id, owner, answers, taker)
      const { kind, lease } = handover
      if (kind === 'partial' || kind === 'resumed') publish({ kind: 'changed', id })
      if (kind === 'resumed' && !lease) publish({ kind: 'due', count: 1 })
      return handover
    },
    async deliverHook(id, owner, key, event, taker) {
      const handover = await deliverHook(id, owner, key, event, taker)
      if (handover.kind === 'accepted') {
        publish({ kind: 'changed', id })
        if (!handover.lease) publish({ kind: 'due', count: 1 })
      }
      return handover
    },
    async slots(id, owner) {
      const row = await read(id, owner)
      return row && isOpen(row.status) ? slotsOf(row) : undefined
    },
    async cancel(id, owner): Promise<Cancellation> {
      const [row] = await query(sql.cancel, [id, owner.tenant, owner.principal, now()])
      if (row !== undefined) {
        publish({ kind: 'changed', id })
        // An alarm may follow the task.
        publish({ kind: 'due' })
        return 'cancelled'
      }
      return (await get([id, owner])) === undefined ? 'unknown' : 'ended'
    },
    async confirm(id, owner) {
      const { rows } = await groups.confirm({ values: [id, owner.tenant, owner.principal] })
      if (rows.length > 0) publish({ kind: 'due', count: 1 })
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
  // The revision changes with the slots and the status, the epoch with the worker.
  const unchanged = `t.id = q.id AND t.revision = q.revision AND t.epoch = q.epoch AND t.expires_at > ${nowAt('$1')}`
  const answered = `inputs = q.inputs, status = q.status, known = t.known OR q.known, updated_at = ${nowAt('$1')},
    revision = t.revision + 1`
  const expected = {
    id: 'text',
    revision: 'integer',
    epoch: 'integer',
    inputs: 'text',
    status: 'text',
    known: 'boolean',
  }
  const entries = `ARRAY(SELECT entry FROM ${journal} WHERE task = done.id ORDER BY seq)`
  const owned = { id: 'text', tenant: 'text', principal: 'text' }
  const fresh = {
    ...owned,
    message: 'text',
    head: 'text',
    ttl: 'bigint',
    poll_ms: 'integer',
    open_limit: 'bigint',
    worker: 'text',
    lease: 'bigint',
    known: 'boolean',
    tool: 'text',
    entries: 'integer',
  }
  const isFree = (tool: string) => `NOT EXISTS (SELECT 1 FROM ${schema}.pause p WHERE p.tool = ${tool})`
  const leaseColumns = LEASE_COLUMNS.split(', ')
    .map((name) => `t.${name}`)
    .join(', ')
  // A task that has a journal from the start begins at epoch 1, so that its first worker reads it. Owners are locked in the
  // order of the rows, and `open_tasks` sees the tasks that this statement has already made.
  const create = (source: string, ids: string) => `WITH made AS (
      INSERT INTO ${task} AS t (id, tenant, principal, status, message, head, created_at, updated_at, expires_at, poll_ms,
        revision, epoch, failures, worker, due_at, known, tool)
      SELECT q.id, q.tenant, q.principal, 'working', q.message, q.head, ${nowAt('$1')}, ${nowAt('$1')},
        ${nowAt('$1')} + q.ttl, q.poll_ms, 1, CASE WHEN free.worker IS NULL THEN least(q.entries, 1) ELSE 1 END, 0,
        free.worker, ${nowAt('$1')} + CASE WHEN free.worker IS NULL THEN 0 ELSE q.lease END, q.known, q.tool
      FROM ${source} CROSS JOIN LATERAL (SELECT CASE WHEN ${isFree('q.tool')} THEN q.worker END AS worker) free
      WHERE q.open_limit IS NULL OR q.open_limit > ${schema}.open_tasks(q.tenant, q.principal, ${nowAt('$1')}, q.open_limit)
      ON CONFLICT (id) DO NOTHING RETURNING ${VIEW_COLUMNS}, t.worker
    ), listed AS (SELECT q.at, made.* FROM made JOIN ${ids} AS q (id, at) USING (id)
    ), written AS (
      INSERT INTO ${journal} (task, seq, entry) SELECT listed.id, e.seq, e.entry
      FROM listed JOIN unnest($15::bigint[], $16::integer[], $17::text[]) AS e (at, seq, entry) USING (at)
    ) SELECT * FROM listed`
  const inputsOf = (
    source: string,
  ) => `SELECT q.at, t.status, t.inputs, t.revision, t.epoch, t.worker, ${nowAt('$1')} AS now
    FROM ${source} JOIN ${task} t USING (id, tenant, principal) WHERE t.expires_at > ${nowAt('$1')}`
  return {
    get: `SELECT q.at, ${VIEW_COLUMNS} FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY
      AS q (id, tenant, principal, at) JOIN ${task} t USING (id, tenant, principal)
      WHERE t.expires_at > ${nowAt('$4')}`,
    create: {
      one: create(oneRow(fresh), '(SELECT $2::text, 1)'),
      many: create(manyRows(fresh), 'unnest($2::text[]) WITH ORDINALITY'),
      entries: true,
      order: [1, 2, 0],
    },
    exists: `SELECT worker, epoch FROM ${task} WHERE id = $1`,
    inputs: { reads: true, one: inputsOf(oneRow(owned)), many: inputsOf(manyRows(owned)) },
    answer: groupUpdates(expected, { task, where: unchanged, set: answered }),
    // All entries were written before the worker parked the task, so none is missed here.
    resume: groupUpdates(
      { ...expected, worker: 'text', lease: 'bigint' },
      {
        task,
        where: `${unchanged} AND t.worker IS NULL`,
        set: `${answered}, worker = CASE WHEN ${isFree('t.tool')} THEN q.worker END,
          due_at = ${nowAt('$1')} + CASE WHEN ${isFree('t.tool')} THEN q.lease ELSE 0 END,
          epoch = t.epoch + (q.worker IS NOT NULL AND ${isFree('t.tool')})::integer`,
        returning: `${leaseColumns}, t.worker, ${nowAt('$1')} AS now`,
        select: `, ${entries} AS journal`,
      },
    ),
    lease: `SELECT ${LEASE_COLUMNS}, ${nowAt('$4')} AS now, ${entries} AS journal FROM ${task} AS done
      WHERE id = $1 AND epoch = $2 AND worker = $3 AND expires_at > ${nowAt('$4')}`,
    cancel: `WITH done AS (
      UPDATE ${task} SET status = 'cancelled', worker = NULL, due_at = NULL, inputs = NULL, head = '',
        bytes = ${ENDED_BYTES} + coalesce(length(message), 0), updated_at = ${nowAt('$4')}, revision = revision + 1
      WHERE id = $1 AND tenant = $2 AND principal = $3 AND status IN ('working', 'input_required')
        AND expires_at > ${nowAt('$4')} RETURNING id
    ), gone AS (DELETE FROM ${journal} USING done WHERE task = done.id)
    SELECT id FROM done`,
    confirm: groupUpdates(owned, {
      task,
      where: `t.id = q.id AND t.tenant = q.tenant AND t.principal = q.principal AND t.expires_at > ${nowAt('$1')}
        AND NOT t.known`,
      set: `known = true,
        due_at = CASE WHEN t.due_at IS NULL AND t.status = 'working' THEN ${nowAt('$1')} ELSE t.due_at END`,
    }),
    revisions: `SELECT id, revision FROM ${task} WHERE id = ANY ($1::text[]) AND expires_at > ${nowAt('$2')}`,
  }
}
