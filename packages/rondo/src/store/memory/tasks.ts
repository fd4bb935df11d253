/** Tasks in the memory of this process: for tests, and as the simplest implementation of `TaskStore`. */

import {
  answerHook,
  answerSlots,
  encodeSlots,
  type InputSlot,
  mergeSlots,
  openHooks,
  openInputs,
  refusedHook,
  waitingStatus,
} from '../input-slots.ts'
import {
  isOpen,
  type NewTask,
  type Sealed,
  type TaskOwner,
  type TaskStatus,
  type TaskView,
} from '../task-engine.ts'
import {
  createHintBus,
  ENDED_BYTES,
  type Fence,
  type Hint,
  type HintBus,
  type Lease,
  type OperatorTasks,
  type OwnerTasks,
  type Taker,
  type TaskStore,
  type TaskSummary,
  type WorkerTasks,
} from '../task-store.ts'

/** A task as one value, which survives `JSON.stringify`. Stores may index it by what they search for, and must not change it. */
export interface TaskRow {
  readonly id: string
  readonly owner: TaskOwner
  status: TaskStatus
  message: Sealed | undefined
  head: Sealed
  readonly pollMs: number
  readonly createdAt: number
  updatedAt: number
  expiresAt: number
  known: boolean
  revision: number
  epoch: number
  failures: number
  worker: string | undefined
  /** When a worker may claim the task; the end of the lease while one runs it. */
  dueAt: number | undefined
  slots: readonly InputSlot[]
  readonly journal: Sealed[]
  result: Sealed | undefined
  error: Sealed | undefined
  /** The tool, by which an operator finds and pauses tasks. */
  readonly tool?: string
  /** How long an ended task keeps what its turns needed. */
  keptUntil?: number
  /** The labels, and the tags by which an operator finds them. */
  labels?: Sealed
  tags?: readonly string[]
}

/** The rows of tasks, and the few ways in which a row changes. */
export interface MemoryTable {
  readonly now: () => number
  readonly hints: HintBus
  all(): TaskRow[]
  add(task: NewTask): TaskRow
  /** True even for a row that has expired and is not yet deleted. */
  has(id: string): boolean
  live(id: string): TaskRow | undefined
  owned(id: string, owner: TaskOwner): TaskRow | undefined
  fenced(fence: Fence): TaskRow | undefined
  /** Increases the revision after a change that the owner can see. */
  show(row: TaskRow): void
  /** The tools whose tasks no worker claims. */
  readonly paused: Set<string>
  /** Releases the row; it is due at `at`, or not at all. */
  rest(row: TaskRow, at?: number): void
  /** Ends the task; `keepMs` is how long it keeps what its turns needed. */
  end(row: TaskRow, status: TaskStatus, keepMs?: number): void
  delete(row: TaskRow): void
  /** Calls the listener whenever a task has ended, or is open again. */
  onStatus(listener: (row: TaskRow) => void): void
  /** Opens a task again that had ended. */
  reopen(row: TaskRow): void
  sweep(limit: number): number
}

export function createMemoryTasks(table: MemoryTable): TaskStore {
  return {
    pollMs: 100,
    onHint: table.hints.onHint,
    ...createOwnerTasks(table),
    ...createWorkerTasks(table),
    ...createOperatorTasks(table),
  }
}

/** The outcome of a change of rows. */
export interface RowsChange<T> {
  readonly result: T
  /** The rows that are new or changed, to be written before anybody learns the result. */
  readonly changed: readonly TaskRow[]
  /** The ids of the rows to be deleted. */
  readonly deleted: readonly string[]
  /** To be published when the rows are written. */
  readonly hints: readonly Hint[]
}

/**
 * Runs a method of a store on copies of rows, for databases that keep a task as one value: read the rows that the method is
 * about, run it here, write what changed, in one transaction.
 *
 * @example
 * ```ts
 * const { result, changed } = await changeRows(rows, Date.now(), (tasks) => tasks.cancel(id, owner))
 * for (const row of changed) values.set(row.id, JSON.stringify(row))
 * ```
 */
export async function changeRows<T>(
  rows: readonly TaskRow[],
  now: number,
  change: (tasks: TaskStore) => Promise<T>,
): Promise<RowsChange<T>> {
  const before = new Map(rows.map((row) => [row.id, JSON.stringify(row)]))
  const table = createMemoryTable(
    () => now,
    rows.map((row) => ({ ...row, journal: [...row.journal] })),
  )
  const hints: Hint[] = []
  table.hints.onHint((hint) => hints.push(hint))
  const result = await change(createMemoryTasks(table))
  const changed = table.all().filter((row) => JSON.stringify(row) !== before.get(row.id))
  return { result, changed, deleted: [...before.keys()].filter((id) => !table.has(id)), hints }
}

