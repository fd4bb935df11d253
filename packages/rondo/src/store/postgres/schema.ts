/**
 * The tables in PostgreSQL. They are created under a transaction-level lock, so that many processes can start together and
 * poolers do not matter. A role without the right to create tables can use existing ones.
 *
 * Indexes that existing tables lack are built afterwards, outside the transaction and without blocking writes, while the store
 * already works. If a build is interrupted, the next process that starts begins it again.
 */

import { misuse, RondoError } from '../../errors.ts'
import { type Migration, type SchemaState, schemaOf } from '../schema.ts'
import { createEpoch, type StoreCheck } from '../store.ts'
import { ALARM_INDEXES, alarmTables } from './alarms.ts'
import { APPROVAL_INDEXES, approvalTables } from './approvals.ts'
import type { PgRow, ResilientPool } from './driver.ts'
import { LABEL_INDEXES, labelTables, OPERATOR_INDEXES, operatorTables } from './operator.ts'
import { PERMIT_INDEXES, permitTables } from './permits.ts'

const OPEN = "status IN ('working', 'input_required')"
const ENDED = "status IN ('completed', 'failed', 'cancelled')"

/** Each index by its name: the table, and the rest of its definition. */
const INDEXES: Readonly<Record<string, readonly [table: string, definition: string]>> = {
  task_due: ['task', '(due_at, expires_at) WHERE due_at IS NOT NULL'],
  task_expiry: ['task', '(expires_at)'],
  task_open: ['task', `(tenant, principal, expires_at) WHERE ${OPEN}`],
  task_ended: ['task', `(tenant, principal, updated_at, id) INCLUDE (bytes, expires_at) WHERE ${ENDED}`],
  task_owner: ['task', '(tenant, principal, created_at, id)'],
  task_status: ['task', '(status, created_at, id)'],
  task_worker: ['task', '(due_at, expires_at) WHERE worker IS NOT NULL'],
  once_expiry: ['once', '(expires_at)'],
  blob_expiry: ['blob', '(expires_at)'],
  record_owner: ['record', '(owner)'],
  record_expiry: ['record', '(expires_at)'],
  record_bound_expiry: ['record_bound', '(expires_at)'],
  bus_expiry: ['bus', '(expires_at)'],
  ...APPROVAL_INDEXES,
  ...OPERATOR_INDEXES,
  ...PERMIT_INDEXES,
  ...LABEL_INDEXES,
  ...ALARM_INDEXES,
}

/**
 * `open_tasks` counts the open tasks of an owner, up to a limit, and keeps others from creating one until the transaction ends.
 * Inside a function, the count is a statement of its own, which sees what was committed while it waited for the lock.
 *
 * `record_bound` has at least the bytes of an owner's records, until the last of them has expired. Only `put_record` writes it,
 * under the lock of the owner.
 *
 * A write to the bus waits for the one before it, so that positions become visible in their order.
 */
