/** The rows of tasks in memory, and the few ways in which a row changes. */

import { createHintBus, type HintBus } from '../hint-bus.ts'
import { type InputSlot, openInputs } from '../input-slots.ts'
import type { NewTask, Sealed, TaskOwner, TaskStatus, TaskView } from '../task-engine.ts'
import type { Fence } from '../task-store.ts'

export interface TaskRow {
  readonly id: string
  readonly owner: TaskOwner
  status: TaskStatus
  message: Sealed | undefined
  head: Sealed
  readonly pollMs: number
  readonly createdAt: number
  updatedAt: number
  readonly expiresAt: number
  known: boolean
  revision: number
  epoch: number
  failures: number
  worker: string | undefined
  /** When a worker may take it: also the end of the lease of one that has. */
  dueAt: number | undefined
  slots: readonly InputSlot[]
  readonly journal: Sealed[]
  result: Sealed | undefined
  error: Sealed | undefined
}

export interface MemoryTable {
  readonly now: () => number
  readonly hints: HintBus
  all(): TaskRow[]
  add(task: NewTask): TaskRow
  /** True even for a row that has expired and is not yet gone. */
  has(id: string): boolean
  live(id: string): TaskRow | undefined
  owned(id: string, owner: TaskOwner): TaskRow | undefined
  fenced(fence: Fence): TaskRow | undefined
  /** Counts a change that the owner can see. */
  show(row: TaskRow): void
  /** Nobody runs it; due at `at`, or not at all. */
  rest(row: TaskRow, at?: number): void
  end(row: TaskRow, status: TaskStatus): void
  sweep(limit: number): number
}

export const isOpen = ({ status }: TaskRow): boolean => status === 'working' || status === 'input_required'

export function createMemoryTable(now: () => number): MemoryTable {
  const rows = new Map<string, TaskRow>()
  const hints = createHintBus()
  const live = (id: string) => {
    const row = rows.get(id)
    return row !== undefined && row.expiresAt > now() ? row : undefined
  }
  const show = (row: TaskRow) => {
    row.revision++
    row.updatedAt = now()
    hints.tell({ kind: 'changed', id: row.id })
  }
  const rest = (row: TaskRow, at?: number) => {
    row.worker = undefined
    row.dueAt = at
    if (at !== undefined) hints.tell({ kind: 'due' })
  }
  return {
    now,
    hints,
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
      return row?.epoch === epoch && row.status === 'working' ? row : undefined
    },
    end(row, status) {
      rest(row)
      row.status = status
      row.slots = []
      row.head = ''
      row.journal.length = 0
      show(row)
    },
    sweep(limit) {
      const gone = [...rows.values()].filter((row) => row.expiresAt <= now()).slice(0, limit)
      for (const row of gone) rows.delete(row.id)
      return gone.length
    },
  }
}

function toRow(task: NewTask, at: number): TaskRow {
  const { id, owner, head, message, pollMs, ttlMs, journal = [], known = true } = task
  return {
    id,
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

export function toView(row: TaskRow): TaskView {
  const { id, status, message, createdAt, updatedAt, expiresAt, pollMs, known, revision, result, error } = row
  const inputs = openInputs(status === 'input_required' ? row.slots : [])
  const times = { createdAt, updatedAt, expiresAt }
  return { id, status, message, ...times, pollMs, known, revision, inputs, result, error }
}
