/** Alarms in PostgreSQL. A trigger rings them, because tasks end in several places. */

import type { AlarmStore, EndedStatus } from '../alarms.ts'
import { isOpen } from '../task-engine.ts'
import { patiently } from './approvals.ts'
import { nowAt, type PostgresDatabase } from './database.ts'

const ENDED = "('completed', 'failed', 'cancelled')"

/** An alarm whose row is locked is just being claimed or parked. It looks again by itself, and nobody waits for its lock. */
export const alarmTables = (schema: string): string => `
CREATE TABLE ${schema}.alarm (
  task text NOT NULL,
  alarm text NOT NULL,
  ended text,
  expires_at bigint NOT NULL,
  PRIMARY KEY (task, alarm)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE FUNCTION ${schema}.ring_alarms() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  UPDATE ${schema}.alarm SET ended = CASE WHEN NEW.status IN ${ENDED} THEN NEW.status END WHERE task = NEW.id;
  IF FOUND AND NEW.status IN ${ENDED} THEN
    UPDATE ${schema}.task SET due_at = least(coalesce(due_at, NEW.updated_at), NEW.updated_at)
      WHERE id IN (SELECT t.id FROM ${schema}.alarm a JOIN ${schema}.task t ON t.id = a.alarm
        WHERE a.task = NEW.id AND t.worker IS NULL AND t.status NOT IN ${ENDED} FOR UPDATE OF t SKIP LOCKED);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER task_alarm AFTER UPDATE OF status ON ${schema}.task FOR EACH ROW
WHEN ((NEW.status IN ${ENDED}) <> (OLD.status IN ${ENDED})) EXECUTE FUNCTION ${schema}.ring_alarms()`

/** Each index by its name: the table, and the rest of its definition. */
export const ALARM_INDEXES: Readonly<Record<string, readonly [table: string, definition: string]>> = {
  alarm_expiry: ['alarm', '(expires_at)'],
}

export function createAlarms(database: PostgresDatabase): AlarmStore {
  const { schema, query, now } = database
  const at = nowAt('$2')
  // The lock decides which of setting an alarm and ending the task comes first.
  const status = `SELECT status FROM ${schema}.task WHERE id = $1 AND expires_at > ${at} FOR SHARE`
  const enter = `INSERT INTO ${schema}.alarm (task, alarm, expires_at) VALUES ($1, $3, ${at} + $4::bigint) ON CONFLICT DO NOTHING`
  const find = `SELECT ended FROM ${schema}.alarm WHERE task = $1 AND expires_at > ${at} LIMIT 1`
  return {
    set: (task, alarm, ttlMs) =>
      patiently(database, async (run) => {
        const [row] = await run(status, [task, now()])
        if (row && !isOpen(row.status)) return false
        await run(enter, [task, now(), alarm, ttlMs])
        return true
      }),
    async ended(task) {
      const [row] = await query(find, [task, now()])
      return (row?.ended ?? undefined) as EndedStatus | undefined
    },
  }
}

/** Deletes alarms whose time is up; returns how many. */
export async function sweepAlarms({ query, now, schema }: PostgresDatabase, limit: number): Promise<number> {
  const text = `DELETE FROM ${schema}.alarm WHERE (task, alarm) IN (SELECT task, alarm FROM ${schema}.alarm
    WHERE expires_at <= ${nowAt('$1')} LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING 1`
  return (await query(text, [now(), limit])).length
}
