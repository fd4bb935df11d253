/**
 * The rows of the engine in the same tables of PostgreSQL, written by hand with the bare driver: a statement and a commit for every
 * change, from as many concurrent clients, or one statement for the changes of as many tasks.
 */

import pg from 'pg'
import { createPostgresStore } from '../../packages/rondo/src/store/postgres/store.ts'
import type { NewTask } from '../../packages/rondo/src/store/task-engine.ts'
import { ANSWER, KEY, newTask, POLL_MS, QUESTION, RESULT, RESULT_BYTES, TTL_MS } from './row.ts'
import {
  AT_ONCE,
  KEPT,
  repeatFor,
  repeatTogether,
  type StoreAddress,
  type Subject,
  type Work,
} from './subject.ts'

const ASKED = JSON.stringify([[KEY, QUESTION, null]])
const ANSWERED = JSON.stringify([[KEY, null, ANSWER]])

/** As many as a store opens by default. */
const CONNECTIONS = 10

/** One change of several tasks. */
type Change = (tasks: readonly NewTask[]) => Promise<unknown>

export async function openBarePostgres(
  { connectionString, schema }: StoreAddress & { kind: 'postgres' },
  grouped: boolean,
): Promise<Subject> {
  const tables = createPostgresStore({ connectionString, schema })
  await tables.ready()
  await tables.close()
  const pool = new pg.Pool({ connectionString, max: CONNECTIONS })
  const { insert, park, deliver, complete, get } = writeChanges(pool, schema)
  const changes: Record<Exclude<Work, 'get'>, readonly Change[]> = {
    complete: [insert, complete],
    resume: [insert, park, deliver, complete],
  }
  const kept = Array.from({ length: KEPT }, newTask)
  for (const change of [insert, park]) await change(kept)

  const work = async (list: readonly Change[]): Promise<number> => {
    const tasks = Array.from({ length: grouped ? AT_ONCE : 1 }, newTask)
    for (const change of list) await change(tasks)
    return tasks.length
  }
  let next = 0
  const look = async (): Promise<number> => {
    if ((await get(kept[next++ % KEPT] as NewTask)) !== ASKED) throw new Error('A row is missing')
    return 1
  }
  return {
    run(kind, ms) {
      if (kind === 'get') return repeatTogether(ms, look)
      return (grouped ? repeatFor : repeatTogether)(ms, () => work(changes[kind]))
    },
    settle: async () => {},
    close: () => pool.end(),
  }
}

function writeChanges(pool: pg.Pool, schema: string) {
  const insert = `INSERT INTO ${schema}.task (id, tenant, principal, status, head, created_at, updated_at, expires_at,
      poll_ms, epoch, worker, due_at, known, revision, failures)
    SELECT q.id, q.tenant, q.principal, 'working', q.head, $5::bigint, $5, $5 + ${TTL_MS}, ${POLL_MS}, 1, 'by hand',
      $5 + 15000, true, 1, 0 FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS q (id, tenant, principal, head)`
  const park = `UPDATE ${schema}.task SET status = 'input_required', inputs = $2, updated_at = $3,
    revision = revision + 1, worker = NULL, due_at = NULL WHERE id = ANY ($1::text[])`
  const deliver = `UPDATE ${schema}.task SET status = 'working', inputs = $2, updated_at = $3, due_at = $3,
    revision = revision + 1 WHERE id = ANY ($1::text[])`
  const complete = `UPDATE ${schema}.task SET status = 'completed', outcome = $2, bytes = ${RESULT_BYTES}, updated_at = $3,
    revision = revision + 1, worker = NULL, due_at = NULL, inputs = NULL, head = '' WHERE id = ANY ($1::text[])`
  const get = `SELECT id, status, message, created_at, updated_at, expires_at, poll_ms, revision, outcome, inputs
    FROM ${schema}.task WHERE id = $1 AND tenant = $2 AND principal = $3 AND expires_at > $4`
  const change =
    (statement: string, text: string): Change =>
    (tasks) =>
      pool.query(statement, [tasks.map(({ id }) => id), text, Date.now()])
  return {
    insert: (tasks: readonly NewTask[]) => {
      const columns = [
        tasks.map(({ id }) => id),
        tasks.map(({ owner }) => owner.tenant),
        tasks.map(({ owner }) => owner.principal),
        tasks.map(({ head }) => head),
      ]
      return pool.query(insert, [...columns, Date.now()])
    },
    park: change(park, ASKED),
    deliver: change(deliver, ANSWERED),
    complete: change(complete, RESULT),
    async get({ id, owner }: NewTask) {
      const { rows } = await pool.query(get, [id, owner.tenant, owner.principal, Date.now()])
      return rows[0]?.inputs
    },
  }
}
