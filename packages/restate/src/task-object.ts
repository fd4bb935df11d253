/**
 * A task as a virtual object of Restate, `RondoTask/<id>`, and the list of an owner's tasks, `RondoOwner/<hash>`. Restate runs
 * one exclusive handler of an object at a time and keeps its state, so a handler is one atomic change of a row. What a
 * change does to a row is the same as in memory (`../memory/tasks.ts`).
 *
 * object 1: a handler depends on its state and its input alone, which names the time: run again, it does the same.
 * object 2: a row that becomes due gets the next `wake` number, and one turn is sent for it, now or later. A claim names
 *           the wake: an older one is stale, and the same one again means that the worker of the first died.
 *           Restate delivers a turn until a worker takes it; should one get lost in between, a check finds it.
 * object 3: every claim increments the epoch, and every write of a worker names its own.
 * object 4: no handler waits for another, so that handlers cannot use up what Restate runs at a time and wait for ever.
 * object 5: nothing here reads what is sealed, and neither does Restate.
 */

import { createHash } from 'node:crypto'
import type { ObjectContext, ObjectSharedContext } from '@restatedev/restate-sdk'
import {
  createMemoryTable,
  createMemoryTasks,
  ENDED_BYTES,
  type MemoryTable,
  take,
  toSummary,
} from 'rondo/internal'
import type {
  Cancellation,
  Delivery,
  EndedLimits,
  HookOutcome,
  InputSlot,
  Lease,
  NewTask,
  Sealed,
  TaskEnding,
  TaskOwner,
  TaskPage,
  TaskRow,
  TaskStore,
  TaskView,
} from 'rondo/store'

/** The names of the services in Restate. */
export interface ServiceNames {
  readonly task: string
  readonly owner: string
  readonly turn: string
  readonly once: string
  readonly epoch: string
  readonly blob: string
}

export function serviceNames(namespace: string): ServiceNames {
  const name = (part: string) => `${namespace}${part}`
  return {
    task: name('Task'),
    owner: name('Owner'),
    turn: name('Turn'),
    once: name('Once'),
    epoch: name('Epoch'),
    blob: name('Blob'),
  }
}

/** The key of an owner's object: says nothing about the owner. */
export function ownerKey({ tenant, principal }: TaskOwner): string {
  return createHash('sha256')
    .update(JSON.stringify([tenant, principal]))
    .digest('base64url')
}

/** A view as JSON. */
export type StoredView = Omit<TaskView, 'inputs'> & {
  readonly inputs: readonly (readonly [string, Sealed])[]
}

const encodeView = (view: TaskView): StoredView => ({ ...view, inputs: [...view.inputs] })

export type StoredCreation =
  | { readonly kind: 'created'; readonly view: StoredView }
  | { readonly kind: 'conflict' }

/** When the caller made the call, ms since the Unix epoch. */
interface Timed {
  readonly at: number
}

interface Owned extends Timed {
  readonly owner: TaskOwner
}

interface Fenced extends Timed {
  readonly epoch: number
}

/** The calls that a task takes: what goes in, and what comes out. */
export interface TaskCalls {
  /** `admitted`: the owner's object has been asked. `keep`: how much of the owner's ended tasks is kept. */
  begin(
    input: Timed & { readonly task: NewTask; readonly admitted: boolean; readonly keep: EndedLimits },
  ): StoredCreation
  look(input: Owned): StoredView | null
  slots(input: Owned): readonly InputSlot[] | null
  deliver(input: Owned & { readonly answers: readonly (readonly [string, Sealed])[] }): Delivery
  deliverHook(input: Owned & { readonly key: string; readonly event: Sealed }): HookOutcome
  cancel(input: Owned): Cancellation
  confirm(input: Owned): null
  claim(input: Timed & { readonly wake: number; readonly worker: string }): Lease | null
  /** The revision of a task that exists, and whether the epoch is the current one. */
  held(
    input: Timed & { readonly epoch?: number },
  ): { readonly held: boolean; readonly revision: number } | null
  append(input: Fenced & { readonly from: number; readonly entries: readonly Sealed[] }): boolean
  status(input: Fenced & { readonly message: Sealed }): boolean
  publish(input: Fenced & { readonly slots: readonly InputSlot[] }): readonly InputSlot[] | null
  park(
    input: Fenced & {
      readonly slots: readonly InputSlot[]
      readonly wakeAt?: number
      readonly liveUntil?: number
    },
  ): boolean
  settle(input: Fenced & { readonly ending: TaskEnding }): boolean
  release(input: Fenced & { readonly delayMs: number; readonly failed: boolean }): boolean
  hold(input: Fenced): boolean
  /** A worker is alive. */
  renew(input: Fenced): boolean
  /** Wakes the task again if its worker has been silent. */
  check(input: Timed): null
  expire(input: Timed): null
  /** Deletes the task, which has ended. */
  evict(input: Timed): null
}

