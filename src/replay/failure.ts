/**
 * A failed step, there and back. What the handler catches is built from the record also on the run in which the step
 * really failed: live and replayed runs see the same error.
 */

import { ToolError } from '../errors.ts'
import type { Failure } from '../journal/journal.ts'

/** Whatever was thrown, the record of it is text: what could not be read back would take the whole flow with it. */
export function toFailure(thrown: unknown): Failure {
  if (!(thrown instanceof Error)) return { name: 'Error', message: toText(() => thrown) }
  const code = read(() => ('code' in thrown ? thrown.code : undefined))
  return {
    name: toText(() => thrown.name),
    message: toText(() => thrown.message),
    ...(typeof code === 'string' || Number.isFinite(code) ? { code: code as string | number } : {}),
    ...(thrown instanceof ToolError ? { open: true } : {}),
  }
}

function read(get: () => unknown): unknown {
  try {
    return get()
  } catch {
    return undefined
  }
}

function toText(get: () => unknown): string {
  const value = read(get)
  const text = typeof value === 'string' ? value : read(() => String(value))
  return typeof text === 'string' ? text : 'unknown'
}

/** What was thrown in this process, by the error that the handler got in its place. */
const origins = new WeakMap<Error, Error>()

/** `thrown`: what the step threw, if it was in this run. The handler does not see it; the log does. */
export function fromFailure(failure: Failure, thrown?: unknown): Error {
  const error = failure.open ? new ToolError(failure.message) : new Error(failure.message)
  error.name = failure.name
  if (thrown instanceof Error) origins.set(error, thrown)
  return failure.code === undefined ? error : Object.assign(error, { code: failure.code })
}

/** The error as its author threw it, where that was in this run of the handler. */
export function originOf(error: unknown): unknown {
  return error instanceof Error ? (origins.get(error) ?? error) : error
}
