/** An operator's changes in memory. */

import {
  ACTION_MS,
  judgeChange,
  type OperatorAction,
  type OperatorOutcome,
  type OperatorStore,
  subjectOf,
} from '../operator.ts'
import { isOpen } from '../task-engine.ts'
import { type MemoryTable, type TaskRow, toSummary } from './tasks.ts'

export function createMemoryOperator(table: MemoryTable): OperatorStore {
  let actions: OperatorAction[] = []
  const change = (row: TaskRow, wanted: Parameters<typeof judgeChange>[0]): OperatorOutcome => {
    const { status, epoch, head } = row
    const outcome = judgeChange(wanted, { status, epoch, kept: head !== '' })
    if (outcome !== 'done') return outcome
    switch (wanted.kind) {
      case 'cancel':
        table.end(row, 'cancelled')
        break
      case 'fail':
        row.error = wanted.error
        table.end(row, 'failed', wanted.keepMs)
        break
      case 'purge':
        table.delete(row)
        break
      case 'retry':
        retry(table, row, wanted.liveMs)
        if (wanted.branch) {
          row.head = wanted.branch.head
          row.journal.splice(0, row.journal.length, ...wanted.branch.journal)
        }
    }
    return outcome
  }
  return {
    async read(id) {
      const row = table.live(id)
      if (row === undefined) return undefined
      const { head, journal, slots, message, result, error, epoch, labels } = row
      const content = { head, journal: [...journal], slots, message, outcome: result ?? error, epoch, labels }
      return { ...toSummary(row), ...content }
    },
    async act(wanted, who) {
      const outcome = 'id' in wanted ? actOn(wanted) : pause(wanted.kind === 'pause', wanted.tools)
      if (outcome === 'done') {
        const line = { at: table.now(), who, action: wanted.kind, subject: subjectOf(wanted) }
        actions = [line, ...actions.filter(({ at }) => at > table.now() - ACTION_MS)]
      }
      return outcome
    },
    async label(fence, labels, tags) {
      const row = table.fenced(fence)
      if (row) Object.assign(row, { labels, tags })
      return row !== undefined
    },
    actions: async (limit) => actions.filter(({ at }) => at > table.now() - ACTION_MS).slice(0, limit),
    paused: async () => [...table.paused].sort(),
  }

  function actOn(wanted: Parameters<typeof judgeChange>[0]): OperatorOutcome {
    const row = table.live(wanted.id)
    return row === undefined ? 'unknown' : change(row, wanted)
  }

  function pause(on: boolean, tools: readonly string[]): OperatorOutcome {
    const changed = tools.filter((tool) => table.paused.has(tool) !== on)
    for (const tool of changed) {
      if (on) table.paused.add(tool)
      else table.paused.delete(tool)
    }
    if (changed.length > 0 && !on) table.hints.publish({ kind: 'due' })
    return changed.length > 0 ? 'done' : 'unchanged'
  }
}

function retry(table: MemoryTable, row: TaskRow, liveMs: number): void {
  Object.assign(row, {
    error: undefined,
    failures: 0,
    epoch: row.epoch + 1,
    keptUntil: undefined,
    expiresAt: Math.max(row.expiresAt, table.now() + liveMs),
  })
  table.reopen(row)
}

/** Deletes head, answers and journal of ended tasks whose time is up; returns how many. */
export function scrubKept(table: MemoryTable, limit: number): number {
  const due = table
    .all()
    .filter(({ status, keptUntil = Number.POSITIVE_INFINITY }) => !isOpen(status) && keptUntil <= table.now())
    .slice(0, limit)
  for (const row of due) {
    Object.assign(row, { head: '', slots: [], keptUntil: undefined })
    row.journal.length = 0
  }
  return due.length
}