/** The message with which a turn is sent. */
export interface Wake {
  readonly id: string
  readonly wake: number
}

interface StoredTask {
  readonly row: Omit<TaskRow, 'journal'>
  readonly wake: number
  /** The length of the journal, whose pieces are states of their own. */
  readonly entries: number
}

const ROW = 'row'
/** The key of a task's summary, which has nothing sealed, for an operator's queries. */
export const SUMMARY = 'summary'
const JOURNAL = 'journal.'

/** When the worker of a running task was last heard of. It is there while a `check` is on its way. */
const BEAT = 'beat'
/** A worker that was not heard of for so long is followed by another, even if Restate still waits for it. */
export const SILENCE_MS = 60_000

/** A worker keeps its task until Restate notices that it died, or until a `check` finds it silent. */
const FOREVER_MS = 8.64e15

type Sends = Pick<ObjectContext, 'genericSend'>

/** Sends a call that happens at `time`, or at once if that has passed. */
function sendAt(
  ctx: Sends,
  target: { readonly service: string; readonly method: string; readonly key?: string },
  parameter: unknown,
  delay = 0,
): void {
  const call = { ...target, parameter: Buffer.from(JSON.stringify(parameter)) }
  ctx.genericSend(delay > 0 ? { ...call, delay } : call)
}

/** One row while a handler changes it. */
interface Change {
  readonly table: MemoryTable
  readonly tasks: TaskStore
  /** The length of the journal, which is not in the row. */
  entries: number
}

/** The handlers of an object that takes the calls `C`. */
type ObjectHandlers<C> = {
  readonly [K in keyof C]: C[K] extends (input: infer I) => infer O
    ? (ctx: ObjectContext, input: I) => Promise<O>
    : never
}

export type TaskHandlers = ObjectHandlers<TaskCalls>
export type OwnerHandlers = ObjectHandlers<OwnerCalls>

