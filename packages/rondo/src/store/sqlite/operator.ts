/** An operator's changes in SQLite. A write transaction is exclusive, so a change is judged and made without a lock of its own. */

import { decodeSlots } from '../input-slots.ts'
import {
  ACTION_MS,
  judgeChange,
  type OperatorAction,
  type OperatorChange,
  type OperatorOutcome,
  type OperatorStore,
  type StoredTask,
  subjectOf,
} from '../operator.ts'
import { endingColumns, SUMMARY_COLUMNS, toSummary } from '../task-store.ts'
import type { SqliteDatabase } from './database.ts'
import { FENCE, KEPT_BYTES } from './worker-tasks.ts'

/** `kept_until`: how long an ended task keeps its head, its slots and its journal. */
export const OPERATOR_TABLES = `
ALTER TABLE task ADD COLUMN tool TEXT;
ALTER TABLE task ADD COLUMN kept_until INTEGER;
CREATE TABLE pause (tool TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE operator_action (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  at INTEGER NOT NULL,
  who TEXT NOT NULL,
  action TEXT NOT NULL,
  subject TEXT NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT
`

export const OPERATOR_INDEXES: readonly string[] = [
  'CREATE INDEX task_tool ON task (tool, created_at, id) WHERE tool IS NOT NULL',
  'CREATE INDEX task_kept ON task (kept_until) WHERE kept_until IS NOT NULL',
  'CREATE INDEX operator_action_expiry ON operator_action (expires_at)',
]

/** The trigger deletes the tags with their task, whoever deletes it. */
export const LABEL_TABLES = `
ALTER TABLE task ADD COLUMN labels TEXT;
CREATE TABLE task_label (tag TEXT NOT NULL, task TEXT NOT NULL, PRIMARY KEY (tag, task)) STRICT, WITHOUT ROWID;
CREATE TRIGGER task_label_gone AFTER DELETE ON task BEGIN DELETE FROM task_label WHERE task = OLD.id; END
`

export const LABEL_INDEXES: readonly string[] = ['CREATE INDEX task_label_task ON task_label (task)']

type TaskChange = Exclude<OperatorChange, { readonly tools: unknown }>

