/**
 * A question's way through a run: recorded answer, fresh answer, or out to the client.
 *
 * R2 A recorded answer wins over anything that comes later. R3 An answer counts only for the question that was shown.
 */

import { RondoError } from '../errors.ts'
import type { AskEntry } from '../journal/journal.ts'
import { missingCapability } from '../protocol/capability.ts'
import type { InputRequest } from '../protocol/wire.ts'
import { copyJson } from './json-value.ts'
import type { Question, Reading } from './question.ts'
import { questionText } from './question-text.ts'
import { append, type RunState, takeName } from './run-state.ts'
import { describeUnasked, type Unasked, unaskable } from './unaskable.ts'

/** Gives what the question's `read` makes of the answer; never settles if the client has to be asked. */
export function ask(run: RunState, key: string, question: Question): Promise<unknown> {
  return new Promise((resolve) => {
    const digest = run.platform.digest(questionText(question))
    if (!takeName(run, key, question.kind, digest)) return
    const found = run.record.find(key)?.entry as AskEntry | undefined
    if (found?.question === digest) return handRecorded(run, key, question, found, resolve)
    if (found) run.record.strike(key)
    const shown = shownDigest(run, key)
    const answer = freshAnswer(run, key)
    const reworded = found !== undefined || (shown !== undefined && shown !== digest)
    if (reworded) return askAgain(run, key, question, digest)
    const unasked = run.incoming.unasked || !run.incoming.anchored
    const counts = unasked ? question.unasked : shown === digest
    if (answer === undefined || !counts) return openQuestion(run, key, question, digest)
    whenRead(run, question.read(answer), (reading) => {
      if (!reading.ok) return misfit(run, key, question, digest, reading)
      const entry = { key, at: run.roundAt, question: digest, answer: reading.answer ?? answer }
      append(run, { kind: question.kind, ...entry }, (index) =>
        run.turn.deliver(index, run.roundAt, () => resolve(reading.value)),
      )
    })
  })
}

function shownDigest({ incoming }: RunState, key: string): string | undefined {
  return Object.hasOwn(incoming.asked, key) ? incoming.asked[key] : undefined
}

function freshAnswer({ incoming }: RunState, key: string): unknown {
  return incoming.answers && Object.hasOwn(incoming.answers, key) ? incoming.answers[key] : undefined
}

function whenRead(
  run: RunState,
  reading: Reading | Promise<Reading>,
  then: (reading: Reading) => void,
): void {
  if (!(reading instanceof Promise)) return then(reading)
  const settled = run.turn.busy()
  reading
    .catch((): Reading => ({ ok: false, problem: 'The answer could not be checked.' }))
    .then((result) => {
      if (!run.turn.ended()) then(result)
      settled()
    })
}

function handRecorded(
  run: RunState,
  key: string,
  question: Question,
  entry: AskEntry,
  resolve: (value: unknown) => void,
): void {
  whenRead(run, question.read(copyJson(entry.answer)), (reading) => {
    const index = run.record.find(key)?.index
    if (!reading.ok || index === undefined) {
      // The wire form of the question is the same and yet its own check has become stricter.
      run.record.strike(key)
      return misfit(run, key, question, entry.question, reading.ok ? { problem: '' } : reading)
    }
    run.tally.replayed += 1
    run.turn.deliver(index, entry.at, () => resolve(reading.value))
  })
}

function askAgain(run: RunState, key: string, question: Question, digest: string): void {
  if (run.record.noteChange(key) <= run.limits.maxReasks) return openQuestion(run, key, question, digest)
  const detail =
    `The question "${key}" is worded differently on every replay, so no answer ever fits it. ` +
    'Take clocks, rates and random values out of its message and schema, or remember them with ctx.step.'
  run.turn.refuse(new RondoError('REPLAY_QUESTION_CHANGES', detail))
}

/** What some hosts send for a form that they cannot draw: a yes to its message, and nothing else. */
const EMPTY = 'The form came back empty.'

function misfit(
  run: RunState,
  key: string,
  question: Question,
  digest: string,
  { problem, empty = false }: { problem: string; empty?: boolean },
): void {
  const before = run.record.reask(key).problem
  const now = empty ? `${EMPTY} ${problem}` : problem
  if (empty && before?.startsWith(EMPTY)) {
    const detail = `This client accepted "${key}" twice without filling in the form: it seems unable to show it.`
    return run.turn.refuse(
      new RondoError('INPUT_REJECTED', `${detail} ${describeUnasked(unasked(run, question))}`),
    )
  }
  if (run.record.noteMisfit(key, now) <= run.limits.maxReasks) return openQuestion(run, key, question, digest)
  const detail = `The answer to "${key}" did not fit ${run.limits.maxReasks + 1} times. ${now}`
  run.turn.refuse(new RondoError('INPUT_REJECTED', detail))
}

function unasked(run: RunState, { request, instead }: Question): Unasked {
  const acted = run.record.unreachedEffect() !== undefined || [...run.names.values()].includes('effect')
  return { request, instead, acted }
}

function openQuestion(run: RunState, key: string, question: Question, digest: string): void {
  const missing = missingCapability(run.incoming.capabilities, question.request)
  if (missing) return run.turn.refuse(unaskable(missing, unasked(run, question)))
  const problem = run.record.reask(key).problem
  const request = problem ? withProblem(question.request, problem) : question.request
  run.turn.open(key, { kind: question.kind, request, digest })
}

/** The digest is of the question as the author wrote it; what was wrong with the last answer is said on top of it. */
function withProblem(request: InputRequest, problem: string): InputRequest {
  if (request.method !== 'elicitation/create') return request
  return { ...request, params: { ...request.params, message: `${problem}\n\n${request.params.message}` } }
}