export function createTaskObject(names: ServiceNames, silenceMs: number = SILENCE_MS): TaskHandlers {
  const forOwner = (ctx: Sends, owner: TaskOwner, method: keyof OwnerCalls, input: unknown) =>
    sendAt(ctx, { service: names.owner, method, key: ownerKey(owner) }, input)

  const open = (stored: StoredTask | null, at: number): Change => {
    // Time does not go back for a task, whichever process calls.
    const now = Math.max(at, stored?.row.updatedAt ?? 0)
    const rows = stored ? [{ ...stored.row, journal: [] }] : []
    const table = createMemoryTable(() => now, rows)
    return { table, tasks: createMemoryTasks(table), entries: stored?.entries ?? 0 }
  }

  /** Reads the row, changes it, and stores it together with everything that follows from the change. */
  const change = async <T>(
    ctx: ObjectContext,
    at: number,
    make: (change: Change) => Promise<T>,
  ): Promise<T> => {
    const stored = await ctx.get<StoredTask>(ROW)
    const opened = open(stored, at)
    let due = false
    opened.table.hints.onHint((hint) => {
      if (hint.kind === 'due') due = true
    })
    const made = await make(opened)
    const row = opened.table.live(ctx.key)
    if (row === undefined) return made
    const wakes = due && row.worker === undefined && row.dueAt !== undefined
    const wake = (stored?.wake ?? 0) + (wakes ? 1 : 0)
    save(ctx, stored, { row, wake, entries: stored ? opened.entries : row.journal.length })
    if (wakes) {
      const delay = (row.dueAt ?? 0) - opened.table.now()
      sendAt(ctx, { service: names.turn, method: 'run' }, { id: ctx.key, wake } satisfies Wake, delay)
    }
    return made
  }

  const save = (ctx: ObjectContext, before: StoredTask | null, { row, wake, entries }: StoredTask): void => {
    const { journal: _, ...rest } = row as TaskRow
    const next: StoredTask = { row: rest, wake, entries }
    if (JSON.stringify(next) === JSON.stringify(before)) return
    const ends = before !== null && isOpen(before.row) && !isOpen(rest)
    if (ends) {
      ctx.clearAll()
      forOwner(ctx, rest.owner, 'ended', { id: rest.id, createdAt: rest.createdAt, ...endOf(rest) })
    }
    const kept = ends ? { ...next, entries: 0 } : next
    ctx.set(ROW, kept)
    // No lease runs out while a worker has the task.
    const dueAt = rest.worker === undefined ? rest.dueAt : undefined
    ctx.set(SUMMARY, { ...toSummary({ ...rest, journal: [] }), dueAt, entries: kept.entries })
  }

  const expireAt = (ctx: ObjectContext, now: number, at: number): void =>
    sendAt(ctx, { service: names.task, method: 'expire', key: ctx.key }, { at }, at - now)

  const checkIn = (ctx: ObjectContext, at: number, ms: number): void =>
    sendAt(ctx, { service: names.task, method: 'check', key: ctx.key }, { at: at + ms }, ms)

  const read = async (ctx: ObjectSharedContext, at: number): Promise<Change> =>
    open(await ctx.get<StoredTask>(ROW), at)

  return {
    async begin(ctx, { at, task, admitted, keep }) {
      const stored = await ctx.get<StoredTask>(ROW)
      if (stored === null && !admitted)
        forOwner(ctx, task.owner, 'admit', { id: task.id, at, expiresAt: at + task.ttlMs, limit: null, keep })
      const creation = await change(ctx, at, ({ tasks }) => tasks.create(task, Number.POSITIVE_INFINITY))
      if (creation.kind !== 'created') return { kind: 'conflict' }
      if (stored === null) {
        if (task.journal && task.journal.length > 0) ctx.set(pieceKey(0), task.journal)
        expireAt(ctx, at, at + task.ttlMs)
      }
      return { kind: 'created', view: encodeView(creation.view) }
    },
    async look(ctx, { at, owner }) {
      const view = await (await read(ctx, at)).tasks.get(ctx.key, owner)
      return view ? encodeView(view) : null
    },
    async slots(ctx, { at, owner }) {
      return (await (await read(ctx, at)).tasks.slots(ctx.key, owner)) ?? null
    },
    async deliver(ctx, { at, owner, answers }) {
      const given = new Map(answers)
      return (await change(ctx, at, ({ tasks }) => tasks.deliver(ctx.key, owner, given))).kind
    },
    async deliverHook(ctx, { at, owner, key, event }) {
      return (await change(ctx, at, ({ tasks }) => tasks.deliverHook(ctx.key, owner, key, event))).kind
    },
    cancel: (ctx, { at, owner }) => change(ctx, at, ({ tasks }) => tasks.cancel(ctx.key, owner)),
    async confirm(ctx, { at, owner }) {
      await change(ctx, at, ({ tasks }) => tasks.confirm(ctx.key, owner))
      return null
    },
    async claim(ctx, { at, wake, worker }) {
      const stored = await ctx.get<StoredTask>(ROW)
      if (stored?.wake !== wake || !isOpen(stored.row)) return null
      // A timer of Restate may fire a little before the time by the clock of this worker.
      const dueAt = stored.row.worker === undefined ? (stored.row.dueAt ?? 0) : 0
      const lease = await change(ctx, Math.max(at, dueAt), async ({ table }) => {
        const row = table.live(ctx.key)
        return row ? take(table, row, { worker, leaseMs: FOREVER_MS }) : null
      })
      if (lease === null) return null
      if ((await ctx.get<number>(BEAT)) === null) checkIn(ctx, lease.now, silenceMs)
      ctx.set(BEAT, lease.now)
      return { ...lease, journal: await readJournal(ctx) }
    },
    async renew(ctx, { at, epoch }) {
      const held = (await read(ctx, at)).table.fenced({ id: ctx.key, epoch }) !== undefined
      if (held) ctx.set(BEAT, at)
      return held
    },
    async check(ctx, { at }) {
      const stored = await ctx.get<StoredTask>(ROW)
      const beat = (await ctx.get<number>(BEAT)) ?? 0
      if (stored?.row.worker === undefined) {
        ctx.clear(BEAT)
        return null
      }
      const silentMs = at - beat
      if (silentMs < silenceMs) {
        checkIn(ctx, at, silenceMs - silentMs)
        return null
      }
      const wake = stored.wake + 1
      ctx.set(ROW, { ...stored, wake })
      sendAt(ctx, { service: names.turn, method: 'run' }, { id: ctx.key, wake } satisfies Wake)
      ctx.set(BEAT, at)
      checkIn(ctx, at, silenceMs)
      return null
    },
    async held(ctx, { at, epoch }) {
      const { table } = await read(ctx, at)
      const row = table.live(ctx.key)
      if (row === undefined) return null
      const held = epoch !== undefined && table.fenced({ id: ctx.key, epoch }) !== undefined
      return { held, revision: row.revision }
    },
    append: (ctx, { at, epoch, from, entries }) =>
      change(ctx, at, async (changing) => {
        const row = changing.table.fenced({ id: ctx.key, epoch })
        if (row === undefined) return false
        if (changing.entries !== from) throw new TypeError(`Entry ${from} is not the next of this journal`)
        row.failures = 0
        changing.entries += entries.length
        ctx.set(pieceKey(from), entries)
        return true
      }),
    status: (ctx, { at, epoch, message }) =>
      change(ctx, at, ({ tasks }) => tasks.status({ id: ctx.key, epoch }, message)),
    publish: async (ctx, { at, epoch, slots }) =>
      (await change(ctx, at, ({ tasks }) => tasks.publish({ id: ctx.key, epoch }, slots))) ?? null,
    park: (ctx, { at, epoch, slots, wakeAt, liveUntil }) =>
      change(ctx, at, async ({ table, tasks }) => {
        const { id, owner, createdAt, expiresAt: before = 0 } = table.live(ctx.key) ?? {}
        const parked = await tasks.park({ id: ctx.key, epoch }, slots, wakeAt, liveUntil)
        const expiresAt = table.live(ctx.key)?.expiresAt ?? 0
        if (parked && owner && expiresAt > before) {
          forOwner(ctx, owner, 'admit', { id, at: createdAt, expiresAt, limit: null })
          expireAt(ctx, at, expiresAt)
        }
        return parked
      }),
    settle: (ctx, { at, epoch, ending }) =>
      change(ctx, at, ({ tasks }) => tasks.settle({ id: ctx.key, epoch }, ending)),
    release: (ctx, { at, epoch, delayMs, failed }) =>
      change(ctx, at, ({ tasks }) => tasks.release({ id: ctx.key, epoch }, delayMs, failed)),
    hold: (ctx, { at, epoch }) => change(ctx, at, ({ tasks }) => tasks.hold({ id: ctx.key, epoch })),
    async expire(ctx, { at }) {
      const stored = await ctx.get<StoredTask>(ROW)
      if (stored === null || stored.row.expiresAt > at) return null
      ctx.clearAll()
      const { owner, createdAt } = stored.row
      const end = isOpen(stored.row) ? {} : endOf(stored.row)
      forOwner(ctx, owner, 'forget', { id: ctx.key, createdAt, ...end })
      return null
    },
    async evict(ctx) {
      const stored = await ctx.get<StoredTask>(ROW)
      if (stored !== null && !isOpen(stored.row)) ctx.clearAll()
      return null
    },
  }
}

