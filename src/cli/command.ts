/** What one command is: its words, its options, what it does. The table of all commands is in `main.ts`. */

import type { Exit } from './exit-code.ts'
import type { Io } from './io.ts'
import type { Options } from './read-line.ts'

export interface OptionRow {
  readonly type: 'boolean' | 'string'
  readonly multiple?: boolean
  readonly short?: string
  /** What stands for the value in the help. */
  readonly value?: string
  readonly help: string
}

export type OptionTable = Readonly<Record<string, OptionRow>>

export interface Invocation {
  readonly io: Io
  /** The words after the command, without options. */
  readonly words: readonly string[]
  /** What came after `--`: a command that starts a server. */
  readonly rest: readonly string[] | undefined
  readonly options: Options
}

export interface Command {
  readonly name: string
  /** Words after the name, as the help shows them. */
  readonly usage: string
  readonly summary: string
  /** Further lines of the command's own help. */
  readonly details?: readonly string[]
  readonly options: OptionTable
  run(invocation: Invocation): Promise<Exit>
}
