/**
 * Approvals in PostgreSQL. A write is one transaction, which locks the request first and the end of the chain last, and for as
 * short as possible: entries are signed while it is held.
 */

import {
  type ApprovalOutcome,
  type ApprovalRow,
  type ApprovalStore,
  type ApprovalWrite,
  type ChainEntry,
  type ChainEntryAfter,
  type ChainLink,
  chainAfter,
} from '../approvals.ts'
import { nowAt, type PostgresDatabase } from './database.ts'
import { type PgRow, pause, toStoreError } from './driver.ts'

export const approvalTables = (schema: string): string => `
CREATE TABLE ${schema}.approval (
  tenant text NOT NULL,
  id text NOT NULL,
  version integer NOT NULL,
  write text NOT NULL,
  sealed text NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint,
  PRIMARY KEY (tenant, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE ${schema}.approval_label (
  tenant text NOT NULL,
  label text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  id text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, label, created_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE ${schema}.approval_job (
  tenant text NOT NULL,
  request text NOT NULL,
  name text NOT NULL,
  due_at bigint NOT NULL,
  attempts integer NOT NULL,
  epoch integer NOT NULL,
  PRIMARY KEY (tenant, request, name)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE ${schema}.approval_head (tenant text PRIMARY KEY, seq bigint NOT NULL, hash text NOT NULL)
  WITH (fillfactor = 50);
CREATE TABLE ${schema}.approval_record (
  tenant text NOT NULL,
  seq bigint NOT NULL,
  previous text NOT NULL,
  hash text NOT NULL,
  key text NOT NULL,
  signature text NOT NULL,
  at bigint NOT NULL,
  content text NOT NULL,
  PRIMARY KEY (tenant, seq)
)`

/** Each index by its name: the table, and the rest of its definition. */
export const APPROVAL_INDEXES: Readonly<Record<string, readonly [table: string, definition: string]>> = {
  approval_expiry: ['approval', '(expires_at) WHERE expires_at IS NOT NULL'],
  approval_label_request: ['approval_label', '(tenant, id)'],
  approval_job_due: ['approval_job', '(tenant, due_at)'],
}

export type RunInTransaction = (text: string, values?: unknown[]) => Promise<PgRow[]>

const CONFLICT: ApprovalOutcome = { kind: 'conflict' }

/** Sorts after every character that a label may begin with. */
const LAST = '\u{10ffff}'

