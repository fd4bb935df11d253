/**
 * The tables in PostgreSQL. They are created under a transaction-level lock, so that many processes can start together and
 * poolers do not matter. A role without the right to create tables can use existing ones.
 */

import { misuse, RondoError } from '../../errors.ts'
import { createEpoch } from '../store.ts'
import type { PgRow, ResilientPool } from './driver.ts'

/** Each entry upgrades the tables by one version. Released entries never change. */
const MIGRATIONS: readonly ((schema: string) => string)[] = [
  (schema) => `
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
  due_at bigint
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX task_due ON ${schema}.task (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX task_expiry ON ${schema}.task (expires_at);
CREATE INDEX task_open ON ${schema}.task (tenant, principal, expires_at)
  WHERE status IN ('working', 'input_required');
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
CREATE INDEX once_expiry ON ${schema}.once (expires_at);
CREATE TABLE ${schema}.blob (id text PRIMARY KEY, sealed text NOT NULL, expires_at bigint NOT NULL);
CREATE INDEX blob_expiry ON ${schema}.blob (expires_at);`,
  // The tasks of one owner, newest first.
  (schema) => `CREATE INDEX task_owner ON ${schema}.task (tenant, principal, created_at, id);`,
  // Whether the owner has shown that it knows the id; assumed for tasks that exist already.
  (schema) => `ALTER TABLE ${schema}.task ADD COLUMN known boolean NOT NULL DEFAULT true;`,
  // Counts the open tasks of an owner, up to a limit, and keeps others from creating one until the transaction ends. Inside a
  // function, the count is a statement of its own, which sees what was committed while it waited for the lock.
  (schema) => `
CREATE FUNCTION ${schema}.open_tasks(of_tenant text, of_principal text, at bigint, up_to bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$ BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('${schema} ' || of_tenant || ' ' || of_principal, 0));
  RETURN (SELECT count(*) FROM (SELECT 1 FROM ${schema}.task o WHERE o.tenant = of_tenant AND o.principal = of_principal
    AND o.status IN ('working', 'input_required') AND o.expires_at > at LIMIT up_to) open);
END $$;`,
  // What the instances of a fleet share of sessions, and what they tell each other. A write to the bus waits for the one
  // before it, so that positions become visible in their order.
  (schema) => `
CREATE TABLE ${schema}.record (
  id text PRIMARY KEY,
  owner text NOT NULL,
  sealed text NOT NULL,
  version integer NOT NULL,
  touched_at bigint NOT NULL,
  expires_at bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX record_owner ON ${schema}.record (owner);
CREATE INDEX record_expiry ON ${schema}.record (expires_at);
CREATE SEQUENCE ${schema}.bus_position;
CREATE TABLE ${schema}.bus (
  position bigint PRIMARY KEY,
  message text NOT NULL,
  expires_at bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX bus_expiry ON ${schema}.bus (expires_at);
CREATE FUNCTION ${schema}.put_record(
  new_id text, new_owner text, new_sealed text, old_version integer, ttl bigint, max_bytes bigint, extra bigint, at bigint
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE found record; used bigint;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('${schema} record ' || new_owner, 0));
  SELECT r.sealed, r.version, r.expires_at > at AS alive INTO found FROM ${schema}.record r WHERE r.id = new_id FOR UPDATE;
  IF coalesce(CASE WHEN found.alive THEN found.version END, 0) <> old_version THEN
    RETURN CASE WHEN found.alive AND found.sealed = new_sealed THEN 'stored' ELSE 'conflict' END;
  END IF;
  SELECT coalesce(sum(length(r.sealed) + extra), 0) INTO used FROM ${schema}.record r
    WHERE r.owner = new_owner AND r.id <> new_id AND r.expires_at > at;
  IF used + length(new_sealed) + extra > max_bytes THEN RETURN 'limit'; END IF;
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
END $$;`,
]

const VERSION = MIGRATIONS.length

/** Reads the catalogue itself: `to_regclass` may use a cache that is older than the lock we waited for. */
const FIND_META = `SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = $1 AND c.relname = 'meta'`

export async function migrate(pool: ResilientPool, schema: string): Promise<void> {
  const { rows } = await pool.query(FIND_META, [schema])
  if (rows.length > 0 && (await readVersion(pool, schema)) >= VERSION) return
  await pool.transaction(async (query) => {
    await query("SELECT pg_advisory_xact_lock(hashtext('rondo'), hashtext($1))", [schema])
    if ((await query(FIND_META, [schema])).length === 0) {
      await query(`CREATE SCHEMA IF NOT EXISTS ${schema}`)
      await query(`CREATE TABLE ${schema}.meta (key text PRIMARY KEY, value text NOT NULL)`)
      await query(`INSERT INTO ${schema}.meta VALUES ('version', '0'), ('epoch', $1), ('life', '')`, [
        createEpoch(),
      ])
    }
    const version = versionOf(await query(`SELECT value FROM ${schema}.meta WHERE key = 'version'`))
    for (const migration of MIGRATIONS.slice(version)) await query(migration(schema))
    if (version < VERSION) await query(`UPDATE ${schema}.meta SET value = '${VERSION}' WHERE key = 'version'`)
  })
}

/** For reading only: the tables must exist, of this version or an earlier one. */
export async function assertTables(pool: ResilientPool, schema: string): Promise<void> {
  const find = `SELECT count(*)::int AS tables FROM pg_catalog.pg_tables
    WHERE schemaname = $1 AND tablename IN ('meta', 'task', 'journal')`
  const { rows } = await pool.query(find, [schema])
  if (rows[0]?.tables !== 3) {
    throw new RondoError('STORE_SCHEMA', `the database has no Rondo store in the schema "${schema}"`)
  }
  await readVersion(pool, schema)
}

async function readVersion(pool: ResilientPool, schema: string): Promise<number> {
  const { rows } = await pool.query(`SELECT value FROM ${schema}.meta WHERE key = 'version'`, [])
  const version = versionOf(rows)
  if (version <= VERSION) return version
  throw new RondoError(
    'STORE_SCHEMA',
    `the tables have version ${version}, but this release of Rondo supports up to ${VERSION}: upgrade Rondo`,
  )
}

function versionOf(rows: readonly PgRow[]): number {
  return Number(rows[0]?.value ?? 0)
}

/** Accepts only names that need no quotes in SQL. */
export function assertSchema(schema: string): void {
  if (!/^[a-z_][a-z0-9_]{0,47}$/.test(schema))
    throw misuse(
      'schema must consist of lower-case letters, digits and underscores, and be at most 48 characters long',
    )
}