function createOwnerTasks(table: MemoryTable): OwnerTasks {
  return {
    async create(task, openLimit, taker) {
      const same = table.owned(task.id, task.owner)
      if (same) return { kind: 'created', view: toView(same) }
      if (table.has(task.id)) return { kind: 'conflict' }
      const open = table.all().filter((row) => isOpen(row.status) && table.owned(row.id, task.owner))
      if (open.length >= openLimit) return { kind: 'limit' }
      const row = table.add(task)
      if (taker && !isPaused(table, row))
        return { kind: 'created', view: toView(row), lease: take(table, row, taker) }
      table.hints.publish({ kind: 'due', count: 1 })
      return { kind: 'created', view: toView(row) }
    },
    async get(id, owner) {
      const row = table.owned(id, owner)
      return row && toView(row)
    },
    async deliver(id, owner, answers, taker) {
      const row = table.owned(id, owner)
      if (row === undefined) return { kind: 'unknown' }
      if (!isOpen(row.status)) return { kind: 'idle' }
      const { slots, changed, open, wakes } = answerSlots(row.slots, answers, table.now())
      if (!changed) return { kind: row.status === 'input_required' ? 'partial' : 'idle' }
      const running = row.worker !== undefined
      Object.assign(row, { slots, status: waitingStatus(slots), known: row.known || running || wakes })
      table.show(row)
      if (running) return { kind: open > 0 ? 'partial' : 'resumed' }
      return wakes ? { kind: 'resumed', lease: wake(table, row, taker) } : { kind: 'partial' }
    },
    async deliverHook(id, owner, key, event, taker) {
      const row = table.owned(id, owner)
      if (row === undefined) return { kind: 'unknown' }
      if (!isOpen(row.status)) return { kind: 'closed' }
      const { slots, taken, changed } = answerHook(row.slots, key, event, table.now())
      if (!changed) return { kind: taken > 0 ? 'accepted' : refusedHook(row.slots, key) }
      row.slots = slots
      table.show(row)
      return { kind: 'accepted', lease: row.worker === undefined ? wake(table, row, taker) : undefined }
    },
    async slots(id, owner) {
      const row = table.owned(id, owner)
      return row && isOpen(row.status) ? row.slots : undefined
    },
    async cancel(id, owner) {
      const row = table.owned(id, owner)
      if (row === undefined) return 'unknown'
      if (!isOpen(row.status)) return 'ended'
      table.end(row, 'cancelled')
      return 'cancelled'
    },
    async confirm(id, owner) {
      const row = table.owned(id, owner)
      if (row === undefined || row.known) return
      row.known = true
      if (row.status === 'working' && row.dueAt === undefined) table.rest(row, table.now())
    },
    async revisions(ids) {
      const rows = ids.flatMap((id) => table.live(id) ?? [])
      return new Map(rows.map(({ id, revision }) => [id, revision]))
    },
  }
}

