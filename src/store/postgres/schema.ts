/**
 * The tables in PostgreSQL. They are made once, under a lock that ends with its transaction, so that many processes may
 * start together and poolers do not matter; a role without the right to create tables may use tables that are there.
 */

import { randomBytes } from 'node:crypto'
import { misuse, RondoError } from '../../errors.ts'
import type { PgRow, ResilientPool } from './driver.ts'

/** Each entry takes the tables one version further. Entries that were released are never changed. */
const STEPS: readonly ((schema: string) => string)[] = [
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
  // Whether the owner has shown that it knows the id. Those that were there before are taken to be known.
  (schema) => `ALTER TABLE ${schema}.task ADD COLUMN known boolean NOT NULL DEFAULT true;`,
  // How many tasks of an owner are open, up to a limit, with nobody else creating one until the transaction ends. A statement
  // of its own, inside of a function, sees what was committed while it waited for the lock.
  (schema) => `
CREATE FUNCTION ${schema}.open_tasks(of_tenant text, of_principal text, at bigint, up_to bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$ BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('${schema} ' || of_tenant || ' ' || of_principal, 0));
  RETURN (SELECT count(*) FROM (SELECT 1 FROM ${schema}.task o WHERE o.tenant = of_tenant AND o.principal = of_principal
    AND o.status IN ('working', 'input_required') AND o.expires_at > at LIMIT up_to) open);
END $$;`,
]

const VERSION = STEPS.length

/** Asks the catalogue itself: `to_regclass` may answer from a cache that is older than the lock we waited for. */
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
    for (const step of STEPS.slice(version)) await query(step(schema))
    if (version < VERSION) await query(`UPDATE ${schema}.meta SET value = '${VERSION}' WHERE key = 'version'`)
  })
}

/** For whoever only looks: the tables must be there, of this version or an earlier one. */
export async function assertTables(pool: ResilientPool, schema: string): Promise<void> {
  const find = `SELECT count(*)::int AS tables FROM pg_catalog.pg_tables
    WHERE schemaname = $1 AND tablename IN ('meta', 'task', 'journal')`
  const { rows } = await pool.query(find, [schema])
  if (rows[0]?.tables !== 3) {
    throw new RondoError('STORE_SCHEMA', `the database has no store of tasks in the schema "${schema}"`)
  }
  await readVersion(pool, schema)
}

async function readVersion(pool: ResilientPool, schema: string): Promise<number> {
  const { rows } = await pool.query(`SELECT value FROM ${schema}.meta WHERE key = 'version'`, [])
  const version = versionOf(rows)
  if (version <= VERSION) return version
  throw new RondoError('STORE_SCHEMA', `the tables have version ${version}, this release knows ${VERSION}`)
}

function versionOf(rows: readonly PgRow[]): number {
  return Number(rows[0]?.value ?? 0)
}

export function createEpoch(): string {
  return randomBytes(12).toString('base64url')
}

/** A name that needs no quotes, so that it reads the same everywhere. */
export function assertSchema(schema: string): void {
  if (!/^[a-z_][a-z0-9_]{0,47}$/.test(schema))
    throw misuse('schema must be a plain lower-case name of letters, digits and underscores')
}
