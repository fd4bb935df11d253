/**
 * Versions of a store's tables, the same for every SQL database.
 *
 * The tables name their own version and `minCompatible`, the oldest version whose releases can still use them. A migration
 * that only adds what earlier releases ignore (an index, a column with a default) keeps `minCompatible`, so that a release can
 * be rolled back after it; any other raises it.
 */

import { RondoError } from '../errors.ts'

export interface Migration {
  readonly version: number
  readonly minCompatible: number
  readonly sql: string
}

/** The versions that are recorded in the tables; version 0 if there are none. */
export interface SchemaState {
  readonly version: number
  readonly minCompatible: number
}

export interface TableVersions {
  /** The version that this release creates. */
  readonly version: number
  /** Migrations to apply, in order; none on tables of a later release. */
  missing(state: SchemaState): readonly Migration[]
  /** Returns why this release cannot use the tables, as a sentence; undefined if it can. */
  obstacle(state: SchemaState, where: string): string | undefined
  assertUsable(state: SchemaState, where: string): void
  /** Like `assertUsable`, for a reader, which cannot upgrade the tables. */
  assertReadable(state: SchemaState, where: string): void
}

export function schemaOf(migrations: readonly Migration[]): TableVersions {
  const first = migrations[0]?.version ?? 0
  const version = migrations.at(-1)?.version ?? 0
  const obstacle = (state: SchemaState, where: string): string | undefined => {
    if (state.version > 0 && state.version < first)
      return `${where} has version ${state.version}, from before the first release of Rondo: start with a new one`
    if (state.version > version && state.minCompatible > version)
      return `${where} has version ${state.version}, which needs a release of Rondo that supports version ${state.minCompatible}; this one supports up to ${version}: upgrade Rondo`
    return undefined
  }
  const assertUsable = (state: SchemaState, where: string): void => {
    const found = obstacle(state, where)
    if (found !== undefined) throw new RondoError('STORE_SCHEMA', found)
  }
  return {
    version,
    missing: (state) => migrations.filter((migration) => migration.version > state.version),
    obstacle,
    assertUsable,
    assertReadable(state, where) {
      assertUsable(state, where)
      if (state.version >= version) return
      const detail = `${where} has version ${state.version}, and this release reads version ${version}: rondo store migrate upgrades it`
      throw new RondoError('STORE_SCHEMA', detail)
    },
  }
}
