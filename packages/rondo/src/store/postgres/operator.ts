/** An operator's changes in PostgreSQL. A change is one transaction that locks the row of its task first. */

import { decodeSlots } from '../input-slots.ts'
import {
  ACTION_MS,
  judgeChange,
  type OperatorAction,
  type OperatorChange,
  type OperatorOutcome,
  type OperatorStore,
  subjectOf,
} from '../operator.ts'
import { ENDED_BYTES, endingColumns, SUMMARY_COLUMNS, toSummary } from '../task-store.ts'
import { patiently, type RunInTransaction } from './approvals.ts'
import { nowAt, type PostgresDatabase } from './database.ts'
import { FENCE, keptBytes } from './worker-tasks.ts'

/** `kept_until`: how long an ended task keeps its head, its slots and its journal. */
export const operatorTables = (schema: string): string => `
ALTER TABLE ${schema}.task ADD COLUMN tool text, ADD COLUMN kept_until bigint;
CREATE TABLE ${schema}.pause (tool text PRIMARY KEY);
CREATE TABLE ${schema}.operator_action (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at bigint NOT NULL,
  who text NOT NULL,
  action text NOT NULL,
  subject text NOT NULL,
  expires_at bigint NOT NULL
)`

/** Each index by its name: the table, and the rest of its definition. */
export const OPERATOR_INDEXES: Readonly<Record<string, readonly [table: string, definition: string]>> = {
  task_tool: ['task', '(tool, created_at, id) WHERE tool IS NOT NULL'],
  task_kept: ['task', '(kept_until) WHERE kept_until IS NOT NULL'],
  operator_action_expiry: ['operator_action', '(expires_at)'],
}

/** The tags are deleted with their task, whoever deletes it. */
export const labelTables = (schema: string): string => `
ALTER TABLE ${schema}.task ADD COLUMN labels text;
CREATE TABLE ${schema}.task_label (
  tag text NOT NULL,
  task text NOT NULL REFERENCES ${schema}.task ON DELETE CASCADE,
  PRIMARY KEY (tag, task)
)`

export const LABEL_INDEXES: typeof OPERATOR_INDEXES = { task_label_task: ['task_label', '(task)'] }

type TaskChange = Exclude<OperatorChange, { readonly tools: unknown }>

