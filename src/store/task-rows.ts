/**
 * The row of a task as the SQL stores read it: which columns, what is made of them, and reads that share a query.
 * SQLite returns numbers and 0 or 1 where PostgreSQL returns the text of a `bigint` and booleans; both are accepted.
 */

import { decodeSlots, openHooks, openInputs } from './input-slots.ts'
import type { NewTask, Sealed, TaskStatus, TaskView } from './task-engine.ts'
import type { Lease, TaskEnding, TaskSummary } from './task-store.ts'

type Row = Readonly<Record<string, unknown>>

/** The columns that `toView` reads, of the table `t`. */
export const VIEW_COLUMNS = `t.id, t.status, t.message, t.created_at, t.updated_at, t.expires_at, t.poll_ms, t.known, t.revision,
  t.outcome, CASE t.status WHEN 'input_required' THEN t.inputs END AS inputs`

/** The columns that `toLease` reads; a claim adds `taken_over`. */
export const LEASE_COLUMNS =
  'id, tenant, principal, head, inputs, created_at, expires_at, poll_ms, failures, epoch, known'

/** The columns that `toSummary` reads, except `entries`. */
export const SUMMARY_COLUMNS = `id, tenant, principal, status, created_at, updated_at, expires_at, failures, worker, due_at,
  CASE WHEN status IN ('working', 'input_required') THEN inputs END AS inputs`

export function toView(row: Row): TaskView {
  const status = row.status as TaskStatus
  const outcome = (row.outcome ?? undefined) as Sealed | undefined
  return {
    id: row.id as string,
    status,
    message: (row.message ?? undefined) as Sealed | undefined,
    createdAt: Number(row.created_at),
    updatedAt: Number(row.updated_at),
    expiresAt: Number(row.expires_at),
    pollMs: Number(row.poll_ms),
    known: Boolean(row.known),
    revision: Number(row.revision),
    inputs: openInputs(slotsOf(row)),
    result: status === 'completed' ? outcome : undefined,
    error: status === 'failed' ? outcome : undefined,
  }
}

/** `now` is the store's time; some rows have it as a column. */
export function toLease(row: Row, journal: readonly Sealed[], now: number = Number(row.now)): Lease {
  const id = row.id as string
  const task = {
    id,
    owner: ownerOf(row),
    head: row.head as string,
    createdAt: Number(row.created_at),
    expiresAt: Number(row.expires_at),
    pollMs: Number(row.poll_ms),
    failures: Number(row.failures),
    known: Boolean(row.known),
  }
  const lease = { fence: { id, epoch: Number(row.epoch) }, task, journal, slots: slotsOf(row), now }
  return row.taken_over ? { ...lease, takenOver: true } : lease
}

export function toSummary(row: Row): TaskSummary {
  const slots = slotsOf(row)
  return {
    id: row.id as string,
    owner: ownerOf(row),
    status: row.status as TaskStatus,
    createdAt: Number(row.created_at),
    updatedAt: Number(row.updated_at),
    expiresAt: Number(row.expires_at),
    failures: Number(row.failures),
    worker: (row.worker ?? undefined) as string | undefined,
    dueAt: row.due_at === null ? undefined : Number(row.due_at),
    openKeys: [...openInputs(slots).keys()],
    openHooks: openHooks(slots),
    entries: Number(row.entries),
  }
}

const ownerOf = (row: Row) => ({ tenant: row.tenant as string, principal: row.principal as string })
const slotsOf = (row: Row) => decodeSlots(row.inputs as string | null)

/** The lease of a task that was claimed in the write that created it. */
export function newLease(
  { id, owner, head, pollMs, journal = [], known = true }: NewTask,
  { createdAt, expiresAt }: TaskView,
): Lease {
  const task = { id, owner, head, createdAt, expiresAt, pollMs, failures: 0, known }
  return { fence: { id, epoch: 1 }, task, journal, slots: [], now: createdAt }
}

/** The columns `status` and `outcome` of a task that ended. */
export function endingColumns(ending: TaskEnding): [status: TaskStatus, outcome: Sealed | null] {
  return ending.kind === 'complete' ? ['completed', ending.result] : ['failed', ending.error ?? null]
}

/** Groups rows of `task` and `entry` by task, in the order of the rows. */
export function groupJournals(rows: readonly Row[]): Map<unknown, Sealed[]> {
  const journals = new Map<unknown, Sealed[]>()
  for (const { task, entry } of rows) {
    const journal = journals.get(task)
    if (journal === undefined) journals.set(task, [entry as Sealed])
    else journal.push(entry as Sealed)
  }
  return journals
}

interface Waiting<T, R> {
  readonly item: T
  readonly resolve: (result: R) => void
  readonly reject: (error: unknown) => void
}

/**
 * Batches the calls made in one turn of the event loop, so that a thousand small queries become a few. Each caller gets
 * its own result; if a batch fails, all of its callers get the error.
 */
export function createBatch<T, R>(
  run: (items: readonly T[]) => Promise<readonly R[]>,
  max = 256,
): (item: T) => Promise<R> {
  const waiting: Waiting<T, R>[] = []
  const flush = async () => {
    const batch = waiting.splice(0, max)
    if (waiting.length > 0) setImmediate(flush)
    try {
      const results = await run(batch.map(({ item }) => item))
      batch.forEach(({ resolve }, i) => {
        resolve(results[i] as R)
      })
    } catch (error) {
      for (const { reject } of batch) reject(error)
    }
  }
  return (item) =>
    new Promise((resolve, reject) => {
      if (waiting.length === 0) setImmediate(flush)
      waiting.push({ item, resolve, reject })
    })
}
