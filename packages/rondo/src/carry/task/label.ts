/**
 * The labels of a task: sealed like everything that an author writes, and found by keyed tags (`seal/tag.ts`). Whoever searches looks
 * for the tags of all keys, so labels that were written before a rotation are found.
 */

import type { Labelling } from '../../replay/input.ts'
import { MAX_LABELS } from '../../replay/label.ts'
import type { KeyRing } from '../../seal/key-ring.ts'
import { tagsOf } from '../../seal/tag.ts'
import type { TaskTurn } from '../../store/task-engine.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { openPiece, sealPiece } from './journal.ts'

/** As labels are sealed: pairs, because any name may be one. */
export type StoredLabels = readonly (readonly [name: string, value: string])[]

/** The tags of a label, that of the key that seals first. */
export function labelTags(ring: KeyRing, name: string, value: string): readonly string[] {
  return tagsOf(ring, 'label', JSON.stringify([name, value]))
}

/** Keeps the labels of the task whose turn this is. What the task has already is not written again. */
export function labelsOf(host: FlowHost, tasks: TaskHost, turn: Pick<TaskTurn, 'task' | 'label'>): Labelling {
  const { task } = turn
  let stored: ReadonlyMap<string, string> | undefined
  const read = (): ReadonlyMap<string, string> =>
    new Map(
      task.labels === undefined ? [] : openPiece<StoredLabels>(host, tasks, task, 'labels', task.labels),
    )
  return {
    async keep(labels) {
      const before = stored ?? read()
      stored = before
      if ([...labels].every(([name, value]) => before.get(name) === value)) return
      // Those that only an earlier version of the program set make room first.
      const others = [...before].filter(([name]) => !labels.has(name))
      const all: StoredLabels = [...others, ...labels].slice(-MAX_LABELS)
      stored = new Map(all)
      const tags = all.map(([name, value]) => labelTags(host.keys.ring, name, value)[0] ?? '')
      await turn.label?.(sealPiece(host, task, 'labels', all), tags)
    },
  }
}