export function createApprovals(database: PostgresDatabase): ApprovalStore {
  const { schema, query, now } = database
  const table = `${schema}.approval`
  const columns = 'a.id, a.version, a.sealed, a.created_at'
  const alive = (parameter: string) => `(a.expires_at IS NULL OR a.expires_at > ${nowAt(parameter)})`
  const get = `SELECT ${columns} FROM ${table} a WHERE a.tenant = $1 AND a.id = $2 AND ${alive('$3')}`
  const list = (order: string, compare: string) =>
    `SELECT ${columns} FROM ${table}_label l JOIN ${table} a ON a.tenant = l.tenant AND a.id = l.id
    WHERE l.tenant = $1 AND l.label = $2 AND (l.created_at, l.id) ${compare} ($3::bigint, $4) AND ${alive('$5')}
    ORDER BY l.created_at ${order}, l.id ${order} LIMIT $6`
  /** From one label to the next, however many requests have it. */
  const labels = `WITH RECURSIVE found AS (
      (SELECT label, 1 AS n FROM ${table}_label WHERE tenant = $1 AND label > $2 AND label < $3 ORDER BY label LIMIT 1)
      UNION ALL
      SELECT (SELECT l.label FROM ${table}_label l WHERE l.tenant = $1 AND l.label > found.label AND l.label < $3
        ORDER BY l.label LIMIT 1), found.n + 1
      FROM found WHERE found.label IS NOT NULL AND found.n < $4::int)
    SELECT label FROM found WHERE label IS NOT NULL ORDER BY n`
  const claim = `UPDATE ${table}_job j SET due_at = ${nowAt('$2')} + $3::bigint, attempts = attempts + 1, epoch = epoch + 1
    FROM (SELECT tenant, request, name FROM ${table}_job WHERE tenant = $1 AND due_at <= ${nowAt('$2')}
      ORDER BY due_at LIMIT $4 FOR UPDATE SKIP LOCKED) due
    WHERE j.tenant = due.tenant AND j.request = due.request AND j.name = due.name
    RETURNING j.request, j.name, j.attempts, j.epoch`
  return {
    async now() {
      const [row] = await query(`SELECT ${nowAt('$1')} AS now`, [now()])
      return Number(row?.now)
    },
    async get(tenant, id) {
      const [row] = await query(get, [tenant, id, now()])
      return row && toRow(row)
    },
    put: (write) => patiently(database, (run) => put(database, run, write)),
    async list({ tenant, label, after, limit, newestFirst }) {
      const start = { createdAt: newestFirst ? Number.MAX_SAFE_INTEGER : -1, id: '' }
      const { createdAt, id } = after ?? start
      const text = newestFirst ? list('DESC', '<') : list('ASC', '>')
      return (await query(text, [tenant, label, createdAt, id, now(), limit])).map(toRow)
    },
    async labels(tenant, prefix, limit) {
      const rows = await query(labels, [tenant, prefix, `${prefix}${LAST}`, limit])
      return rows.map(({ label }) => String(label))
    },
    async claim(tenant, leaseMs, limit) {
      const rows = await query(claim, [tenant, now(), leaseMs, limit])
      return rows.map(({ request, name, attempts, epoch }) => ({
        request: String(request),
        name: String(name),
        attempts: Number(attempts),
        epoch: Number(epoch),
      }))
    },
    tenants: async () =>
      (await query(`SELECT tenant FROM ${table}_head WHERE seq > 0`, [])).map(({ tenant }) => String(tenant)),
    async head(tenant) {
      const [row] = await query(`SELECT seq, hash FROM ${table}_head WHERE tenant = $1 AND seq > 0`, [tenant])
      return row && toLink(row)
    },
    async entries(tenant, after, limit) {
      const text = `SELECT * FROM ${table}_record WHERE tenant = $1 AND seq > $2 ORDER BY seq LIMIT $3`
      return (await query(text, [tenant, after, limit])).map(toEntry)
    },
    prune: (tenant, through, checkpoint) =>
      patiently(database, async (run) => {
        const found = `SELECT seq, hash FROM ${table}_record WHERE tenant = $1 AND seq = $2`
        const [last] = await run(found, [tenant, through])
        if (last === undefined) return undefined
        const head = await append(schema, run, tenant, [checkpoint(toLink(last))])
        await run(`DELETE FROM ${table}_record WHERE tenant = $1 AND seq <= $2`, [tenant, through])
        return head
      }),
  }
}

/** Runs a transaction again if the connection was lost. A write finds out by itself whether its first attempt succeeded. */
export async function patiently<T>(
  { pool, ready }: PostgresDatabase,
  body: (run: RunInTransaction) => Promise<T>,
): Promise<T> {
  await ready()
  const since = performance.now()
  for (let tries = 0; ; tries++) {
    try {
      return await pool.transaction(body)
    } catch (error) {
      if (!pool.mayRetry(error) || !pool.mayStillRetry(since)) throw toStoreError(error)
      await new Promise((resolve) => setTimeout(resolve, pause(tries)))
    }
  }
}

