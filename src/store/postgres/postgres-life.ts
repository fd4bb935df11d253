/**
 * Which life of the database this is. Records of single use that a restore, a fail-over or a new server lost are
 * noticed by what such an event changes: the cluster, its timeline, or the table itself. Then the epoch is renewed, and
 * what was handed out before is refused.
 */

import { createEpoch } from './postgres-schema.ts'
import type { PostgresSession } from './postgres-session.ts'

export interface PostgresLife {
  /** The epoch, renewed first if this is another life. */
  epoch(): Promise<string>
  renew(): Promise<string>
  /** SQL that is true if `parameter` is the epoch of this very life. */
  isCurrent(parameter: string): Promise<string>
}

export function createLife(session: PostgresSession): PostgresLife {
  const { schema, query, pool, ready } = session
  let expression: Promise<string> | undefined
  const life = () => {
    expression ??= describeLife(session)
    return expression
  }
  const value = (key: string) => `(SELECT value FROM ${schema}.meta WHERE key = '${key}')`
  const renew = async (onlyIfChanged: boolean) => {
    await ready()
    const current = await life()
    return pool.transaction(async (run) => {
      await run("SELECT pg_advisory_xact_lock(hashtext('rondo'), hashtext($1))", [schema])
      const [row] = await run(`SELECT ${value('epoch')} AS epoch, ${value('life')} = ${current} AS same`)
      if (onlyIfChanged && row?.same === true) return String(row.epoch)
      const epoch = createEpoch()
      await run(`UPDATE ${schema}.meta SET value = ${current} WHERE key = 'life'`)
      await run(`UPDATE ${schema}.meta SET value = $1 WHERE key = 'epoch'`, [epoch])
      return epoch
    })
  }
  return {
    async epoch() {
      const [row] = await query(
        `SELECT ${value('epoch')} AS epoch, ${value('life')} = ${await life()} AS same`,
        [],
      )
      return row?.same === true ? String(row.epoch) : renew(true)
    },
    renew: () => renew(false),
    isCurrent: async (parameter) =>
      `(${value('epoch')} = ${parameter} AND ${value('life')} = ${await life()})`,
  }
}

/** The timeline is read off the name of the current log file: it changes the moment a standby takes over. */
async function describeLife({ schema, query }: PostgresSession): Promise<string> {
  const table = `'${schema}.once'::regclass::oid::text`
  const timeline = 'left(pg_walfile_name(pg_current_wal_lsn()), 8)'
  const cluster = '(SELECT system_identifier::text FROM pg_control_system())'
  const full = `concat_ws(' ', ${cluster}, ${timeline}, ${table})`
  try {
    await query(`SELECT ${full}`, [])
    return full
  } catch {
    // Some hosts do not let everybody ask for the cluster's identity.
    return table
  }
}