function createWorkerTasks(table: MemoryTable): WorkerTasks {
  return {
    async claim(worker, leaseMs, count) {
      return findDue(table, count).map((row) => take(table, row, { worker, leaseMs }))
    },
    async renew(fences, leaseMs) {
      const held = fences.flatMap((fence) => table.fenced(fence) ?? [])
      for (const row of held) row.dueAt = table.now() + leaseMs
      return new Set(held.map(({ id }) => id))
    },
    async held(fences) {
      return new Set(fences.filter(table.fenced).map(({ id }) => id))
    },
    async append(fence, from, entries) {
      const row = table.fenced(fence)
      if (row === undefined) return false
      if (row.journal.length !== from) throw new TypeError(`Entry ${from} is not the next of this journal`)
      row.journal.push(...entries)
      row.failures = 0
      return true
    },
    async status(fence, message) {
      const row = table.fenced(fence)
      if (row === undefined) return false
      row.message = message
      table.show(row)
      return true
    },
    async publish(fence, given) {
      const row = table.fenced(fence)
      if (row === undefined) return undefined
      const { slots } = mergeSlots(row.slots, given)
      Object.assign(row, { status: waitingStatus(slots), slots })
      table.show(row)
      return slots
    },
    async park(fence, given, wakeAt, liveUntil = 0) {
      const row = table.fenced(fence)
      if (row === undefined) return false
      const { slots, news } = mergeSlots(row.slots, given)
      const expiresAt = Math.max(row.expiresAt, liveUntil)
      Object.assign(row, { status: waitingStatus(slots), slots, failures: 0, expiresAt })
      table.rest(row, news ? table.now() : wakeAt)
      table.show(row)
      return true
    },
    async settle(fence, ending) {
      const row = table.fenced(fence)
      if (row === undefined) return false
      if (ending.kind === 'complete') row.result = ending.result
      else row.error = ending.error
      if (ending.kind === 'complete') table.end(row, 'completed')
      else table.end(row, 'failed', ending.keepMs)
      return true
    },
    async nextDueMs(withinMs) {
      const at = table.now()
      const claimable = table.all().filter((row) => !isPaused(table, row))
      const next = claimable.reduce((first, { dueAt = first }) => Math.min(first, dueAt), at + withinMs + 1)
      return next > at + withinMs ? undefined : Math.max(0, next - at)
    },
    async release(fence, delayMs, failed) {
      const row = table.fenced(fence)
      if (row === undefined) return false
      row.epoch++
      if (failed) row.failures++
      table.rest(row, table.now() + delayMs)
      return true
    },
    async hold(fence) {
      const row = table.fenced(fence)
      if (row === undefined) return false
      row.epoch++
      row.status = 'working'
      table.rest(row, row.known ? table.now() : undefined)
      return true
    },
    async trim(owner, { count, bytes }) {
      const ended = table
        .all()
        .filter((row) => !isOpen(row.status) && table.owned(row.id, owner))
        .sort((a, b) => b.updatedAt - a.updatedAt || (a.id < b.id ? 1 : -1))
      let total = 0
      const gone = ended.filter((row, at) => {
        total += (row.result ?? row.error ?? '').length + (row.message ?? '').length + ENDED_BYTES
        total += row.keptUntil === undefined ? 0 : keptBytes(row)
        return at > 0 && (at >= count || total > bytes)
      })
      for (const row of gone) table.delete(row)
      return gone.length
    },
  }
}

function createOperatorTasks(table: MemoryTable): OperatorTasks {
  return {
    async stats() {
      const at = table.now()
      const rows = table.all()
      const due = rows
        .filter((row) => !isPaused(table, row))
        .flatMap(({ dueAt }) => (dueAt !== undefined && dueAt <= at ? [dueAt] : []))
      return {
        due: due.length,
        oldestDueMs: due.reduce((oldest, dueAt) => Math.max(oldest, at - dueAt), 0),
        running: rows.filter(({ worker, dueAt }) => worker !== undefined && (dueAt ?? 0) > at).length,
        parked: rows.filter(
          (row) =>
            isOpen(row.status) &&
            row.worker === undefined &&
            (isPaused(table, row) || !((row.dueAt ?? at + 1) <= at)),
        ).length,
      }
    },
    async list({ id, status, owner, tools, labels, after, limit = 100 }) {
      return table
        .all()
        .filter((row) => (id ?? row.id) === row.id && (status ?? row.status) === row.status)
        .filter((row) => tools === undefined || (row.tool !== undefined && tools.includes(row.tool)))
        .filter((row) => (labels ?? []).every((any) => row.tags?.some((tag) => any.includes(tag))))
        .filter((row) => owner === undefined || table.owned(row.id, owner) !== undefined)
        .sort(newestFirst)
        .filter((row) => after === undefined || newestFirst(after, row) < 0)
        .slice(0, limit)
        .map(toSummary)
    },
  }
}

function findDue(table: MemoryTable, count: number): TaskRow[] {
  const due = table
    .all()
    .filter((row) => row.dueAt !== undefined && row.dueAt <= table.now() && !isPaused(table, row))
  return due.sort((a, b) => (a.dueAt ?? 0) - (b.dueAt ?? 0)).slice(0, count)
}

/** A row that still names a worker was never released: that worker died or hangs. */
export function take(table: MemoryTable, row: TaskRow, { worker, leaseMs }: Taker): Lease {
  const takenOver = row.worker !== undefined
  if (takenOver) row.failures++
  row.epoch++
  row.worker = worker
  row.dueAt = table.now() + leaseMs
  const lease = toLease(row, table.now())
  return takenOver ? { ...lease, takenOver } : lease
}

/** Makes a parked row due, and claims it for the taker. */
function wake(table: MemoryTable, row: TaskRow, taker: Taker | undefined): Lease | undefined {
  if (taker && !isPaused(table, row)) return take(table, row, taker)
  table.rest(row, table.now())
  return undefined
}

const isPaused = ({ paused }: MemoryTable, { tool }: TaskRow): boolean =>
  tool !== undefined && paused.has(tool)

