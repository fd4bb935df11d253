/** The benches, and their interface: one file in this folder that measures something and returns tables. */

/** A new bench is a file in this folder and a line here. */
export const BENCHES: Readonly<Record<string, () => Promise<{ run: RunBench }>>> = {
  capacity: () => import('./capacity.ts'),
  client: () => import('./client.ts'),
  core: () => import('./core.ts'),
  engines: () => import('./engines.ts'),
  felt: () => import('./felt.ts'),
  fleet: () => import('./fleet.ts'),
  gateway: () => import('./gateway.ts'),
  identity: () => import('./identity.ts'),
  import: () => import('./import.ts'),
  large: () => import('./large.ts'),
  older: () => import('./older.ts'),
  parked: () => import('./parked.ts'),
  public: () => import('./public.ts'),
  sdk: () => import('./sdk.ts'),
  tasks: () => import('./tasks.ts'),
}

export interface Settings {
  /** Fewer requests and rounds: a quick check, not a measurement. */
  readonly quick: boolean
  /** The directory of another checkout, built, to run beside this one. */
  readonly against?: string
  /** Measure only this database. */
  readonly only?: string
  /** Measure only this part of a bench that has parts. */
  readonly part?: string
  /** public: a server at this address instead of those that the bench starts, and what else is known of it. */
  readonly url?: string
  readonly second?: string
  readonly restart?: string
  readonly header?: readonly string[]
  /** Reports progress. */
  progress(text: string): void
}

export interface Table {
  readonly title: string
  /** The place of the table in docs/reference/performance.md: between the comments `<!-- MARK -->` and `<!-- /MARK -->`. */
  readonly mark?: string
  readonly columns: readonly string[]
  readonly rows: readonly (readonly string[])[]
}

export interface Report {
  readonly tables: readonly Table[]
  /** The table with every figure, for `--json`. */
  readonly data: unknown
}

export type RunBench = (settings: Settings) => Promise<Report>