const isOpen = ({ status }: Pick<TaskRow, 'status'>): boolean =>
  status === 'working' || status === 'input_required'

/** When a task ended, and the bytes that it keeps. */
function endOf({ updatedAt, message, result, error }: Omit<TaskRow, 'journal'>): Ended {
  const bytes = (message ?? '').length + (result ?? error ?? '').length + ENDED_BYTES
  return { endedAt: updatedAt, bytes }
}

interface Ended {
  readonly endedAt: number
  readonly bytes: number
}

/** Keys in the order of the entries. */
const pieceKey = (from: number): string => `${JOURNAL}${String(from).padStart(9, '0')}`

async function readJournal(ctx: ObjectContext): Promise<readonly Sealed[]> {
  const keys = (await ctx.stateKeys()).filter((key) => key.startsWith(JOURNAL)).sort()
  const entries: Sealed[] = []
  for (const key of keys) entries.push(...((await ctx.get<Sealed[]>(key)) ?? []))
  return entries
}

/** The calls that the object of an owner takes. */
export interface OwnerCalls {
  /** `again`: it was admitted before, and lives longer now if there is no limit; `full`: the owner has too many unfinished tasks. */
  admit(
    input: Timed & {
      readonly id: string
      readonly expiresAt: number
      readonly limit: number | null
      readonly keep: EndedLimits
    },
  ): 'new' | 'again' | 'full'
  /** The unfinished tasks that were admitted before a time. */
  open(input: { readonly before: number }): readonly string[]
  /** Records that a task ended; without its end, that it never began. */
  ended(input: { readonly id: string; readonly createdAt?: number } & Partial<Ended>): null
  forget(input: { readonly id: string; readonly createdAt: number } & Partial<Ended>): null
  page(input: TaskPage): readonly string[]
}

