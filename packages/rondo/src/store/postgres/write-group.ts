/**
 * Groups the changes of many tasks that are due in one moment: one statement, one commit, one round trip for all of them.
 *
 * A change that finds nothing in progress is sent at once, as a statement of its own. Changes that arrive while statements
 * are in progress share the next one. Every caller gets the outcome of its own change.
 *
 * group 1: a statement changes a task at most once; changes of one task keep their order.
 * group 2: a statement for many never waits for a lock, so it cannot deadlock and a locked row does not delay its
 *          neighbours: what it did not change is tried again alone, by the statement that waits.
 * group 3: a change that the database refuses fails alone: a group that fails is divided until the culprit is found.
 * group 4: if the connection is lost, nobody knows which changes took effect. All are sent again and marked `retried`; their
 *          callers find out. A change waits no longer than `retryMs` for the database to come back.
 * group 5: a group has bounded numbers of rows and bytes, and few groups of a kind are in progress.
 */

import type { PostgresDatabase } from './database.ts'
import { type Execution, type PgRow, pause, toStoreError } from './driver.ts'

/** One kind of change. `$1` is the time; the values of a change follow, in `many` as one array for each column. */
export interface GroupedStatement {
  /** Returns no row, or one. Waits for locks. */
  readonly one: string
  /** Returns `at`, counted from 1, with each row that was changed. Skips rows that are locked. */
  readonly many: string
  /** It reads without locks: a row that `many` did not find is not there. */
  readonly reads?: boolean
  /** Whether three arrays with the journal entries of all changes come last: `at`, position, entry. */
  readonly entries?: boolean
  /** The columns by which the rows of `many` are sorted, for statements that lock something besides rows. */
  readonly order?: readonly number[]
}

/** The names and types of the values of a change, in order; `id` first. */
export type Columns = Readonly<Record<string, string>>

/** The change as `q`, from the second parameter on. */
export function oneRow(columns: Columns): string {
  const list = Object.entries(columns).map(([name, type], i) => `$${i + 2}::${type} AS ${name}`)
  return `(SELECT 1 AS at, ${list.join(', ')}) q`
}

/** All changes as `q`. */
export function manyRows(columns: Columns): string {
  const arrays = Object.values(columns).map((type, i) => `$${i + 2}::${type}[]`)
  return `unnest(${arrays.join(', ')}) WITH ORDINALITY AS q (${Object.keys(columns).join(', ')}, at)`
}

export interface RowChange {
  readonly task: string
  /** The row `t` of the table that a change `q` is about, and the state that it expects. */
  readonly where: string
  readonly set: string
  /** Further statements of the same transaction; `done` has the changed rows. */
  readonly also?: string
  /** Columns to return, of `t`. */
  readonly returning?: string
  /** More columns, of `done`. */
  readonly select?: string
}

/** Updates of tasks. The check and the lock come first, so that what was checked is what is changed. */
export function groupUpdates(
  columns: Columns,
  { task, where, set, also = '', returning = 't.id', select = '' }: RowChange,
): GroupedStatement {
  const last = `${also} SELECT done.*${select} FROM done`
  return {
    one: `WITH done AS (UPDATE ${task} t SET ${set} FROM ${oneRow(columns)} WHERE ${where}
      RETURNING q.at, ${returning})${last}`,
    many: `WITH held AS (SELECT q.* FROM ${manyRows(columns)} JOIN ${task} t ON ${where} FOR UPDATE OF t SKIP LOCKED),
      done AS (UPDATE ${task} t SET ${set} FROM held q WHERE t.id = q.id RETURNING q.at, ${returning})${last}`,
  }
}

/** The change of one task. */
export interface GroupedChange {
  /** The id of the task comes first. */
  readonly values: readonly unknown[]
  readonly entries?: readonly string[]
  /** The position of the first entry. */
  readonly from?: number
}

interface Item extends GroupedChange {
  readonly bytes: number
  readonly since: number
  retried: boolean
  readonly resolve: (execution: Execution) => void
  readonly reject: (error: unknown) => void
}

const MAX_ROWS = 256
const MAX_BYTES = 1024 * 1024
/** While one statement waits for its commit, the next one is prepared by the database. */
const IN_PROGRESS = 2

