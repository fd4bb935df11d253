/** Ends a command with a sentence for the person who typed it, and the exit that fits. */

import { type ErrorCode, RondoError } from '../errors.ts'
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
