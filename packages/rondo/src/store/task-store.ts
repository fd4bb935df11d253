/**
 * The contract of a database that keeps tasks, and the way in which the SQL stores read a row of theirs. `createLeaseEngine` adds the claim
 * loop, the heartbeat and the clock.
 *
 * A task is one row, and each method is one atomic change of it or none: the database decides, not the caller. A claim
 * increments the task's `epoch`. Every write of a worker names the epoch of its claim (`Fence`), and returns `false`
 * without effect once the task was claimed by another worker, released, cancelled, ended or expired.
 *
 * store 1: a worker's write takes effect only on an unexpired task that it holds, at exactly its epoch.
 * store 2: the answer that a parked task waits for makes it due in the same write: the answer to its last open question,
 *          to an offer, or the event of a hook.
 * store 3: expired rows are invisible at once, even if they are deleted later.
 * store 4: what a method resolved with survives a crash of this process and, where the database can, of the machine.
 * store 5: the store's clock decides leases and expiry for all processes.
 * store 6: a task that is both held and known is due, in whichever order the two happen.
 * store 8: a task that was parked until a time is due then, by the store's clock, and not before unless it is answered; a slot
 *          takes no answer from its own time on.
 * store 7: a worker and an owner may change the slots of a task at the same time: no answer is lost, and a task that parks
 *          while an answer arrives is due.
 */

import { decodeSlots, type InputSlot, openHooks, openInputs } from './input-slots.ts'
import type {
  Cancellation,
  Delivery,
  NewTask,
  Sealed,
  TaskHead,
  TaskOwner,
  TaskStatus,
  TaskView,
} from './task-engine.ts'

export interface Fence {
  readonly id: string
  readonly epoch: number
}

/** A claimed task, with what its next turn starts from. */
export interface Lease {
  readonly fence: Fence
  readonly task: TaskHead
  readonly journal: readonly Sealed[]
  readonly slots: readonly InputSlot[]
  /** Another worker had the task and never released it: it died or hangs. */
  readonly takenOver?: boolean
  /** The store's time of the claim. */
  readonly now: number
}

export type TaskEnding =
  | { readonly kind: 'complete'; readonly result: Sealed }
  /** `keepMs`: how long the task keeps its journal. It expires no earlier. Default: not at all. */
  | { readonly kind: 'fail'; readonly error?: Sealed; readonly keepMs?: number }

/** A worker that claims tasks, and how long it keeps them without a heartbeat. */
export interface Taker {
  readonly worker: string
  readonly leaseMs: number
}

export type Creation =
  /** With a lease if a taker was named and the task is new: it is already claimed. */
  | { readonly kind: 'created'; readonly view: TaskView; readonly lease?: Lease }
  /** The id is that of a task of another owner, or of one that has expired. */
  | { readonly kind: 'conflict' }
  | { readonly kind: 'limit' }

/** The result of a delivery; with a lease if a taker was named and no answer is missing: the task is already claimed. */
export interface Handover {
  readonly kind: Delivery
  readonly lease?: Lease
}

/** `duplicate`: the hook has its event already. `closed`: it takes none any more, or its task has ended. */
export type HookOutcome = 'unknown' | 'closed' | 'duplicate' | 'accepted'

/** The result of delivering an event; with a lease like a `Handover`. */
export interface HookHandover {
  readonly kind: HookOutcome
  readonly lease?: Lease
}

/**
 * Something may have happened, in any process: work is due (so many tasks; any number, without a count), a task (any task,
 * without an id) visibly changed, or there is something on the bus.
 */
export type Hint =
  | { readonly kind: 'due'; readonly count?: number }
  | { readonly kind: 'changed'; readonly id?: string }
  | { readonly kind: 'bus' }

/** Up to which number `stats` counts. */
export const COUNT_LIMIT = 10_000

/** Each number is counted up to `COUNT_LIMIT`, so that the cost does not grow with the tables. */
export interface TaskStats {
  /** Tasks that a worker could claim now, and for how long the oldest of them has been due. */
  readonly due: number
  readonly oldestDueMs: number
  readonly running: number
  readonly parked: number
}

/** A task as an operator may see it: nothing that is sealed. */
export interface TaskSummary {
  readonly id: string
  readonly owner: TaskOwner
  readonly status: TaskStatus
  readonly createdAt: number
  readonly updatedAt: number
  readonly expiresAt: number
  readonly failures: number
  /** The worker that runs it, if any. */
  readonly worker: string | undefined
  readonly dueAt: number | undefined
  readonly openKeys: readonly string[]
  /** The keys of its hooks that wait for an event. */
  readonly openHooks: readonly string[]
  readonly entries: number
  /** The tool, as `NewTask` names it. */
  readonly tool?: string
  /** How long an ended task keeps its journal. */
  readonly keptUntil?: number
  /** The row cannot be read: its slots are unknown, and no worker can run it. */
  readonly damaged?: true
}