export function createOperator(database: PostgresDatabase): OperatorStore {
  const { schema, query, now, publish } = database
  const task = `${schema}.task`
  const journal = `${schema}.journal`
  const find = `SELECT ${SUMMARY_COLUMNS}, head, inputs AS slots, message, outcome, epoch, labels,
      (SELECT count(*) FROM ${journal} WHERE task = t.id) AS entries,
      ARRAY(SELECT entry FROM ${journal} WHERE task = t.id ORDER BY seq) AS journal
    FROM ${task} t WHERE id = $1 AND expires_at > ${nowAt('$2')}`
  const lock = `SELECT status, epoch, head <> '' AS kept FROM ${task} WHERE id = $1 AND expires_at > ${nowAt('$2')} FOR UPDATE`
  const kept = '($5::bigint IS NOT NULL)'
  const end = `UPDATE ${task} t SET status = $2, outcome = $3, updated_at = ${nowAt('$4')}, revision = revision + 1,
      worker = NULL, due_at = NULL, inputs = CASE WHEN ${kept} THEN inputs END, head = CASE WHEN ${kept} THEN head ELSE '' END,
      kept_until = ${nowAt('$4')} + $5::bigint, expires_at = greatest(expires_at, ${nowAt('$4')} + $5::bigint),
      bytes = $6::integer + coalesce(length(message), 0) + CASE WHEN ${kept} THEN ${keptBytes(schema)} ELSE 0 END
    WHERE id = $1`
  const retry = `UPDATE ${task} SET status = 'working', outcome = NULL, bytes = NULL, failures = 0, worker = NULL,
      due_at = ${nowAt('$2')}, epoch = epoch + 1, revision = revision + 1, updated_at = ${nowAt('$2')}, kept_until = NULL,
      expires_at = greatest(expires_at, ${nowAt('$2')} + $3::bigint), head = coalesce($4::text, head)
    WHERE id = $1`
  const clear = `DELETE FROM ${journal} WHERE task = $1`
  const refill = `INSERT INTO ${journal} (task, seq, entry)
    SELECT $1, at - 1, entry FROM unnest($2::text[]) WITH ORDINALITY AS e (entry, at)`
  // May be executed again after a lost reply: the second time changes nothing.
  const label = `WITH held AS (SELECT t.id FROM ${task} t, (VALUES ($2::text, $3::integer)) AS q (id, epoch) WHERE ${FENCE} FOR UPDATE OF t),
      done AS (UPDATE ${task} t SET labels = $4 FROM held WHERE t.id = held.id RETURNING t.id),
      gone AS (DELETE FROM ${schema}.task_label l USING held WHERE l.task = held.id AND l.tag <> ALL ($5::text[])),
      added AS (INSERT INTO ${schema}.task_label (tag, task) SELECT DISTINCT tag, held.id FROM held, unnest($5::text[]) AS tag
        ON CONFLICT DO NOTHING)
    SELECT id FROM done`
  const note = `INSERT INTO ${schema}.operator_action (at, who, action, subject, expires_at)
    VALUES (${nowAt('$1')}, $2, $3, $4, ${nowAt('$1')} + $5::bigint)`

  const make = async (run: RunInTransaction, change: TaskChange): Promise<void> => {
    const { id } = change
    switch (change.kind) {
      case 'purge':
        await run(clear, [id])
        await run(`DELETE FROM ${task} WHERE id = $1`, [id])
        return
      case 'cancel':
        await run(end, [id, 'cancelled', null, now(), null, ENDED_BYTES])
        await run(clear, [id])
        return
      case 'fail': {
        const [status, outcome, bytes] = endingColumns(change)
        const keepMs = change.keepMs > 0 ? change.keepMs : null
        await run(end, [id, status, outcome, now(), keepMs, bytes])
        if (keepMs === null) await run(clear, [id])
        return
      }
      case 'retry': {
        const { branch } = change
        await run(retry, [id, now(), change.liveMs, branch?.head ?? null])
        if (!branch) return
        await run(clear, [id])
        await run(refill, [id, branch.journal])
      }
    }
  }
  const actOn = async (run: RunInTransaction, change: TaskChange): Promise<OperatorOutcome> => {
    const [row] = await run(lock, [change.id, now()])
    if (row === undefined) return 'unknown'
    const { status, epoch, kept: isKept } = row
    const standing = { status: String(status), epoch: Number(epoch), kept: isKept === true }
    const outcome = judgeChange(change, standing)
    if (outcome === 'done') await make(run, change)
    return outcome
  }
  const pause = async (run: RunInTransaction, on: boolean, tools: readonly string[]) => {
    const text = on
      ? `INSERT INTO ${schema}.pause SELECT DISTINCT unnest($1::text[]) ON CONFLICT DO NOTHING RETURNING 1`
      : `DELETE FROM ${schema}.pause WHERE tool = ANY ($1::text[]) RETURNING 1`
    return (await run(text, [tools])).length > 0 ? 'done' : 'unchanged'
  }
  return {
    async read(id) {
      const [row] = await query(find, [id, now()])
      if (row === undefined) return undefined
      return {
        ...toSummary(row),
        head: row.head as string,
        journal: row.journal as string[],
        slots: decodeSlots(row.slots as string | null),
        message: (row.message ?? undefined) as string | undefined,
        outcome: (row.outcome ?? undefined) as string | undefined,
        labels: (row.labels ?? undefined) as string | undefined,
        epoch: Number(row.epoch),
      }
    },
    label: async ({ id, epoch }, labels, tags) =>
      (await query(label, [now(), id, epoch, labels, tags])).length > 0,
    async act(change, who) {
      const outcome = await patiently(database, async (run): Promise<OperatorOutcome> => {
        const made =
          'id' in change ? await actOn(run, change) : await pause(run, change.kind === 'pause', change.tools)
        if (made === 'done') await run(note, [now(), who, change.kind, subjectOf(change), ACTION_MS])
        return made
      })
      if (outcome !== 'done') return outcome
      if ('id' in change) publish({ kind: 'changed', id: change.id })
      // An alarm may follow a task that ended.
      if (change.kind !== 'pause' && change.kind !== 'purge') publish({ kind: 'due' })
      return outcome
    },
    async actions(limit) {
      const text = `SELECT at, who, action, subject FROM ${schema}.operator_action WHERE expires_at > ${nowAt('$1')}
        ORDER BY seq DESC LIMIT $2`
      return (await query(text, [now(), limit])).map(
        (row): OperatorAction => ({
          at: Number(row.at),
          who: String(row.who),
          action: row.action as OperatorChange['kind'],
          subject: String(row.subject),
        }),
      )
    },
    paused: async () =>
      (await query(`SELECT tool FROM ${schema}.pause ORDER BY tool COLLATE "C"`, [])).map(({ tool }) =>
        String(tool),
      ),
  }
}

/** Deletes what ended tasks have kept until now, and old lines of the record of actions; returns how many of both. */
export async function sweepOperator(
  { query, now, schema }: PostgresDatabase,
  limit: number,
): Promise<number> {
  const task = `${schema}.task`
  const scrub = `WITH due AS (SELECT id FROM ${task} WHERE kept_until <= ${nowAt('$1')} LIMIT $2 FOR UPDATE SKIP LOCKED),
    done AS (UPDATE ${task} t SET bytes = bytes - (${keptBytes(schema)}), head = '', inputs = NULL, kept_until = NULL
      FROM due WHERE t.id = due.id RETURNING t.id),
    gone AS (DELETE FROM ${schema}.journal USING done WHERE task = done.id) SELECT id FROM done`
  const actions = `DELETE FROM ${schema}.operator_action WHERE seq IN (SELECT seq FROM ${schema}.operator_action
    WHERE expires_at <= ${nowAt('$1')} LIMIT $2) RETURNING 1`
  const scrubbed = await query(scrub, [now(), limit])
  return scrubbed.length + (await query(actions, [now(), limit])).length
}
