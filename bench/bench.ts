/** The interface of a bench: one file in this folder that measures something and returns tables. */

export interface Settings {
  /** Fewer requests and rounds: a quick check, not a measurement. */
  readonly quick: boolean
  /** The directory of another checkout, built, to run beside this one. */
  readonly against?: string
  /** Measure only this database. */
  readonly only?: string
  /** Measure only this part of a bench that has parts. */
  readonly part?: string
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
