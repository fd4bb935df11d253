/** The databases that are measured: each subject has its own, in the same folder or server. */

import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { hasPostgres, startPostgres } from '../../test/support/postgres-server.ts'
import { restateNode } from '../../test/support/restate/node.ts'
import { hasRestate, startRestate } from '../../test/support/restate/server.ts'
import type { RestateAddress, StoreAddress } from './subject.ts'

export interface Databases<A = StoreAddress> {
  readonly name: string
  /** A new one, empty. */
  create(): A
  close(): Promise<void>
}

export async function openSqliteFiles(): Promise<Databases> {
  const folder = await mkdtemp(join(tmpdir(), 'rondo-bench-'))
  return {
    name: 'SQLite',
    create: () => ({ kind: 'sqlite', file: join(folder, `${randomBytes(6).toString('hex')}.db`) }),
    close: () => rm(folder, { recursive: true }),
  }
}

/** Undefined if PostgreSQL is not installed. */
export async function openPostgresServer(): Promise<Databases | undefined> {
  if (!hasPostgres) {
    console.warn('\n*** NOT MEASURED: PostgreSQL is not installed. Run scripts/ensure-postgres.sh ***\n')
    return undefined
  }
  const { connectionString, stop } = await startPostgres()
  return {
    name: 'PostgreSQL',
    create: () => ({ kind: 'postgres', connectionString, schema: `bench_${randomBytes(6).toString('hex')}` }),
    close: stop,
  }
}

/** A Node that can run all of them; this one if there is no other. */
export function findNewNode(): string {
  return restateNode ?? process.execPath
}

/** Undefined if Restate, or a Node for its SDK, is not installed. */
export async function openRestateServer(): Promise<Databases<RestateAddress> | undefined> {
  if (!hasRestate || restateNode === undefined) {
    console.warn('\n*** NOT MEASURED: Restate is not installed. Run scripts/ensure-restate.sh ***\n')
    return undefined
  }
  const { ingress, admin, identityKey, stop } = await startRestate()
  const namespace = () => `Bench${randomBytes(6).toString('hex')}`
  return {
    name: 'Restate',
    create: () => ({ kind: 'restate', ingress, admin, identityKey, namespace: namespace() }),
    close: stop,
  }
}