const tables = (schema: string): string => `
CREATE TABLE ${schema}.task (
  id text PRIMARY KEY,
  tenant text NOT NULL,
  principal text NOT NULL,
  status text NOT NULL,
  message text,
  head text NOT NULL,
  inputs text,
  outcome text,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  poll_ms integer NOT NULL,
  revision integer NOT NULL,
  epoch integer NOT NULL,
  failures integer NOT NULL,
  worker text,
  due_at bigint,
  known boolean NOT NULL,
  bytes integer
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE TABLE ${schema}.journal (
  task text NOT NULL,
  seq integer NOT NULL,
  entry text NOT NULL,
  PRIMARY KEY (task, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE ${schema}.once (
  flow text NOT NULL,
  round integer NOT NULL,
  digest text NOT NULL,
  claimant text NOT NULL,
  hold_until bigint NOT NULL,
  response text,
  expires_at bigint NOT NULL,
  PRIMARY KEY (flow, round)
);
CREATE TABLE ${schema}.blob (id text PRIMARY KEY, sealed text NOT NULL, expires_at bigint NOT NULL);
CREATE FUNCTION ${schema}.open_tasks(of_tenant text, of_principal text, at bigint, up_to bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$ BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('${schema} ' || of_tenant || ' ' || of_principal, 0));
  RETURN (SELECT count(*) FROM (SELECT 1 FROM ${schema}.task o WHERE o.tenant = of_tenant AND o.principal = of_principal
    AND o.status IN ('working', 'input_required') AND o.expires_at > at LIMIT up_to) open);
END $$;
CREATE TABLE ${schema}.record (
  id text PRIMARY KEY,
  owner text NOT NULL,
  sealed text NOT NULL,
  version integer NOT NULL,
  touched_at bigint NOT NULL,
  expires_at bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE ${schema}.record_bound (
  owner text PRIMARY KEY,
  bytes bigint NOT NULL,
  expires_at bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
CREATE SEQUENCE ${schema}.bus_position;
CREATE TABLE ${schema}.bus (
  position bigint PRIMARY KEY,
  message text NOT NULL,
  expires_at bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE FUNCTION ${schema}.put_record(
  new_id text, new_owner text, new_sealed text, old_version integer, ttl bigint, max_bytes bigint, extra bigint, at bigint
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE found record; used bigint; size bigint := length(new_sealed) + extra;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('${schema} record ' || new_owner, 0));
  SELECT r.owner, r.sealed, r.version, r.expires_at > at AS alive INTO found FROM ${schema}.record r WHERE r.id = new_id FOR UPDATE;
  IF coalesce(CASE WHEN found.alive THEN found.version END, 0) <> old_version THEN
    RETURN CASE WHEN found.alive AND found.sealed = new_sealed THEN 'stored' ELSE 'conflict' END;
  END IF;
  SELECT b.bytes - CASE WHEN found.alive AND found.owner = new_owner THEN length(found.sealed) + extra ELSE 0 END
    INTO used FROM ${schema}.record_bound b WHERE b.owner = new_owner;
  IF used IS NULL OR used + size > max_bytes THEN
    SELECT coalesce(sum(length(r.sealed) + extra), 0) INTO used FROM ${schema}.record r
      WHERE r.owner = new_owner AND r.id <> new_id AND r.expires_at > at;
  END IF;
  IF used + size > max_bytes THEN RETURN 'limit'; END IF;
  INSERT INTO ${schema}.record_bound AS b (owner, bytes, expires_at) VALUES (new_owner, used + size, at + ttl)
    ON CONFLICT (owner) DO UPDATE SET bytes = excluded.bytes, expires_at = greatest(b.expires_at, excluded.expires_at);
  INSERT INTO ${schema}.record AS r (id, owner, sealed, version, touched_at, expires_at)
    VALUES (new_id, new_owner, new_sealed, old_version + 1, at, at + ttl)
    ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, sealed = excluded.sealed, version = excluded.version,
      touched_at = excluded.touched_at, expires_at = excluded.expires_at;
  RETURN 'stored';
END $$;
CREATE FUNCTION ${schema}.append_bus(messages text[], until bigint, keep bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE one text; last bigint;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('${schema} bus', 0));
  FOREACH one IN ARRAY messages LOOP
    last := nextval('${schema}.bus_position');
    INSERT INTO ${schema}.bus VALUES (last, one, until);
  END LOOP;
  DELETE FROM ${schema}.bus WHERE position <= last - keep;
END $$;`

/** Each entry upgrades the tables to its version. Released entries never change. */
const MIGRATIONS: readonly (Omit<Migration, 'sql'> & { readonly sql: (schema: string) => string })[] = [
  { version: 6, minCompatible: 6, sql: tables },
  { version: 7, minCompatible: 6, sql: approvalTables },
  // An earlier release would run the tasks of a paused tool.
  { version: 8, minCompatible: 8, sql: operatorTables },
  { version: 9, minCompatible: 8, sql: permitTables },
  { version: 10, minCompatible: 8, sql: labelTables },
  { version: 11, minCompatible: 8, sql: alarmTables },
]

const schemaIn = (name: string) =>
  schemaOf(MIGRATIONS.map((migration) => ({ ...migration, sql: migration.sql(name) })))

/** Reads the catalogue itself: `to_regclass` may use a cache that is older than the lock we waited for. */
const FIND_META = `SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = $1 AND c.relname = 'meta'`

type Query = (text: string, values?: unknown[]) => Promise<readonly PgRow[]>

const whereIs = (schema: string): string => `the schema "${schema}"`

/** Creates or upgrades the tables; indexes that they lack are built in the background. */
export async function migrate(pool: ResilientPool, schema: string): Promise<void> {
  await createTables(pool, schema)
  // It is tried again at the next start, and `rondo store check` reports it.
  void buildIndexes(pool, schema).catch(() => {})
}

export async function createTables(pool: ResilientPool, schema: string): Promise<void> {
  const ours = schemaIn(schema)
  const read: Query = async (text, values = []) => (await pool.query(text, values)).rows
  const before = await readState(read, schema)
  ours.assertUsable(before, whereIs(schema))
  if (before.version >= ours.version) return
  await pool.transaction(async (query) => {
    await query("SELECT pg_advisory_xact_lock(hashtext('rondo'), hashtext($1))", [schema])
    const state = await readState(query, schema)
    ours.assertUsable(state, whereIs(schema))
    if (state.version === 0) {
      await query(`CREATE SCHEMA IF NOT EXISTS ${schema}`)
      await query(`CREATE TABLE ${schema}.meta (key text PRIMARY KEY, value text NOT NULL)`)
      await query(`INSERT INTO ${schema}.meta VALUES ('epoch', $1), ('life', '')`, [createEpoch()])
    }
    for (const { sql, version, minCompatible } of ours.missing(state)) {
      await query(sql)
      await query(
        `INSERT INTO ${schema}.meta VALUES ('version', $1), ('min_compatible', $2)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value`,
        [String(version), String(minCompatible)],
      )
    }
    // In new tables an index costs nothing.
    if (state.version === 0) for (const name of Object.keys(INDEXES)) await query(createIndex(schema, name))
  })
}

