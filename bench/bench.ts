/** What a bench is: one file in this folder that measures something and gives tables. */

export interface Settings {
  /** Fewer requests and rounds: a look, not a figure. */
  readonly quick: boolean
  /** Says what is going on. */
  progress(text: string): void
}

export interface Table {
  readonly title: string
  readonly columns: readonly string[]
  readonly rows: readonly (readonly string[])[]
}

export interface Report {
  readonly tables: readonly Table[]
  /** The same with every figure, for `--json`. */
  readonly data: unknown
}

export type RunBench = (settings: Settings) => Promise<Report>
