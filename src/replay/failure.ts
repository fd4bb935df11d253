/**
 * A failed step, there and back. What the handler catches is built from the record also on the run in which the step
 * really failed: live and replayed runs see the same error.
 */

import { ToolError } from '../errors.ts'
import type { Failure } from '../journal/journal.ts'

export function toFailure(thrown: unknown): Failure {
  if (!(thrown instanceof Error)) return { name: 'Error', message: String(thrown) }
  const code = 'code' in thrown ? thrown.code : undefined
  return {
    name: thrown.name,
    message: thrown.message,
    ...(typeof code === 'string' || typeof code === 'number' ? { code } : {}),
    ...(thrown instanceof ToolError ? { open: true } : {}),
  }
}

export function fromFailure(failure: Failure): Error {
  const error = failure.open ? new ToolError(failure.message) : new Error(failure.message)
  error.name = failure.name
  return failure.code === undefined ? error : Object.assign(error, { code: failure.code })
}
