/**
 * The rows of the engine in the same tables, written by hand with the bare driver: one commit for every change, or one for the
 * changes of as many tasks as there are clients. No claims, no fences, no guarantees: an upper bound, not a competitor.
 */

import type { SqliteConnection, SqlValue } from '../../packages/rondo/src/store/sqlite/database.ts'
import { openDatabase } from '../../packages/rondo/src/store/sqlite/schema.ts'
import type { NewTask } from '../../packages/rondo/src/store/task-engine.ts'
import { ANSWER, KEY, newTask, QUESTION, RESULT, RESULT_BYTES, TTL_MS } from './row.ts'
import { AT_ONCE, KEPT, repeatFor, type Subject, type Work } from './subject.ts'

const ASKED = JSON.stringify([[KEY, QUESTION, null]])
const ANSWERED = JSON.stringify([[KEY, null, ANSWER]])

/** One change of one task. */
type Change = (task: NewTask) => void

export async function openBareSqlite(file: string, grouped: boolean): Promise<Subject> {
  const connection = openDatabase(file)
  connection.prepare('PRAGMA busy_timeout = 10000').get()
  const { insert, park, deliver, complete, get } = prepareChanges(connection)
  const changes: Record<Exclude<Work, 'get'>, readonly Change[]> = {
    complete: [insert, complete],
    resume: [insert, park, deliver, complete],
  }
  const kept = Array.from({ length: KEPT }, newTask)
  const commit = (tasks: readonly NewTask[], change: Change): void => {
    connection.exec('BEGIN IMMEDIATE')
    tasks.forEach(change)
    connection.exec('COMMIT')
  }
  for (const change of [insert, park]) commit(kept, change)

  const some = grouped ? AT_ONCE : 1
  const work = (list: readonly Change[]): number => {
    const tasks = Array.from({ length: some }, newTask)
    for (const change of list) {
      if (grouped) commit(tasks, change)
      else tasks.forEach(change)
    }
    return some
  }
  let next = 0
  const look = (): number => {
    if (get(kept[next++ % KEPT] as NewTask) !== ASKED) throw new Error('A row is missing')
    return 1
  }
  return {
    run: (kind, ms) => repeatFor(ms, kind === 'get' ? look : () => work(changes[kind])),
    settle: async () => {},
    close: async () => connection.close(),
  }
}

function prepareChanges(connection: SqliteConnection) {
  const insert =
    connection.prepare(`INSERT INTO task (id, tenant, principal, status, head, created_at, updated_at,
    expires_at, poll_ms, epoch, worker, due_at, known, revision, failures)
    VALUES (?, ?, ?, 'working', ?, ?, ?, ?, ?, 1, 'by hand', ?, 1, 1, 0)`)
  const park = connection.prepare(`UPDATE task SET status = 'input_required', inputs = ?, updated_at = ?,
    revision = revision + 1, worker = NULL, due_at = NULL WHERE id = ?`)
  const deliver =
    connection.prepare(`UPDATE task SET status = 'working', inputs = ?, updated_at = ?, due_at = ?,
    revision = revision + 1 WHERE id = ?`)
  const complete =
    connection.prepare(`UPDATE task SET status = 'completed', outcome = ?, bytes = ${RESULT_BYTES}, updated_at = ?,
    revision = revision + 1, worker = NULL, due_at = NULL, inputs = NULL, head = '' WHERE id = ?`)
  const get =
    connection.prepare(`SELECT id, status, message, created_at, updated_at, expires_at, poll_ms, revision,
    outcome, inputs FROM task WHERE id = ? AND tenant = ? AND principal = ? AND expires_at > ?`)
  return {
    insert({ id, owner, head, pollMs }: NewTask) {
      const at = Date.now()
      const times: SqlValue[] = [at, at, at + TTL_MS, pollMs, at + 15_000]
      insert.run(id, owner.tenant, owner.principal, head, ...times)
    },
    park: ({ id }: NewTask) => void park.run(ASKED, Date.now(), id),
    deliver: ({ id }: NewTask) => void deliver.run(ANSWERED, Date.now(), Date.now(), id),
    complete: ({ id }: NewTask) => void complete.run(RESULT, Date.now(), id),
    get: ({ id, owner }: NewTask) => get.get(id, owner.tenant, owner.principal, Date.now())?.inputs,
  }
}
