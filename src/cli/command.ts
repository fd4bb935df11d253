/** What one command is: its words, its options, what it does. The table of all commands is in `main.ts`. */

import type { Exit } from './exit-code.ts'
import type { Io } from './io.ts'
import type { OptionTable } from './option-table.ts'
import type { Options } from './read-line.ts'

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