async function put(
  database: PostgresDatabase,
  run: RunInTransaction,
  write: ApprovalWrite,
): Promise<ApprovalOutcome> {
  const { schema, now } = database
  const { tenant, id, version, done, sealed, labels, jobs = [], entries = [] } = write
  const table = `${schema}.approval`
  // A writer that creates a request waits for others that do, so that one of them finds it.
  if (version === 0)
    await run('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [`${schema} approval ${tenant} ${id}`])
  const [row] = await run(
    `SELECT version, write, created_at, (expires_at IS NULL OR expires_at > ${nowAt('$3')}) AS alive FROM ${table}
    WHERE tenant = $1 AND id = $2 FOR UPDATE`,
    [tenant, id, now()],
  )
  const known = row?.alive === true ? row : undefined
  if (Number(known?.version) === version + 1 && known?.write === write.write) return { kind: 'stored' }
  if (Number(known?.version ?? 0) !== version) return CONFLICT
  if (done) {
    const complete = `DELETE FROM ${table}_job WHERE tenant = $1 AND request = $2 AND name = $3 AND epoch = $4 RETURNING 1`
    if ((await run(complete, [tenant, id, done.name, done.epoch])).length !== 1) return CONFLICT
  }
  const createdAt = Number(known?.created_at ?? write.createdAt)
  await run(
    `INSERT INTO ${table} (tenant, id, version, write, sealed, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (tenant, id) DO UPDATE SET version = excluded.version, write = excluded.write, sealed = excluded.sealed,
      created_at = excluded.created_at, expires_at = excluded.expires_at`,
    [tenant, id, version + 1, write.write, sealed, createdAt, write.expiresAt ?? null],
  )
  await run(`DELETE FROM ${table}_label WHERE tenant = $1 AND id = $2 AND NOT label = ANY($3)`, [
    tenant,
    id,
    labels,
  ])
  await run(
    `INSERT INTO ${table}_label (tenant, label, created_at, id) SELECT $1, label, $2, $3 FROM unnest($4::text[]) label
    ON CONFLICT DO NOTHING`,
    [tenant, createdAt, id, labels],
  )
  for (const { name, dueAt, attempts = 0 } of jobs) {
    if (dueAt === null)
      await run(`DELETE FROM ${table}_job WHERE tenant = $1 AND request = $2 AND name = $3`, [
        tenant,
        id,
        name,
      ])
    // An epoch is never used twice for a name, so that a claim of a job that was removed and set again is recognised.
    else
      await run(
        `INSERT INTO ${table}_job AS j (tenant, request, name, due_at, attempts, epoch) VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (tenant, request, name) DO UPDATE SET due_at = excluded.due_at, attempts = excluded.attempts,
          epoch = j.epoch + excluded.epoch`,
        [tenant, id, name, dueAt, attempts, 1000 * (version + 1)],
      )
  }
  const head = await append(schema, run, tenant, entries)
  return head ? { kind: 'stored', head } : { kind: 'stored' }
}

async function append(
  schema: string,
  run: RunInTransaction,
  tenant: string,
  entries: readonly ChainEntryAfter[],
): Promise<ChainLink | undefined> {
  if (entries.length === 0) return undefined
  const heads = `${schema}.approval_head`
  await run(`INSERT INTO ${heads} VALUES ($1, 0, '') ON CONFLICT DO NOTHING`, [tenant])
  const [row] = await run(`SELECT seq, hash FROM ${heads} WHERE tenant = $1 FOR UPDATE`, [tenant])
  const made = chainAfter(toLink(row as PgRow), entries)
  const { seq, hash } = made.at(-1) as ChainEntry
  for (const entry of made)
    await run(`INSERT INTO ${schema}.approval_record VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`, [
      tenant,
      entry.seq,
      entry.previous,
      entry.hash,
      entry.key,
      entry.signature,
      entry.at,
      entry.content,
    ])
  await run(`UPDATE ${heads} SET seq = $2, hash = $3 WHERE tenant = $1`, [tenant, seq, hash])
  return { seq, hash }
}

/** Deletes expired requests, for the store's sweep. Returns how many. */
export async function sweepApprovals(
  { schema, query, now }: PostgresDatabase,
  limit: number,
): Promise<number> {
  const table = `${schema}.approval`
  const rows = await query(
    `WITH gone AS (DELETE FROM ${table} WHERE (tenant, id) IN (SELECT tenant, id FROM ${table}
      WHERE expires_at <= ${nowAt('$1')} ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING tenant, id),
    labels AS (DELETE FROM ${table}_label l USING gone WHERE l.tenant = gone.tenant AND l.id = gone.id),
    jobs AS (DELETE FROM ${table}_job j USING gone WHERE j.tenant = gone.tenant AND j.request = gone.id)
    SELECT id FROM gone`,
    [now(), limit],
  )
  return rows.length
}

const toLink = ({ seq, hash }: PgRow): ChainLink => ({ seq: Number(seq), hash: String(hash) })

const toRow = ({ id, version, sealed, created_at }: PgRow): ApprovalRow => ({
  id: String(id),
  version: Number(version),
  sealed: String(sealed),
  createdAt: Number(created_at),
})

const toEntry = ({ seq, previous, hash, key, signature, at, content }: PgRow): ChainEntry => ({
  seq: Number(seq),
  previous: String(previous),
  hash: String(hash),
  key: String(key),
  signature: String(signature),
  at: Number(at),
  content: String(content),
})