/** The bytes of an ended task that keeps what its turns needed. */
const keptBytes = ({ head, slots, journal }: TaskRow): number =>
  [head, ...journal].reduce((sum, { length }) => sum + length, encodeSlots(slots).length)

type Aged = { readonly id: string; readonly createdAt: number }

function newestFirst(a: Aged, b: Aged): number {
  return b.createdAt - a.createdAt || (a.id === b.id ? 0 : a.id < b.id ? 1 : -1)
}

function toLease(row: TaskRow, now: number): Lease {
  const { id, owner, head, createdAt, expiresAt, pollMs, failures, known, epoch, journal, slots } = row
  const { labels } = row
  const task = { id, owner, head, createdAt, expiresAt, pollMs, failures, known, labels }
  return { fence: { id, epoch }, task, journal: [...journal], slots, now }
}

export function toSummary(row: TaskRow): TaskSummary {
  const { id, owner, status, createdAt, updatedAt, expiresAt, failures, worker, dueAt, journal } = row
  const slots = isOpen(status) ? row.slots : []
  const openKeys = [...openInputs(slots).keys()]
  const times = { createdAt, updatedAt, expiresAt, dueAt }
  return {
    id,
    owner,
    status,
    ...times,
    failures,
    worker,
    openKeys,
    openHooks: openHooks(slots),
    entries: journal.length,
    tool: row.tool,
    keptUntil: row.keptUntil,
  }
}

export function createMemoryTable(now: () => number, given: readonly TaskRow[] = []): MemoryTable {
  const rows = new Map(given.map((row) => [row.id, row]))
  const hints = createHintBus()
  const listeners: ((row: TaskRow) => void)[] = []
  const live = (id: string) => {
    const row = rows.get(id)
    return row !== undefined && row.expiresAt > now() ? row : undefined
  }
  const show = (row: TaskRow) => {
    row.revision++
    row.updatedAt = now()
    hints.publish({ kind: 'changed', id: row.id })
  }
  const rest = (row: TaskRow, at?: number) => {
    row.worker = undefined
    row.dueAt = at
    if (at !== undefined) hints.publish({ kind: 'due' })
  }
  return {
    now,
    hints,
    paused: new Set(),
    has: (id) => rows.has(id),
    live,
    show,
    rest,
    all: () => [...rows.values()].filter((row) => row.expiresAt > now()),
    add(task) {
      const row = toRow(task, now())
      rows.set(row.id, row)
      return row
    },
    owned(id, owner) {
      const row = live(id)
      return row?.owner.tenant === owner.tenant && row.owner.principal === owner.principal ? row : undefined
    },
    fenced({ id, epoch }) {
      const row = live(id)
      return row?.epoch === epoch && row.worker !== undefined ? row : undefined
    },
    end(row, status, keepMs = 0) {
      rest(row)
      row.status = status
      if (keepMs > 0) {
        row.keptUntil = now() + keepMs
        row.expiresAt = Math.max(row.expiresAt, row.keptUntil)
      } else {
        row.slots = []
        row.head = ''
        row.journal.length = 0
      }
      show(row)
      for (const listener of listeners) listener(row)
    },
    reopen(row) {
      row.status = 'working'
      rest(row, now())
      show(row)
      for (const listener of listeners) listener(row)
    },
    onStatus: (listener) => void listeners.push(listener),
    delete(row) {
      rows.delete(row.id)
      hints.publish({ kind: 'changed', id: row.id })
    },
    sweep(limit) {
      const gone = [...rows.values()].filter((row) => row.expiresAt <= now()).slice(0, limit)
      for (const row of gone) rows.delete(row.id)
      return gone.length
    },
  }
}

function toRow(task: NewTask, at: number): TaskRow {
  const { id, owner, head, message, pollMs, ttlMs, journal = [], known = true, tool } = task
  return {
    id,
    tool,
    owner,
    head,
    message,
    pollMs,
    known,
    status: 'working',
    createdAt: at,
    updatedAt: at,
    expiresAt: at + ttlMs,
    revision: 1,
    epoch: 0,
    failures: 0,
    worker: undefined,
    dueAt: at,
    slots: [],
    journal: [...journal],
    result: undefined,
    error: undefined,
  }
}

function toView(row: TaskRow): TaskView {
  const { id, status, message, createdAt, updatedAt, expiresAt, pollMs, known, revision, result, error } = row
  const inputs = openInputs(status === 'input_required' ? row.slots : [])
  const times = { createdAt, updatedAt, expiresAt }
  return { id, status, message, ...times, pollMs, known, revision, inputs, result, error }
}
