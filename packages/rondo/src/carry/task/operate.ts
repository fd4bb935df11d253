/**
 * A stored task in the hands of an operator who has the keys: opened, continued from an earlier step, or ended with a message for
 * its owner. Does no I/O: the operator's part of the store reads and writes.
 */

import type { Entry } from '../../journal/journal.ts'
import { type EnvelopeRefusal, openEnvelope, sealEnvelope } from '../../seal/envelope.ts'
import type { KeyRing } from '../../seal/key-ring.ts'
import type { StoredTask, TaskBranch } from '../../store/operator.ts'
import type { Sealed } from '../../store/task-engine.ts'
import {
  foldRecords,
  type Noted,
  type Piece,
  placeOfPiece,
  type TaskPlan,
  type TaskRecord,
} from './journal.ts'
import type { StoredLabels } from './label.ts'

type Of = Pick<StoredTask, 'id' | 'owner'>

export type OpenedTask =
  | {
      readonly kind: 'open'
      readonly plan: TaskPlan
      readonly entries: readonly Entry[]
      /** Keys of the questions that its client was shown last. */
      readonly asked: readonly string[]
      readonly error?: unknown
      readonly labels?: StoredLabels
    }
  /** The head is gone: the task has ended, and what it kept was deleted. */
  | { readonly kind: 'gone'; readonly error?: unknown; readonly labels?: StoredLabels }
  | { readonly kind: 'refused'; readonly piece: string; readonly reason: EnvelopeRefusal }

class Refused extends Error {
  readonly refusal: Extract<OpenedTask, { kind: 'refused' }>

  constructor(piece: string, reason: EnvelopeRefusal) {
    super(reason)
    this.refusal = { kind: 'refused', piece, reason }
  }
}

function open<T>(ring: KeyRing, of: Of, piece: Piece, sealed: Sealed): T {
  const opened = openEnvelope(
    ring,
    placeOfPiece(of.owner.tenant, of, piece),
    sealed,
    Number.POSITIVE_INFINITY,
  )
  if (opened.kind === 'refused') throw new Refused(piece, opened.reason)
  return JSON.parse(opened.plaintext.toString('utf8')) as T
}

const seal = (ring: KeyRing, of: Of, piece: Piece, value: unknown): Sealed =>
  sealEnvelope(ring, placeOfPiece(of.owner.tenant, of, piece), JSON.stringify(value)).token

const recordsOf = (ring: KeyRing, task: StoredTask): readonly TaskRecord[] =>
  task.journal.map((sealed) => open<TaskRecord>(ring, task, 'record', sealed))

export function openTask(ring: KeyRing, task: StoredTask): OpenedTask {
  try {
    const { head, status, outcome, labels } = task
    const failed = status === 'failed' && outcome !== undefined
    const aside = {
      ...(failed && { error: open(ring, task, 'error', outcome) }),
      ...(labels !== undefined && { labels: open<StoredLabels>(ring, task, 'labels', labels) }),
    }
    if (head === '') return { kind: 'gone', ...aside }
    const plan = open<TaskPlan>(ring, task, 'head', head)
    const { entries, parked } = foldRecords(recordsOf(ring, task), plan.noted)
    return { kind: 'open', plan, entries, asked: Object.values(parked.asked).map(({ key }) => key), ...aside }
  } catch (thrown) {
    if (thrown instanceof Refused) return thrown.refusal
    throw thrown
  }
}

/**
 * The task as it was before it recorded the step or effect `from`, as a new branch: effects that run from now on have new keys, even
 * those that ran before and were not recorded. Returns undefined if the task has recorded no such step.
 */
export function branchBefore(
  ring: KeyRing,
  task: StoredTask,
  from: string,
  rerun: string,
): TaskBranch | undefined {
  const plan = open<TaskPlan>(ring, task, 'head', task.head)
  const records = recordsOf(ring, task)
  const at = records.findIndex(
    (record) =>
      'entry' in record &&
      record.entry.key === from &&
      (record.entry.kind === 'step' || record.entry.kind === 'effect'),
  )
  if (at < 0) return undefined
  // An effect that runs again writes its intent again, under its new key.
  const kept = new Set(
    records.slice(0, at).flatMap((record) => ('entry' in record ? [record.entry.key] : [])),
  )
  const journal = task.journal.slice(0, at).filter((_sealed, index) => {
    const record = records[index] as TaskRecord
    return !('begun' in record) || kept.has(record.begun.key)
  })
  const noted = plan.noted && withoutOthers(plan.noted, kept)
  const head = seal(ring, task, 'head', { ...plan, noted, rerun } satisfies TaskPlan)
  return { epoch: task.epoch, head, journal }
}

/** Keeps the intents of these effects. Without any, the branch has a line of history of its own. */
function withoutOthers(noted: Noted, kept: ReadonlySet<string>): Noted {
  const begun = noted.begun?.filter(({ key }) => kept.has(key))
  return begun?.length ? { ...noted, begun } : { ...noted, begun: undefined, lineage: undefined }
}

/** The error with which the owner sees the task fail. */
export function sealFailure(ring: KeyRing, task: Of, message: string): Sealed {
  return seal(ring, task, 'error', { code: -32603, message })
}