export function createWriteGroup(
  { pool, ready, now }: Pick<PostgresDatabase, 'pool' | 'ready' | 'now'>,
  statement: GroupedStatement,
): (change: GroupedChange) => Promise<Execution> {
  let waiting: Item[] = []
  /** The tasks whose changes are on their way: their next ones wait (group 1). */
  const busy = new Set<unknown>()
  let scheduled = false
  let inProgress = 0

  const sendOne = async (item: Item): Promise<void> => {
    try {
      const { rows, retried } = await pool.query(statement.one, toValues(item, now()), item.since)
      item.resolve({ rows, retried: retried || item.retried })
    } catch (error) {
      item.reject(toStoreError(error))
    }
  }
  const sendMany = async (items: readonly Item[], tries: number): Promise<void> => {
    let rows: PgRow[]
    try {
      rows = await pool.attempt(statement.many, toArrays(statement, items, now()))
    } catch (error) {
      if (!pool.mayRetry(error)) return divide(items, tries)
      await new Promise((resolve) => setTimeout(resolve, pause(tries)))
      for (const item of items) item.retried = true
      const left = items.filter((item) => pool.mayStillRetry(item.since) || item.reject(toStoreError(error)))
      return send(left, tries + 1)
    }
    const found = new Map(rows.map((row) => [Number(row.at), row]))
    items.forEach((item, i) => {
      const row = found.get(i + 1)
      if (row !== undefined) item.resolve({ rows: [row], retried: item.retried })
      else if (statement.reads) item.resolve({ rows: [], retried: item.retried })
      else void sendOne(item)
    })
  }
  const divide = async (items: readonly Item[], tries: number): Promise<void> => {
    const half = Math.ceil(items.length / 2)
    await send(items.slice(0, half), tries)
    await send(items.slice(half), tries)
  }
  const send = async (items: readonly Item[], tries = 0): Promise<void> => {
    const [first, second] = items
    if (first === undefined) return
    const closed = pool.closed()
    if (closed) return items.forEach(({ reject }) => void reject(closed))
    await (second === undefined ? sendOne(first) : sendMany(items, tries))
  }
  const flush = () => {
    scheduled = false
    const closed = pool.closed()
    if (closed) for (const item of waiting.splice(0)) item.reject(closed)
    while (inProgress < IN_PROGRESS && waiting.length > 0) {
      const { batch, rest } = take(waiting, busy)
      if (batch.length === 0) return
      waiting = rest
      if (!statement.reads) for (const { values } of batch) busy.add(values[0])
      inProgress++
      if (statement.order) batch.sort(byColumns(statement.order))
      void send(batch).finally(() => {
        inProgress--
        schedule()
      })
    }
  }
  const schedule = () => {
    if (scheduled || inProgress >= IN_PROGRESS || waiting.length === 0) return
    scheduled = true
    setImmediate(flush)
  }
  return async (change) => {
    await ready()
    return new Promise((resolve, reject) => {
      const settled = (): void => {
        if (busy.delete(change.values[0])) schedule()
      }
      const item: Item = {
        ...change,
        bytes: bytesOf(change),
        since: performance.now(),
        retried: false,
        resolve(execution) {
          settled()
          resolve(execution)
        },
        reject(error) {
          settled()
          reject(error)
        },
      }
      waiting.push(item)
      schedule()
    })
  }
}

/** The first changes, of different tasks, none of them busy, that fit into one statement. */
function take(waiting: readonly Item[], busy: ReadonlySet<unknown>): { batch: Item[]; rest: Item[] } {
  const batch: Item[] = []
  const rest: Item[] = []
  const ids = new Set<unknown>(busy)
  let bytes = 0
  for (const item of waiting) {
    const [id] = item.values
    const fits = batch.length === 0 || (batch.length < MAX_ROWS && bytes + item.bytes <= MAX_BYTES)
    if (fits && !ids.has(id)) {
      batch.push(item)
      bytes += item.bytes
    } else rest.push(item)
    ids.add(id)
  }
  return { batch, rest }
}

function byColumns(columns: readonly number[]): (a: Item, b: Item) => number {
  const textOf = ({ values }: Item) => columns.map((column) => values[column]).join('\n')
  return (a, b) => (textOf(a) < textOf(b) ? -1 : 1)
}

function bytesOf({ values, entries = [] }: GroupedChange): number {
  return [...values, ...entries].reduce<number>(
    (sum, value) => sum + (typeof value === 'string' ? value.length : 8),
    0,
  )
}

function toValues({ values, entries, from = 0 }: GroupedChange, at: number | null): unknown[] {
  return entries === undefined
    ? [at, ...values]
    : [at, ...values, entries.map(() => 1), entries.map((_, i) => from + i), entries]
}

function toArrays({ entries }: GroupedStatement, items: readonly Item[], at: number | null): unknown[] {
  const columns = (items[0]?.values ?? []).map((_, column) => items.map(({ values }) => values[column]))
  if (!entries) return [at, ...columns]
  const rows = items.flatMap(({ entries: list = [], from = 0 }, i) =>
    list.map((entry, n) => [i + 1, from + n, entry] as const),
  )
  return [
    at,
    ...columns,
    rows.map(([row]) => row),
    rows.map(([, seq]) => seq),
    rows.map(([, , entry]) => entry),
  ]
}
