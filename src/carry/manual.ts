/**
 * The manual form's questions: checked like any other before they go out.
 */

import { RondoError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import { canonicalJson } from '../lib/canonical-json.ts'
import { missingCapability } from '../protocol/capability.ts'
import type { ClientCapabilities, InputRequests } from '../protocol/wire.ts'
import { withElicitationId } from '../replay/draw.ts'
import { unaskable } from '../replay/unaskable.ts'
import type { InputRequired } from '../tool/input-required.ts'
import type { FlowHost } from './flow-host.ts'

/** The questions as they go out. */
export function manualRequests(
  { platform }: FlowHost,
  { seed }: Pick<Journal, 'seed'>,
  { inputRequests }: InputRequired,
): InputRequests | undefined {
  if (inputRequests === undefined) return undefined
  return Object.fromEntries(
    Object.entries(inputRequests).map(([key, request]) => [
      key,
      withElicitationId({ platform, seed }, key, request),
    ]),
  )
}

/** Digests of the questions by key, or why they must not be asked. */
export function manualDigests(
  { platform, limits }: FlowHost,
  { inputRequests = {} }: InputRequired,
  capabilities: ClientCapabilities,
): Readonly<Record<string, string>> | RondoError {
  const entries = Object.entries(inputRequests)
  if (entries.length > limits.maxQuestions) {
    const detail = `${entries.length} questions at once; ${limits.maxQuestions} are allowed (limits.maxQuestions).`
    return new RondoError('LIMIT_QUESTIONS', detail)
  }
  for (const [, request] of entries) {
    const missing = missingCapability(capabilities, request)
    if (missing) return unaskable(missing, { request })
  }
  return Object.fromEntries(
    entries.map(([key, request]) => [key, platform.digest(canonicalJson(['manual', request]))]),
  )
}