export function createOperator({ sql, queue, now, publish }: SqliteDatabase): OperatorStore {
  const find = sql(`SELECT ${SUMMARY_COLUMNS}, head, inputs AS slots, message, outcome, epoch, labels,
    (SELECT count(*) FROM journal WHERE task = id) AS entries FROM task WHERE id = ? AND expires_at > ?`)
  const standing = sql('SELECT status, epoch, head FROM task WHERE id = ? AND expires_at > ?')
  const journal = sql('SELECT entry FROM journal WHERE task = ? ORDER BY seq')
  const end =
    sql(`UPDATE task SET status = ?, outcome = ?, updated_at = ?, revision = revision + 1, worker = NULL, due_at = NULL,
    inputs = CASE WHEN ?4 IS NULL THEN NULL ELSE inputs END, head = CASE WHEN ?4 IS NULL THEN '' ELSE head END,
    kept_until = ?4, expires_at = max(expires_at, coalesce(?4, 0)),
    bytes = ?5 + coalesce(length(message), 0) + CASE WHEN ?4 IS NULL THEN 0 ELSE ${KEPT_BYTES} END WHERE id = ?6`)
  const retry =
    sql(`UPDATE task SET status = 'working', outcome = NULL, bytes = NULL, failures = 0, worker = NULL, due_at = ?1,
    epoch = epoch + 1, revision = revision + 1, updated_at = ?1, kept_until = NULL, expires_at = max(expires_at, ?1 + ?2),
    head = coalesce(?3, head) WHERE id = ?4`)
  const deleteTask = sql('DELETE FROM task WHERE id = ?')
  const deleteJournal = sql('DELETE FROM journal WHERE task = ?')
  const append = sql('INSERT INTO journal (task, seq, entry) VALUES (?, ?, ?)')
  const label = sql(`UPDATE task SET labels = ? WHERE ${FENCE}`)
  const deleteTags = sql('DELETE FROM task_label WHERE task = ?')
  const insertTag = sql('INSERT OR IGNORE INTO task_label (tag, task) VALUES (?, ?)')
  const pause = sql('INSERT OR IGNORE INTO pause (tool) VALUES (?)')
  const unpause = sql('DELETE FROM pause WHERE tool = ?')
  const paused = sql('SELECT tool FROM pause ORDER BY tool')
  const note = sql(
    'INSERT INTO operator_action (at, who, action, subject, expires_at) VALUES (?, ?, ?, ?, ?)',
  )
  const actions = sql('SELECT * FROM operator_action WHERE expires_at > ? ORDER BY seq DESC LIMIT ?')

  const make = (change: TaskChange): void => {
    const { id } = change
    const at = now()
    switch (change.kind) {
      case 'purge':
        deleteJournal.run(id)
        deleteTask.run(id)
        return
      case 'cancel':
        end.run('cancelled', null, at, null, endingColumns({ kind: 'fail' })[2], id)
        deleteJournal.run(id)
        return
      case 'fail': {
        const [status, outcome, bytes] = endingColumns(change)
        const until = change.keepMs > 0 ? at + change.keepMs : null
        end.run(status, outcome, at, until, bytes, id)
        if (until === null) deleteJournal.run(id)
        return
      }
      case 'retry': {
        const { branch } = change
        retry.run(at, change.liveMs, branch?.head ?? null, id)
        if (!branch) return
        deleteJournal.run(id)
        branch.journal.forEach((entry, seq) => void append.run(id, seq, entry))
      }
    }
  }
  const actOn = (change: TaskChange): OperatorOutcome => {
    const row = standing.get(change.id, now())
    if (row === undefined) return 'unknown'
    const { status, epoch, head } = row
    const outcome = judgeChange(change, {
      status: String(status),
      epoch: Number(epoch),
      kept: head !== '',
    })
    if (outcome === 'done') make(change)
    return outcome
  }
  const act = (change: OperatorChange, who: string): OperatorOutcome => {
    const pauses = (tools: readonly string[]): OperatorOutcome => {
      const statement = change.kind === 'pause' ? pause : unpause
      return tools.reduce((sum, tool) => sum + statement.run(tool), 0) > 0 ? 'done' : 'unchanged'
    }
    const outcome = 'id' in change ? actOn(change) : pauses(change.tools)
    if (outcome === 'done') note.run(now(), who, change.kind, subjectOf(change), now() + ACTION_MS)
    return outcome
  }
  return {
    read: (id) =>
      queue.read((): StoredTask | undefined => {
        const row = find.get(id, now())
        if (row === undefined) return undefined
        return {
          ...toSummary({ ...row, worker: (row.worker as string | null)?.split(' ')[1] }),
          head: row.head as string,
          journal: journal.all(id).map(({ entry }) => entry as string),
          slots: decodeSlots(row.slots as string | null),
          message: (row.message ?? undefined) as string | undefined,
          outcome: (row.outcome ?? undefined) as string | undefined,
          labels: (row.labels ?? undefined) as string | undefined,
          epoch: Number(row.epoch),
        }
      }),
    label: ({ id, epoch }, labels, tags) =>
      queue.write(() => {
        if (label.run(labels, id, epoch, now()) !== 1) return false
        deleteTags.run(id)
        for (const tag of tags) insertTag.run(tag, id)
        return true
      }),
    async act(change, who) {
      const outcome = await queue.write(() => act(change, who))
      if (outcome !== 'done') return outcome
      if ('id' in change) publish({ kind: 'changed', id: change.id })
      // An alarm may follow a task that ended.
      if (change.kind !== 'pause' && change.kind !== 'purge') publish({ kind: 'due' })
      return outcome
    },
    actions: async (limit) => (await queue.read(() => actions.all(now(), limit))).map(toAction),
    paused: async () => (await queue.read(() => paused.all())).map(({ tool }) => String(tool)),
  }
}

/** Deletes what ended tasks have kept until now, and old lines of the record of actions; returns how many of both. */
export function createOperatorSweep({ sql, now }: SqliteDatabase): (limit: number) => number {
  const due = sql('SELECT id FROM task WHERE kept_until <= ? LIMIT ?')
  const deleteJournal = sql('DELETE FROM journal WHERE task = ?')
  const scrub = sql(
    `UPDATE task SET bytes = bytes - ${KEPT_BYTES}, head = '', inputs = NULL, kept_until = NULL WHERE id = ?`,
  )
  const deleteActions = sql(`DELETE FROM operator_action WHERE seq IN
    (SELECT seq FROM operator_action WHERE expires_at <= ? LIMIT ?)`)
  return (limit) => {
    const ids = due.all(now(), limit).map(({ id }) => String(id))
    for (const id of ids) {
      scrub.run(id)
      deleteJournal.run(id)
    }
    return ids.length + deleteActions.run(now(), limit)
  }
}

function toAction(row: Readonly<Record<string, unknown>>): OperatorAction {
  return {
    at: Number(row.at),
    who: String(row.who),
    action: row.action as OperatorChange['kind'],
    subject: String(row.subject),
  }
}
