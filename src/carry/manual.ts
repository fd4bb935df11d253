/**
 * The manual form: a handler that returns `inputRequired(…)` asks its questions itself, and its own state travels in the
 * journal. The questions are checked like those of `ctx.ask` before they go out.
 */

import { RondoError } from '../errors.ts'
import { canonicalJson } from '../lib/json.ts'
import { missingCapability } from '../protocol/common/request.ts'
import type { InputResponses } from '../protocol/wire.ts'
import { unaskable, withElicitationId } from '../replay/question.ts'
import type { RunReport } from '../replay/run-state.ts'
import type { InputRequired } from '../tool/target.ts'
import type { Pause } from './carrier.ts'
import type { Beginning, Round } from './round.ts'

/** Returns the pause, or the error if the questions must not be asked. */
export function pauseManually(
  { host, call }: Round,
  report: RunReport,
  { inputRequests, requestState }: InputRequired,
): Pause | RondoError {
  const { platform, limits } = host
  const entries = Object.entries(inputRequests ?? {})
  if (entries.length > limits.maxQuestions) {
    const detail = `${entries.length} questions at once; at most ${limits.maxQuestions} are allowed (limits.maxQuestions).`
    return new RondoError('LIMIT_QUESTIONS', detail)
  }
  for (const [, request] of entries) {
    const missing = missingCapability(call.capabilities, request)
    if (missing) return unaskable(missing, { request })
  }
  const journal = { ...report.journal, manual: requestState }
  const { seed } = journal
  const asked = entries.map(
    ([key, request]) => [key, platform.digest(canonicalJson(['manual', request]))] as const,
  )
  const outgoing = entries.map(
    ([key, request]) => [key, withElicitationId({ platform, seed }, key, request)] as const,
  )
  return {
    report,
    journal,
    asked: Object.fromEntries(asked),
    inputRequests: inputRequests && Object.fromEntries(outgoing),
    facts: { outcome: 'input_required', asks: entries.map(([key]) => ({ key, kind: 'manual' })) },
  }
}

/** The responses that the manual form sees: those to open questions; in a first request, all of them. */
export function solicited(
  { anchored, asked }: Beginning,
  answers: Readonly<Record<string, unknown>> | undefined,
): InputResponses | undefined {
  if (!answers || !anchored) return answers as InputResponses | undefined
  const wanted: Record<string, unknown> = Object.create(null)
  for (const key of Object.keys(answers)) if (Object.hasOwn(asked, key)) wanted[key] = answers[key]
  return wanted as InputResponses
}
