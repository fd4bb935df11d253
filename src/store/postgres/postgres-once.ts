import type { OnceAttempt, OnceClaim, OnceSlot, OnceStore } from '../once-store.ts'
import { createLife } from './postgres-life.ts'
import { nowAt, type PostgresSession } from './postgres-session.ts'

/** Single use on PostgreSQL: the primary key decides who is first; who is not looks at what is there. */
export function createPostgresOnce(session: PostgresSession): OnceStore {
  const { schema, query, now } = session
  const life = createLife(session)
  const once = `${schema}.once`
  const renew = `UPDATE ${once} SET hold_until = ${nowAt('$4')} + $5::bigint
    WHERE flow = $1 AND round = $2 AND claimant = $3 AND response IS NULL RETURNING 1`
  const settle = `UPDATE ${once} SET response = coalesce(response, $4)
    WHERE flow = $1 AND round = $2 AND digest = $3 RETURNING response`

  const take = async (
    { flow, round, digest, epoch, expiresAt }: OnceSlot,
    { claimant, holdMs }: OnceAttempt,
  ) => {
    const rows = await query(
      `INSERT INTO ${once} AS o (flow, round, digest, claimant, hold_until, expires_at)
      SELECT $1, $2, $3, $4, ${nowAt('$7')} + $5::bigint, $6::bigint
      WHERE $6::bigint > ${nowAt('$7')} AND ${await life.isCurrent('$8')}
      ON CONFLICT (flow, round) DO UPDATE SET claimant = excluded.claimant, hold_until = excluded.hold_until
      WHERE o.digest = excluded.digest AND o.response IS NULL
        AND (o.claimant = excluded.claimant OR o.hold_until <= ${nowAt('$7')})
      RETURNING 1`,
      [flow, round, digest, claimant, holdMs, expiresAt, now(), epoch],
    )
    return rows.length > 0
  }
  const look = async ({ flow, round, digest, epoch, expiresAt }: OnceSlot): Promise<OnceClaim> => {
    const [row] = await query(
      `SELECT ${await life.isCurrent('$5')} AS current, $3::bigint > ${nowAt('$4')} AS valid, o.digest, o.response,
        o.hold_until - ${nowAt('$4')} AS retry
      FROM (SELECT 1) one LEFT JOIN ${once} o ON o.flow = $1 AND o.round = $2`,
      [flow, round, expiresAt, now(), epoch],
    )
    if (row?.current !== true) return { kind: 'refused', reason: 'epoch' }
    if (row.valid !== true) return { kind: 'refused', reason: 'expired' }
    if (row.digest !== null && row.digest !== digest) return { kind: 'refused', reason: 'used' }
    if (typeof row.response === 'string') return { kind: 'stored', response: row.response }
    // One that was let go in between is worth a try at once.
    return { kind: 'busy', retryMs: Math.max(Number(row.retry), 0) }
  }
  return {
    epoch: life.epoch,
    renewEpoch: life.renew,
    claim: async (slot, attempt) => ((await take(slot, attempt)) ? { kind: 'first' } : look(slot)),
    async renew({ flow, round }, { claimant, holdMs }) {
      return (await query(renew, [flow, round, claimant, now(), holdMs])).length > 0
    },
    async settle({ flow, round, digest }, response) {
      const [row] = await query(settle, [flow, round, digest, response])
      return row === undefined ? response : String(row.response)
    },
  }
}