function createIndex(schema: string, name: string, how = ''): string {
  const [table, definition] = INDEXES[name] ?? []
  return `CREATE INDEX ${how} ${name} ON ${schema}.${table} ${definition}`
}

/** The indexes that exist, and whether they can be used: a build that was interrupted leaves one that cannot. */
const FIND_INDEXES = `SELECT c.relname AS name, i.indisvalid AS valid,
    EXISTS (SELECT 1 FROM pg_catalog.pg_stat_progress_create_index p WHERE p.index_relid = c.oid) AS building
  FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1`

/** An index takes as long as its table is large. */
const BUILD_MS = 24 * 3_600_000

/** Builds the indexes that are missing, and those again whose build was interrupted. Writes continue meanwhile. */
export async function buildIndexes(pool: ResilientPool, schema: string): Promise<void> {
  const query: Query = async (text, values = []) => (await pool.query(text, values)).rows
  // A later release may have replaced some.
  if ((await readState(query, schema)).version > schemaIn(schema).version) return
  const { rows } = await pool.query(FIND_INDEXES, [schema])
  const found = new Map(rows.map((row) => [row.name, row]))
  for (const name of Object.keys(INDEXES)) {
    const index = found.get(name)
    // Another process may be building the index.
    if (index?.valid || index?.building) continue
    if (index) await pool.runLong(`DROP INDEX CONCURRENTLY IF EXISTS ${schema}.${name}`, BUILD_MS)
    await pool.runLong(createIndex(schema, name, 'CONCURRENTLY IF NOT EXISTS'), BUILD_MS)
  }
}

/** For reading only: the tables must exist, of a version that this release can use. */
export async function assertTables(pool: ResilientPool, schema: string): Promise<void> {
  const find = `SELECT count(*)::int AS tables FROM pg_catalog.pg_tables
    WHERE schemaname = $1 AND tablename IN ('meta', 'task', 'journal')`
  const { rows } = await pool.query(find, [schema])
  if (rows[0]?.tables !== 3) {
    throw new RondoError('STORE_SCHEMA', `the database has no Rondo store in the schema "${schema}"`)
  }
  const state = await readState(async (text, values = []) => (await pool.query(text, values)).rows, schema)
  schemaIn(schema).assertReadable(state, whereIs(schema))
}

/** Version 0 if there are no tables. */
async function readState(query: Query, schema: string): Promise<SchemaState> {
  if ((await query(FIND_META, [schema])).length === 0) return { version: 0, minCompatible: 0 }
  const rows = await query(`SELECT key, value FROM ${schema}.meta WHERE key IN ('version', 'min_compatible')`)
  const of = (key: string): number | undefined => {
    const row = rows.find((each) => each.key === key)
    return row && Number(row.value)
  }
  const version = of('version') ?? 0
  return { version, minCompatible: of('min_compatible') ?? version }
}

/** For an operator: reads whatever is there. */
export async function checkTables(pool: ResilientPool, schema: string): Promise<StoreCheck> {
  const ours = schemaIn(schema)
  const query: Query = async (text, values = []) => (await pool.query(text, values)).rows
  const state = await readState(query, schema)
  if (state.version === 0) return { ...state, supported: ours.version, problems: [] }
  const obstacle = ours.obstacle(state, whereIs(schema))
  const found = new Map((await query(FIND_INDEXES, [schema])).map((row) => [row.name, row]))
  const lacking = Object.keys(INDEXES).filter((name) => !found.get(name)?.valid)
  const indexes = lacking.map((name) =>
    found.get(name)?.building
      ? `The index ${name} is being built`
      : `The index ${name} is ${found.has(name) ? 'incomplete' : 'missing'}: rondo store migrate builds it`,
  )
  const problems = [...(obstacle === undefined ? [] : [obstacle]), ...indexes]
  return { ...state, supported: ours.version, problems }
}

/** Accepts only names that need no quotes in SQL. */
export function assertSchema(schema: string): void {
  if (!/^[a-z_][a-z0-9_]{0,47}$/.test(schema))
    throw misuse(
      'schema must consist of lower-case letters, digits and underscores, and be at most 48 characters long',
    )
}
