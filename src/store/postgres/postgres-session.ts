/** What the parts of a PostgreSQL store share: queries on prepared tables, the clock, the hints. */

import { RondoError } from '../../errors.ts'
import type { HintBus } from '../hint-bus.ts'
import type { Hint } from '../task-store.ts'
import { type Answer, type PgRow, type ResilientPool, toStoreError } from './postgres-pool.ts'

/**
 * The time, in SQL. The database's clock decides for all instances; tests give another as a parameter. It must be stable
 * within a statement, or no index on times could be used.
 */
export const nowAt = (parameter: string): string =>
  `coalesce(${parameter}::bigint, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)`

export interface PostgresSession {
  readonly schema: string
  /** Runs a statement; the tables are there. */
  query(text: string, values: unknown[]): Promise<PgRow[]>
  /** The same, and tells whether it had to be repeated. */
  ask(text: string, values: unknown[]): Promise<Answer>
  readonly pool: ResilientPool
  /** The time as a parameter: null for the database's own. */
  now(): number | null
  readonly hints: HintBus
  /** Tells this process and the others. */
  tell(hint: Hint): void
  ready(): Promise<void>
}

export interface SessionOptions {
  readonly pool: ResilientPool
  readonly schema: string
  readonly now: (() => number) | undefined
  readonly hints: HintBus
  readonly notify: (hint: Hint) => void
  /** Makes sure of the tables. */
  readonly prepare: (pool: ResilientPool, schema: string) => Promise<void>
}

const isForbidden = (error: unknown): boolean => (error as { code?: unknown }).code === '42501'

const forbidden = (cause: unknown): RondoError =>
  new RondoError('STORE_SCHEMA', 'this role may neither use the tables nor make them', { cause })

export function createSession(options: SessionOptions): PostgresSession {
  const { pool, schema, now, hints, notify, prepare } = options
  let prepared: Promise<void> | undefined
  const ready = async () => {
    prepared ??= prepare(pool, schema)
    try {
      await prepared
    } catch (error) {
      prepared = undefined
      throw isForbidden(error) ? forbidden(error) : toStoreError(error)
    }
  }
  const ask = async (text: string, values: unknown[]) => {
    await ready()
    try {
      return await pool.query(text, values)
    } catch (error) {
      throw toStoreError(error)
    }
  }
  return {
    schema,
    pool,
    hints,
    ready,
    ask,
    query: async (text, values) => (await ask(text, values)).rows,
    now: () => now?.() ?? null,
    tell(hint) {
      hints.tell(hint)
      notify(hint)
    },
  }
}
