/** The options of a command: read by `read-line.ts`, printed by `help.ts`. */

interface OptionRow {
  readonly type: 'boolean' | 'string'
  readonly multiple?: boolean
  readonly short?: string
  /** What stands for the value in the help. */
  readonly value?: string
  readonly help: string
}

export type OptionTable = Readonly<Record<string, OptionRow>>