export interface TaskQuery {
  readonly id?: string
  readonly status?: TaskStatus
  /** Only the tasks of this owner. */
  readonly owner?: TaskOwner
  /** Only the tasks whose tool is one of these. */
  readonly tools?: readonly string[]
  /** Only the tasks that have one tag of each of these lists, as `OperatorStore.label` sets them. */
  readonly labels?: readonly (readonly string[])[]
  /** Continue after this task; the newest tasks come first. */
  readonly after?: { readonly id: string; readonly createdAt: number }
  readonly limit?: number
}

/** The operations of a task's owner. */
export interface OwnerTasks {
  /**
   * `openLimit` is how many unfinished tasks the owner may have; `Infinity` skips the count. With a taker, the same write
   * claims the task.
   */
  create(task: NewTask, openLimit: number, taker?: Taker): Promise<Creation>
  get(id: string, owner: TaskOwner): Promise<TaskView | undefined>
  /** With a taker, the write that makes the task due also claims it. A task that is resumed is known. */
  deliver(
    id: string,
    owner: TaskOwner,
    answers: ReadonlyMap<string, Sealed>,
    taker?: Taker,
  ): Promise<Handover>
  /** Gives a hook its event. Does not show that the owner knows the id. */
  deliverHook(id: string, owner: TaskOwner, key: string, event: Sealed, taker?: Taker): Promise<HookHandover>
  /** The slots of an unfinished task. */
  slots(id: string, owner: TaskOwner): Promise<readonly InputSlot[] | undefined>
  cancel(id: string, owner: TaskOwner): Promise<Cancellation>
  /** Records that the owner knows the id; makes the task due if it was held. No effect the second time. */
  confirm(id: string, owner: TaskOwner): Promise<void>
  /** The revisions of the tasks that exist. */
  revisions(ids: readonly string[]): Promise<ReadonlyMap<string, number>>
}

/** How much of an owner's ended tasks is kept. */
export interface EndedLimits {
  readonly count: number
  /** Bytes of all of them together; each counts its outcome, its message and `ENDED_BYTES`. */
  readonly bytes: number
}

/** The bytes that an ended task counts for besides its outcome and its message. */
export const ENDED_BYTES = 512

/** The operations of a worker. */
export interface WorkerTasks {
  /** Claims up to `count` due tasks. One that its former worker never released counts one more failure. */
  claim(worker: string, leaseMs: number, count: number): Promise<readonly Lease[]>
  /** Extends leases; returns the ids that are still held. */
  renew(fences: readonly Fence[], leaseMs: number): Promise<ReadonlySet<string>>
  /** The ids that are still held, without extending them. */
  held(fences: readonly Fence[]): Promise<ReadonlySet<string>>
  /** Appends entries at position `from`, all or none, and resets the failure count. */
  append(fence: Fence, from: number, entries: readonly Sealed[]): Promise<boolean>
  status(fence: Fence, message: Sealed): Promise<boolean>
  /**
   * Shows the slots while the turn goes on. Returns them with the answers that arrived meanwhile, or undefined if the task
   * is no longer held.
   */
  publish(fence: Fence, slots: readonly InputSlot[]): Promise<readonly InputSlot[] | undefined>
  /**
   * Releases the task until an answer wakes it, or until `wakeAt` (ms since the Unix epoch, by the store's clock). It is due
   * at once if an answer arrived that `slots` does not have. A task that would expire before `liveUntil` expires then instead.
   */
  park(fence: Fence, slots: readonly InputSlot[], wakeAt?: number, liveUntil?: number): Promise<boolean>
  /** Ends the task and deletes what only its turns needed, unless it is kept for an operator. */
  settle(fence: Fence, ending: TaskEnding): Promise<boolean>
  /** Releases the task, which is due again after `delayMs`. `failed` counts one more failure. */
  release(fence: Fence, delayMs: number, failed: boolean): Promise<boolean>
  /** Releases the task, which is due again once its owner knows the id. */
  hold(fence: Fence): Promise<boolean>
  /**
   * Deletes the ended tasks of an owner that are beyond the limits, those first that ended first; returns how many. The one
   * that ended last is kept, whatever its size.
   */
  trim(owner: TaskOwner, limits: EndedLimits): Promise<number>
  /**
   * In how many ms the next task is due, if that is within `withinMs`, so that a worker need not wait for its next poll. 0 if
   * there is one that `claim` would return now.
   */
  nextDueMs(withinMs: number): Promise<number | undefined>
  /** Makes the tasks of workers known to be dead due; returns how many. */
  reclaim?(): Promise<number>
  /**
   * Undoes the failure counted when another worker claimed a task whose lease had not run out by this worker's clock. For
   * stores that use the clocks of their processes, which may disagree.
   */
  absolve?(fence: Fence): Promise<void>
}

/** The operations of an operator. */
export interface OperatorTasks {
  stats(): Promise<TaskStats>
  list(query: TaskQuery): Promise<readonly TaskSummary[]>
}

export interface TaskStore extends OwnerTasks, WorkerTasks, OperatorTasks {
  /** How often to poll for changes that no hint announced. */
  readonly pollMs: number
  /** Calls `listener` for changes made by this process, and for others as far as the database announces them. */
  onHint(listener: (hint: Hint) => void): () => void
}

