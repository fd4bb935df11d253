import type { OnceClaim, OnceStore } from '../once-store.ts'
import { createEpoch } from './sqlite-schema.ts'
import type { SqliteSession } from './sqlite-session.ts'

/** Single use on SQLite: one write transaction looks and takes, so nobody comes in between. */
export function createSqliteOnce({ sql, queue, now }: SqliteSession): OnceStore {
  const epoch = sql("SELECT value FROM meta WHERE key = 'epoch'")
  const setEpoch = sql("UPDATE meta SET value = ? WHERE key = 'epoch'")
  const find = sql('SELECT digest, claimant, hold_until, response FROM once WHERE flow = ? AND round = ?')
  const take = sql(`INSERT OR REPLACE INTO once (flow, round, digest, claimant, hold_until, expires_at)
    VALUES (?, ?, ?, ?, ?, ?)`)
  const renew = sql(`UPDATE once SET hold_until = ? WHERE flow = ? AND round = ? AND claimant = ?
    AND response IS NULL`)
  const settle = sql(
    `UPDATE once SET response = ? WHERE flow = ? AND round = ? AND digest = ? AND response IS NULL`,
  )
  const claim = (...[slot, { claimant, holdMs }]: Parameters<OnceStore['claim']>): OnceClaim => {
    const { flow, round, digest, expiresAt } = slot
    if (epoch.get()?.value !== slot.epoch) return { kind: 'refused', reason: 'epoch' }
    if (expiresAt <= now()) return { kind: 'refused', reason: 'expired' }
    const row = find.get(flow, round)
    if (row !== undefined) {
      if (row.digest !== digest) return { kind: 'refused', reason: 'used' }
      if (row.response !== null) return { kind: 'stored', response: row.response as string }
      const retryMs = Number(row.hold_until) - now()
      if (row.claimant !== claimant && retryMs > 0) return { kind: 'busy', retryMs }
    }
    take.run(flow, round, digest, claimant, now() + holdMs, expiresAt)
    return { kind: 'first' }
  }
  return {
    epoch: () => queue.read(() => String(epoch.get()?.value)),
    renewEpoch: () =>
      queue.write(() => {
        const next = createEpoch()
        setEpoch.run(next)
        return next
      }),
    claim: (slot, attempt) => queue.write(() => claim(slot, attempt)),
    renew: ({ flow, round }, { claimant, holdMs }) =>
      queue.write(() => renew.run(now() + holdMs, flow, round, claimant) === 1),
    settle: (slot, response) =>
      queue.write(() => {
        settle.run(response, slot.flow, slot.round, slot.digest)
        const row = find.get(slot.flow, slot.round)
        return row?.digest === slot.digest ? (row.response as string) : response
      }),
  }
}
