/** Approvals in SQLite. A write transaction is exclusive, so it reads the end of a chain and appends to it without a lock of its own. */

import {
  type ApprovalRow,
  type ApprovalStore,
  type ApprovalWrite,
  type ChainEntry,
  type ChainLink,
  chainAfter,
  NO_ENTRY,
} from '../approvals.ts'
import type { SqliteDatabase, SqlRow } from './database.ts'

export const APPROVAL_TABLES = `
CREATE TABLE approval (
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  version INTEGER NOT NULL,
  write TEXT NOT NULL,
  sealed TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  PRIMARY KEY (tenant, id)
) STRICT;
CREATE TABLE approval_label (
  tenant TEXT NOT NULL,
  label TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  id TEXT NOT NULL,
  PRIMARY KEY (tenant, label, created_at, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE approval_job (
  tenant TEXT NOT NULL,
  request TEXT NOT NULL,
  name TEXT NOT NULL,
  due_at INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  PRIMARY KEY (tenant, request, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE approval_head (tenant TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE approval_record (
  tenant TEXT NOT NULL,
  seq INTEGER NOT NULL,
  previous TEXT NOT NULL,
  hash TEXT NOT NULL,
  key TEXT NOT NULL,
  signature TEXT NOT NULL,
  at INTEGER NOT NULL,
  content TEXT NOT NULL,
  PRIMARY KEY (tenant, seq)
) STRICT, WITHOUT ROWID
`

export const APPROVAL_INDEXES: readonly string[] = [
  'CREATE INDEX approval_expiry ON approval (expires_at) WHERE expires_at IS NOT NULL',
  'CREATE INDEX approval_label_request ON approval_label (tenant, id)',
  'CREATE INDEX approval_job_due ON approval_job (tenant, due_at)',
]

/** Sorts after every character that a label may begin with. */
const LAST = '\u{10ffff}'

export function createApprovals({ sql, queue, now }: SqliteDatabase): ApprovalStore {
  const columns = 'a.id, a.version, a.sealed, a.created_at'
  const alive = '(a.expires_at IS NULL OR a.expires_at > ?)'
  const find = sql(`SELECT ${columns} FROM approval a WHERE a.tenant = ? AND a.id = ? AND ${alive}`)
  const listed = (order: string, compare: string) =>
    sql(`SELECT ${columns} FROM approval_label l JOIN approval a ON a.tenant = l.tenant AND a.id = l.id
      WHERE l.tenant = ? AND l.label = ? AND (l.created_at, l.id) ${compare} (?, ?) AND ${alive}
      ORDER BY l.created_at ${order}, l.id ${order} LIMIT ?`)
  const oldest = listed('ASC', '>')
  const newest = listed('DESC', '<')
  const nextLabel = sql(
    `SELECT min(label) AS label FROM approval_label WHERE tenant = ? AND label > ? AND label < ?`,
  )
  const due = sql(`SELECT request, name, attempts, epoch FROM approval_job WHERE tenant = ? AND due_at <= ?
    ORDER BY due_at LIMIT ?`)
  const lease = sql(`UPDATE approval_job SET due_at = ?, attempts = attempts + 1, epoch = epoch + 1
    WHERE tenant = ? AND request = ? AND name = ?`)
  const tenants = sql('SELECT tenant FROM approval_head')
  const entries = sql('SELECT * FROM approval_record WHERE tenant = ? AND seq > ? ORDER BY seq LIMIT ?')
  const entry = sql('SELECT seq, hash FROM approval_record WHERE tenant = ? AND seq = ?')
  const drop = sql('DELETE FROM approval_record WHERE tenant = ? AND seq <= ?')
  const chain = createChain(sql)
  const put = createPut({ sql, now }, chain)
  return {
    now: async () => now(),
    async get(tenant, id) {
      const row = await queue.read(() => find.get(tenant, id, now()))
      return row && toRow(row)
    },
    put: (write) => queue.write(() => put(write)),
    async list({ tenant, label, after, limit, newestFirst }) {
      const start = newestFirst ? { createdAt: Number.MAX_SAFE_INTEGER, id: '' } : { createdAt: -1, id: '' }
      const { createdAt, id } = after ?? start
      const found = newestFirst ? newest : oldest
      return (await queue.read(() => found.all(tenant, label, createdAt, id, now(), limit))).map(toRow)
    },
    labels: (tenant, prefix, limit) =>
      queue.read(() => {
        const labels: string[] = []
        for (let last = prefix; labels.length < limit; ) {
          const next = nextLabel.get(tenant, last, `${prefix}${LAST}`)?.label
          if (typeof next !== 'string') break
          labels.push(next)
          last = next
        }
        return labels
      }),
    claim: (tenant, leaseMs, limit) =>
      queue.write(() =>
        due.all(tenant, now(), limit).map(({ request, name, attempts, epoch }) => {
          lease.run(now() + leaseMs, tenant, request as string, name as string)
          return {
            request: String(request),
            name: String(name),
            attempts: Number(attempts) + 1,
            epoch: Number(epoch) + 1,
          }
        }),
      ),
    tenants: () => queue.read(() => tenants.all().map(({ tenant }) => String(tenant))),
    async head(tenant) {
      const last = await queue.read(() => chain.head(tenant))
      return last.seq > 0 ? last : undefined
    },
    entries: (tenant, after, limit) => queue.read(() => entries.all(tenant, after, limit).map(toEntry)),
    prune: (tenant, through, checkpoint) =>
      queue.write(() => {
        const pruned = entry.get(tenant, through)
        if (pruned === undefined) return undefined
        const head = chain.append(
          tenant,
          chainAfter(chain.head(tenant), [
            checkpoint({ seq: Number(pruned.seq), hash: String(pruned.hash) }),
          ]),
        )
        drop.run(tenant, through)
        return head
      }),
  }
}

