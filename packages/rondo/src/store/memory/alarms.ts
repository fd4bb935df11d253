/** Alarms in memory. */

import type { AlarmStore, EndedStatus } from '../alarms.ts'
import { isOpen } from '../task-engine.ts'
import type { MemoryTable, TaskRow } from './tasks.ts'

interface AlarmRow {
  readonly task: string
  readonly alarm: string
  readonly expiresAt: number
  ended?: EndedStatus
}

export function createMemoryAlarms(table: MemoryTable): { port: AlarmStore; sweep(limit: number): number } {
  let rows: AlarmRow[] = []
  const of = (task: string) => rows.filter((row) => row.task === task && row.expiresAt > table.now())
  table.onStatus((changed: TaskRow) => {
    const ended = isOpen(changed.status) ? undefined : (changed.status as EndedStatus)
    for (const row of of(changed.id)) {
      row.ended = ended
      const alarm = table.live(row.alarm)
      if (ended && alarm && isOpen(alarm.status) && alarm.worker === undefined)
        table.rest(alarm, Math.min(alarm.dueAt ?? table.now(), table.now()))
    }
  })
  const port: AlarmStore = {
    async set(task, alarm, ttlMs) {
      const row = table.live(task)
      if (row && !isOpen(row.status)) return false
      if (!of(task).some((one) => one.alarm === alarm))
        rows.push({ task, alarm, expiresAt: table.now() + ttlMs })
      return true
    },
    ended: async (task) => of(task)[0]?.ended,
  }
  return {
    port,
    sweep(limit) {
      const gone = rows.filter(({ expiresAt }) => expiresAt <= table.now()).slice(0, limit)
      rows = rows.filter((row) => !gone.includes(row))
      return gone.length
    },
  }
}
