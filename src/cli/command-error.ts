/** Ends a command with a sentence for the person who typed it, and the exit that fits. */

import { type ErrorCode, RondoError } from '../errors.ts'
import { isRecord } from '../lib/is-record.ts'
import type { Exit } from './exit-code.ts'

export class CommandError extends Error {
  readonly exit: Exit

  constructor(exit: Exit, message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'CommandError'
    this.exit = exit
  }
}

export function usageError(message: string): CommandError {
  return new CommandError('usage', message)
}

/** Somebody named a tool that is not among these. */
export function noTool(name: string, tools: readonly { readonly name: string }[]): CommandError {
  return usageError(
    `There is no tool "${name}" here${suggest(
      name,
      tools.map((tool) => tool.name),
    )}`,
  )
}

const EXIT_BY_CODE: Partial<Record<ErrorCode, Exit>> = {
  PEER_GONE: 'unreachable',
  LIMIT_CLIENT_TIMEOUT: 'unreachable',
  LIMIT_CLIENT_DEADLINE: 'unreachable',
  STORE_UNAVAILABLE: 'unreachable',
  STORE_SCHEMA: 'stored',
  PEER_LINK: 'refused',
  INPUT_REFUSED: 'refused',
  INPUT_NO_HANDLER: 'refused',
  INPUT_PENDING: 'stored',
  INPUT_ANSWER: 'answers',
  INPUT_MISSING: 'answers',
}

/** The exit that fits whatever was thrown. */
export function exitOf(error: unknown): Exit {
  if (error instanceof CommandError) return error.exit
  if (!(error instanceof RondoError)) return 'fault'
  const exit = EXIT_BY_CODE[error.code]
  if (exit !== undefined) return exit
  return error.code.startsWith('LIMIT_CLIENT_') ? 'refused' : 'server'
}

/** The message; where a server wants to know who is there, also how to tell it. */
export function sayError(error: Error): string {
  if (!(error instanceof RondoError) || error.code !== 'PEER_HTTP' || !isRecord(error.data))
    return error.message
  const { status } = error.data
  return status === 401 || status === 403 ? `${error.message}. Give credentials with --header` : error.message
}

const SHOWN = 12

/** What was meant, if a name is near; else what there is. */
export function suggest(name: string, names: readonly string[]): string {
  const near = names
    .map((one) => ({ one, distance: distanceOf(name.toLowerCase(), one.toLowerCase()) }))
    .filter(({ distance }) => distance <= Math.max(1, Math.floor(name.length / 3)))
    .sort((a, b) => a.distance - b.distance)
  if (near[0] !== undefined) return `. Did you mean "${near[0].one}"?`
  if (names.length === 0) return '; there are none'
  const more = names.length > SHOWN ? ` and ${names.length - SHOWN} more` : ''
  return `; there are ${names.slice(0, SHOWN).join(', ')}${more}`
}

/** How many letters have to be added, left out, changed or swapped with the next. Names are compared up to 64 letters. */
function distanceOf(from: string, to: string): number {
  const [a, b] = [from.slice(0, 64), to.slice(0, 64)]
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)]
  const at = (i: number, j: number): number => rows[i]?.[j] ?? 0
  for (let i = 1; i <= a.length; i++) {
    rows[i] = [i]
    for (let j = 1; j <= b.length; j++) {
      const change = at(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1)
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      const swap = isSwap ? at(i - 2, j - 2) + 1 : change
      rows[i]?.push(Math.min(change, swap, at(i - 1, j) + 1, at(i, j - 1) + 1))
    }
  }
  return at(a.length, b.length)
}
