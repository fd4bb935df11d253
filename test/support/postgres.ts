/** Suites that need PostgreSQL. If it is missing, they are skipped with a warning; with `CI=true` that is a failure. */

import { describe, it } from 'vitest'
import { hasPostgres } from './postgres-server.ts'

/** A suite that needs PostgreSQL. */
export function describePostgres(name: string, body: () => void): void {
  if (hasPostgres) return void describe(name, body)
  if (process.env.CI === 'true') {
    describe(name, () => {
      it('PostgreSQL can be started', () => {
        throw new Error('PostgreSQL is missing, and CI=true: run scripts/ensure-postgres.sh')
      })
    })
    return
  }
  console.warn(`\n*** SKIPPED, PostgreSQL is not installed: ${name}. Run scripts/ensure-postgres.sh ***\n`)
  describe.skip(name, body)
}
