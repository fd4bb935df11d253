/**
 * Audits a database from inside, with triggers: every entry that is written and every ending. So a late write is found
 * even if it was overwritten later.
 */

import pg from 'pg'
import { openSqlite } from '../../../packages/rondo/src/store/sqlite/database.ts'
import type { StoreAddress } from './store-harness.ts'
import type { Entry } from './worker-plan.ts'

export interface Finding {
  /** The number of times that each task ended. */
  readonly endings: ReadonlyMap<string, number>
  /** Entries that a process wrote to a task that it did not hold at that moment. */
  readonly stale: number
  /** Places in a journal that were written more than once. */
  readonly rewritten: number
  readonly entries: number
}

interface AuditRow {
  readonly kind: string
  readonly task: string
  readonly seq: number | null
  readonly entry: string | null
  readonly worker: string | null
}

export interface StoreAudit {
  read(): Promise<Finding>
}

export async function startAudit(address: StoreAddress): Promise<StoreAudit> {
  const rows = address.kind === 'sqlite' ? auditSqlite(address.file) : await auditPostgres(address)
  return { read: async () => findFaults(await rows()) }
}

function auditSqlite(file: string): () => Promise<AuditRow[]> {
  const connection = openSqlite(file)
  connection.prepare('PRAGMA busy_timeout = 5000').get()
  connection.exec(`
    CREATE TABLE audit (kind TEXT, task TEXT, seq INTEGER, entry TEXT, worker TEXT);
    CREATE TRIGGER audit_entry AFTER INSERT ON journal BEGIN
      INSERT INTO audit SELECT 'entry', NEW.task, NEW.seq, NEW.entry, worker FROM task WHERE id = NEW.task;
    END;
    CREATE TRIGGER audit_end AFTER UPDATE OF status ON task WHEN NEW.status IN ('completed', 'failed') BEGIN
      INSERT INTO audit VALUES ('end', NEW.id, NULL, NULL, NULL);
    END;`)
  connection.close()
  return async () => {
    const reader = openSqlite(file)
    reader.prepare('PRAGMA busy_timeout = 5000').get()
    const rows = reader.prepare('SELECT kind, task, seq, entry, worker FROM audit').all()
    reader.close()
    return rows as unknown as AuditRow[]
  }
}

async function auditPostgres({ connectionString, schema }: StoreAddress & { kind: 'postgres' }) {
  const ask = async (text: string) => {
    const client = new pg.Client({ connectionString })
    client.on('error', () => {})
    await client.connect()
    const result = await client.query(text)
    await client.end()
    return result
  }
  await ask(`
    CREATE TABLE ${schema}.audit (kind text, task text, seq integer, entry text, worker text);
    CREATE FUNCTION ${schema}.audit_entry() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      INSERT INTO ${schema}.audit SELECT 'entry', NEW.task, NEW.seq, NEW.entry, worker FROM ${schema}.task
        WHERE id = NEW.task;
      RETURN NEW; END $$;
    CREATE TRIGGER audit_entry AFTER INSERT OR UPDATE ON ${schema}.journal
      FOR EACH ROW EXECUTE FUNCTION ${schema}.audit_entry();
    CREATE FUNCTION ${schema}.audit_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      INSERT INTO ${schema}.audit VALUES ('end', NEW.id, NULL, NULL, NULL);
      RETURN NEW; END $$;
    CREATE TRIGGER audit_end AFTER UPDATE OF status ON ${schema}.task
      FOR EACH ROW WHEN (NEW.status IN ('completed', 'failed')) EXECUTE FUNCTION ${schema}.audit_end();`)
  return async (): Promise<AuditRow[]> =>
    (await ask(`SELECT kind, task, seq, entry, worker FROM ${schema}.audit`)).rows
}

function findFaults(rows: readonly AuditRow[]): Finding {
  const endings = new Map<string, number>()
  const places = new Map<string, number>()
  let stale = 0
  for (const { kind, task, seq, entry, worker } of rows) {
    if (kind === 'end') {
      endings.set(task, (endings.get(task) ?? 0) + 1)
      continue
    }
    const place = `${task}/${seq}`
    places.set(place, (places.get(place) ?? 0) + 1)
    const { pid } = JSON.parse(entry ?? '{}') as Entry
    if (!worker?.endsWith(`pid:${pid}`)) stale++
  }
  const rewritten = [...places.values()].filter((count) => count > 1).length
  return { endings, stale, rewritten, entries: places.size }
}
