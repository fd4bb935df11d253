/** Alarms in SQLite. A trigger rings them, because tasks end in several places. */

import type { AlarmStore, EndedStatus } from '../alarms.ts'
import { isOpen } from '../task-engine.ts'
import type { SqliteDatabase } from './database.ts'

const ENDED = "('completed', 'failed', 'cancelled')"

export const ALARM_TABLES: string = `
CREATE TABLE alarm (
  task TEXT NOT NULL,
  alarm TEXT NOT NULL,
  ended TEXT,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (task, alarm)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER task_alarm AFTER UPDATE OF status ON task
WHEN (NEW.status IN ${ENDED}) <> (OLD.status IN ${ENDED}) BEGIN
  UPDATE alarm SET ended = CASE WHEN NEW.status IN ${ENDED} THEN NEW.status END WHERE task = NEW.id;
  UPDATE task SET due_at = min(coalesce(due_at, NEW.updated_at), NEW.updated_at)
    WHERE NEW.status IN ${ENDED} AND id IN (SELECT alarm FROM alarm WHERE task = NEW.id)
    AND worker IS NULL AND status NOT IN ${ENDED};
END
`

export const ALARM_INDEXES: readonly string[] = ['CREATE INDEX alarm_expiry ON alarm (expires_at)']

export function createAlarms({ sql, queue, now }: SqliteDatabase): AlarmStore {
  const status = sql('SELECT status FROM task WHERE id = ? AND expires_at > ?')
  const enter = sql('INSERT OR IGNORE INTO alarm (task, alarm, expires_at) VALUES (?, ?, ?)')
  const find = sql('SELECT ended FROM alarm WHERE task = ? AND expires_at > ? LIMIT 1')
  return {
    set: (task, alarm, ttlMs) =>
      queue.write(() => {
        const row = status.get(task, now())
        if (row && !isOpen(row.status)) return false
        enter.run(task, alarm, now() + ttlMs)
        return true
      }),
    async ended(task) {
      const row = await queue.read(() => find.get(task, now()))
      return (row?.ended ?? undefined) as EndedStatus | undefined
    },
  }
}

/** Deletes alarms whose time is up; returns how many. */
export function createAlarmSweep({ sql, now }: SqliteDatabase): (limit: number) => number {
  const remove = sql(`DELETE FROM alarm WHERE (task, alarm) IN
    (SELECT task, alarm FROM alarm WHERE expires_at <= ? LIMIT ?)`)
  return (limit) => remove.run(now(), limit)
}