export interface HintBus {
  publish(hint: Hint): void
  onHint(listener: (hint: Hint) => void): () => void
  /** Whether there is a listener. */
  listening(): boolean
  /** Removes all listeners. */
  close(): void
}

/**
 * Creates the `onHint` of a store, and `publish` for hints of this process. Calls `attach` for the first listener, to receive
 * hints of other processes, and its result after the last.
 *
 * @example
 * ```ts
 * const { publish, onHint } = createHintBus()
 * publish({ kind: 'changed', id })
 * ```
 */
export function createHintBus(attach: () => () => void = () => () => {}): HintBus {
  const listeners = new Set<(hint: Hint) => void>()
  let detach: (() => void) | undefined
  const close = () => {
    listeners.clear()
    detach?.()
    detach = undefined
  }
  return {
    publish(hint) {
      for (const listener of [...listeners]) listener(hint)
    },
    onHint(listener) {
      // Wrapped, so that the same function may listen twice.
      const wrapped = (hint: Hint) => listener(hint)
      listeners.add(wrapped)
      detach ??= attach()
      return () => {
        if (listeners.delete(wrapped) && listeners.size === 0) close()
      }
    },
    listening: () => listeners.size > 0,
    close,
  }
}

/**
 * The row of a task as the SQL stores read it. SQLite returns numbers and 0 or 1 where PostgreSQL returns the text of a
 * `bigint` and booleans; both are accepted.
 */
type Row = Readonly<Record<string, unknown>>

/** The columns that `toView` reads, of the table `t`. */
export const VIEW_COLUMNS = `t.id, t.status, t.message, t.created_at, t.updated_at, t.expires_at, t.poll_ms, t.known, t.revision,
  t.outcome, CASE t.status WHEN 'input_required' THEN t.inputs END AS inputs`

/** The columns that `toLease` reads; a claim adds `taken_over`. */
export const LEASE_COLUMNS =
  'id, tenant, principal, head, inputs, created_at, expires_at, poll_ms, failures, epoch, known, labels'

/** The columns that `toSummary` reads, except `entries`. */
export const SUMMARY_COLUMNS = `id, tenant, principal, status, created_at, updated_at, expires_at, failures, worker, due_at, tool, kept_until,
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
    labels: (row.labels ?? undefined) as Sealed | undefined,
  }
  const lease = { fence: { id, epoch: Number(row.epoch) }, task, journal, slots: slotsOf(row), now }
  return row.taken_over ? { ...lease, takenOver: true } : lease
}

export function toSummary(row: Row): TaskSummary {
  const slots = readSlots(row)
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
    openKeys: [...openInputs(slots ?? []).keys()],
    openHooks: openHooks(slots ?? []),
    entries: Number(row.entries),
    tool: (row.tool ?? undefined) as string | undefined,
    keptUntil: row.kept_until === null ? undefined : Number(row.kept_until),
    ...(slots === undefined && { damaged: true }),
  }
}

export const TASK_STATUSES: readonly TaskStatus[] = [
  'working',
  'input_required',
  'completed',
  'failed',
  'cancelled',
]

/** Whether a task that was found by its id is one that the query asks for. */
export function isAsked(
  { id, status, owner, createdAt, tool }: TaskSummary,
  query: Pick<TaskQuery, 'status' | 'owner' | 'after' | 'tools'>,
): boolean {
  const { after, owner: of, tools } = query
  if (tools && (tool === undefined || !tools.includes(tool))) return false
  if (query.status !== undefined && query.status !== status) return false
  if (of && (of.tenant !== owner.tenant || of.principal !== owner.principal)) return false
  return (
    after === undefined || createdAt < after.createdAt || (createdAt === after.createdAt && id < after.id)
  )
}

function readSlots(row: Row): readonly InputSlot[] | undefined {
  try {
    return slotsOf(row)
  } catch {
    return undefined
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

/** The columns `status` and `outcome` of a task that ended, and its bytes without the message. */
export function endingColumns(
  ending: TaskEnding,
): [status: TaskStatus, outcome: Sealed | null, bytes: number] {
  const bytes = endingBytes(ending)
  return ending.kind === 'complete'
    ? ['completed', ending.result, bytes]
    : ['failed', ending.error ?? null, bytes]
}

export function endingBytes(ending: TaskEnding): number {
  const outcome = ending.kind === 'complete' ? ending.result : ending.error
  return (outcome?.length ?? 0) + ENDED_BYTES
}

/** SQL for ended tasks of the table `task`, ranked from the one that ended last; `owned` selects those of one owner. */
export const rankEnded = (
  task: string,
  owned: string,
): string => `SELECT id, row_number() OVER latest AS rank,
    sum(bytes) OVER latest AS total FROM ${task}
  WHERE ${owned} AND status IN ('completed', 'failed', 'cancelled')
  WINDOW latest AS (ORDER BY updated_at DESC, id DESC)`

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
