/**
 * A journal while a handler runs against it: entries found by name, new ones appended, effects counted off.
 *
 * J1 A name stands for one entry. J2 An entry is never changed; an answer to a question that was reworded is struck out,
 * not overwritten. J3 Order is kept.
 */

import type { Entry, Journal, Reask } from '../journal/journal.ts'

export interface Found {
  readonly entry: Entry
  readonly index: number
}

export interface JournalRecord {
  find(key: string): Found | undefined
  append(entry: Entry): number
  strike(key: string): void
  reask(key: string): Reask
  noteMisfit(key: string, problem: string): number
  noteChange(key: string): number
  /** Takes note that this run has come to the entry. */
  reach(key: string): void
  /** A recorded effect that this run has not come to yet (R5). */
  unreachedEffect(): string | undefined
  size(): number
  toJournal(): Journal
}

export function createRecord(journal: Journal): JournalRecord {
  const entries: (Entry | undefined)[] = [...journal.entries]
  const byKey = new Map<string, number>()
  const unreached = new Set<string>()
  for (const [index, entry] of journal.entries.entries()) {
    byKey.set(entry.key, index)
    if (entry.kind === 'effect') unreached.add(entry.key)
  }
  let reasks: Map<string, Reask> | undefined

  const reaskMap = (): Map<string, Reask> => {
    reasks ??= new Map(Object.entries(journal.reasks))
    return reasks
  }

  return {
    find(key) {
      const index = byKey.get(key)
      const entry = index === undefined ? undefined : entries[index]
      return index === undefined || entry === undefined ? undefined : { entry, index }
    },
    append(entry) {
      byKey.set(entry.key, entries.length)
      return entries.push(entry) - 1
    },
    strike(key) {
      const index = byKey.get(key)
      if (index !== undefined) entries[index] = undefined
      byKey.delete(key)
    },
    reask: (key) => reaskMap().get(key) ?? {},
    noteMisfit(key, problem) {
      const before = reaskMap().get(key)
      const misfits = (before?.misfits ?? 0) + 1
      reaskMap().set(key, { ...before, misfits, problem })
      return misfits
    },
    noteChange(key) {
      const before = reaskMap().get(key)
      const changes = (before?.changes ?? 0) + 1
      reaskMap().set(key, { ...before, changes })
      return changes
    },
    reach: (key) => void unreached.delete(key),
    unreachedEffect: () => unreached.values().next().value,
    size: () => byKey.size,
    toJournal: () => ({
      ...journal,
      entries: entries.filter((entry) => entry !== undefined),
      reasks: reasks ? Object.fromEntries(reasks) : journal.reasks,
    }),
  }
}