interface Chain {
  head(tenant: string): ChainLink
  append(tenant: string, made: readonly ChainEntry[]): ChainLink | undefined
}

function createChain(sql: SqliteDatabase['sql']): Chain {
  const head = sql('SELECT seq, hash FROM approval_head WHERE tenant = ?')
  const setHead = sql('INSERT OR REPLACE INTO approval_head (tenant, seq, hash) VALUES (?, ?, ?)')
  const insert = sql(`INSERT INTO approval_record (tenant, seq, previous, hash, key, signature, at, content)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)`)
  return {
    head(tenant) {
      const row = head.get(tenant)
      return row ? { seq: Number(row.seq), hash: String(row.hash) } : NO_ENTRY
    },
    append(tenant, made) {
      const last = made.at(-1)
      if (last === undefined) return undefined
      for (const { seq, previous, hash, key, signature, at, content } of made)
        insert.run(tenant, seq, previous, hash, key, signature, at, content)
      setHead.run(tenant, last.seq, last.hash)
      return { seq: last.seq, hash: last.hash }
    },
  }
}

function createPut({ sql, now }: Pick<SqliteDatabase, 'sql' | 'now'>, chain: Chain) {
  const find = sql('SELECT version, write, created_at, expires_at FROM approval WHERE tenant = ? AND id = ?')
  const insert =
    sql(`INSERT OR REPLACE INTO approval (tenant, id, version, write, sealed, created_at, expires_at)
    VALUES (?, ?, ?, ?, ?, ?, ?)`)
  const unlabel = sql('DELETE FROM approval_label WHERE tenant = ? AND id = ?')
  const label = sql(
    'INSERT OR IGNORE INTO approval_label (tenant, label, created_at, id) VALUES (?, ?, ?, ?)',
  )
  const complete = sql('DELETE FROM approval_job WHERE tenant = ? AND request = ? AND name = ? AND epoch = ?')
  const remove = sql('DELETE FROM approval_job WHERE tenant = ? AND request = ? AND name = ?')
  // An epoch is never used twice for a name, so that a claim of a job that was removed and set again is recognised.
  const set =
    sql(`INSERT INTO approval_job (tenant, request, name, due_at, attempts, epoch) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET due_at = excluded.due_at, attempts = excluded.attempts, epoch = epoch + excluded.epoch`)
  return (write: ApprovalWrite): Awaited<ReturnType<ApprovalStore['put']>> => {
    const { tenant, id, version, done, entries = [], labels, sealed, jobs = [] } = write
    const found = find.get(tenant, id)
    const row = found && (found.expires_at === null || Number(found.expires_at) > now()) ? found : undefined
    if (Number(row?.version) === version + 1 && row?.write === write.write) return { kind: 'stored' }
    if (Number(row?.version ?? 0) !== version) return { kind: 'conflict' }
    if (done && complete.run(tenant, id, done.name, done.epoch) !== 1) return { kind: 'conflict' }
    const createdAt = Number(row?.created_at ?? write.createdAt)
    insert.run(tenant, id, version + 1, write.write, sealed, createdAt, write.expiresAt ?? null)
    unlabel.run(tenant, id)
    for (const one of labels) label.run(tenant, one, createdAt, id)
    for (const { name, dueAt, attempts = 0 } of jobs) {
      if (dueAt === null) remove.run(tenant, id, name)
      else set.run(tenant, id, name, dueAt, attempts, 1000 * (version + 1))
    }
    const head = chain.append(tenant, chainAfter(chain.head(tenant), entries))
    return head ? { kind: 'stored', head } : { kind: 'stored' }
  }
}

/** Deletes expired requests, for the store's sweep. */
export function createApprovalSweep({ sql, now }: SqliteDatabase): (limit: number) => number {
  const expired = sql('SELECT tenant, id FROM approval WHERE expires_at <= ? LIMIT ?')
  const parts = ['approval_label WHERE tenant = ? AND id', 'approval_job WHERE tenant = ? AND request']
  const statements = [...parts, 'approval WHERE tenant = ? AND id'].map((part) =>
    sql(`DELETE FROM ${part} = ?`),
  )
  return (limit) => {
    const gone = expired.all(now(), limit)
    for (const { tenant, id } of gone)
      for (const statement of statements) statement.run(tenant as string, id as string)
    return gone.length
  }
}

const toRow = ({ id, version, sealed, created_at }: SqlRow): ApprovalRow => ({
  id: String(id),
  version: Number(version),
  sealed: String(sealed),
  createdAt: Number(created_at),
})

const toEntry = ({ seq, previous, hash, key, signature, at, content }: SqlRow): ChainEntry => ({
  seq: Number(seq),
  previous: String(previous),
  hash: String(hash),
  key: String(key),
  signature: String(signature),
  at: Number(at),
  content: String(content),
})