const OPEN = 'open'
const LISTED = 'task.'
/** The limits of ended tasks, their number and size, and a key for each of them. */
const KEEP = 'keep'
const TALLY = 'tally'
const ENDED = 'ended.'

/** Keys sort by the time of the end. */
const endedKey = (endedAt: number, id: string): string => `${ENDED}${String(endedAt).padStart(16, '0')}.${id}`

/** Keys sort like tasks: by the time of creation, then by id. */
const listKey = (createdAt: number, id: string): string =>
  `${LISTED}${String(createdAt).padStart(16, '0')}.${id}`

/** Every task of the owner is a key of its own, so that a new one does not rewrite the others. */
export function createOwnerObject(names: Pick<ServiceNames, 'task'>): OwnerHandlers {
  type Open = Record<string, readonly [admittedAt: number, expiresAt: number]>
  const readOpen = async (ctx: ObjectSharedContext) => (await ctx.get<Open>(OPEN)) ?? {}
  const close = async (ctx: ObjectContext, id: string) => {
    const { [id]: closed, ...rest } = await readOpen(ctx)
    if (closed !== undefined) ctx.set(OPEN, rest)
  }
  const readTally = async (ctx: ObjectSharedContext) =>
    (await ctx.get<EndedLimits>(TALLY)) ?? { count: 0, bytes: 0 }
  /** Deletes the tasks that ended first, until the others are within the limits. */
  const trim = async (ctx: ObjectContext, { count, bytes }: EndedLimits) => {
    const keep = await ctx.get<EndedLimits>(KEEP)
    const isWithin = () => keep === null || count <= 1 || (count <= keep.count && bytes <= keep.bytes)
    if (isWithin()) return ctx.set(TALLY, { count, bytes })
    for (const key of (await ctx.stateKeys()).filter((name) => name.startsWith(ENDED)).sort()) {
      if (isWithin()) break
      const { createdAt = 0, bytes: own = 0 } =
        (await ctx.get<{ readonly createdAt: number; readonly bytes: number }>(key)) ?? {}
      const id = key.slice(endedKey(0, '').length)
      count -= 1
      bytes -= own
      ctx.clear(key)
      ctx.clear(listKey(createdAt, id))
      sendAt(ctx, { service: names.task, method: 'evict', key: id }, { at: 0 })
    }
    ctx.set(TALLY, { count, bytes })
  }
  return {
    async admit(ctx, { at, id, expiresAt, limit, keep }) {
      if (JSON.stringify(await ctx.get(KEEP)) !== JSON.stringify(keep)) ctx.set(KEEP, keep)
      const open = await readOpen(ctx)
      const [admittedAt, until] = open[id] ?? []
      if (admittedAt !== undefined) {
        if (limit === null && expiresAt !== until) ctx.set(OPEN, { ...open, [id]: [admittedAt, expiresAt] })
        return 'again'
      }
      const others = Object.entries(open).filter(([, [, until]]) => until > at)
      if (limit !== null && others.length >= limit) return 'full'
      ctx.set(OPEN, Object.fromEntries([...others, [id, [at, expiresAt]]]))
      ctx.set(listKey(at, id), 1)
      return 'new'
    },
    async open(ctx, { before }) {
      const admitted = Object.entries(await readOpen(ctx))
      return admitted.flatMap(([id, [at]]) => (at < before ? [id] : []))
    },
    async ended(ctx, { id, createdAt, endedAt, bytes = 0 }) {
      await close(ctx, id)
      if (endedAt === undefined) return null
      ctx.set(endedKey(endedAt, id), { createdAt, bytes })
      const tally = await readTally(ctx)
      await trim(ctx, { count: tally.count + 1, bytes: tally.bytes + bytes })
      return null
    },
    async forget(ctx, { id, createdAt, endedAt, bytes = 0 }) {
      ctx.clear(listKey(createdAt, id))
      await close(ctx, id)
      if (endedAt === undefined || (await ctx.get(endedKey(endedAt, id))) === null) return null
      ctx.clear(endedKey(endedAt, id))
      const tally = await readTally(ctx)
      ctx.set(TALLY, { count: tally.count - 1, bytes: tally.bytes - bytes })
      return null
    },
    async page(ctx, { after, limit }) {
      const from = after && listKey(after.createdAt, after.id)
      return (await ctx.stateKeys())
        .filter((key) => key.startsWith(LISTED) && (from === undefined || key < from))
        .sort()
        .reverse()
        .slice(0, limit)
        .map((key) => key.slice(listKey(0, '').length))
    },
  }
}
