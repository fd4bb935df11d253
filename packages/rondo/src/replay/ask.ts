/**
 * The way of a question through a run: resolve with the recorded answer, record and deliver a new one, or send the question
 * to the client.
 *
 * R2 A recorded answer wins over anything that comes later. R3 An answer counts only for the question that was shown,
 * and is kept until a run reaches that question, in whatever order a release asks.
 */

import type { AskEntry, Found } from '../journal/journal.ts'
import type { Duration } from '../lib/clock.ts'
import { copyParsed } from '../lib/json.ts'
import { missingCapability } from '../protocol/common/request.ts'
import {
  type Ask,
  mayRetry,
  mayReword,
  questionText,
  refuseUnaskable,
  whenRead,
  whenReadInOrder,
  withDeclared,
  withElicitationId,
  withProblem,
} from './question.ts'
import {
  append,
  arrivalName,
  arrivingOf,
  noteNews,
  noteReceived,
  noteReplayed,
  type RunState,
  takeName,
} from './run-state.ts'
import {
  checkDuration,
  closeQuestionAt,
  EXPIRED,
  expireQuestion,
  fixDeadline,
  isOver,
  isTooLate,
  outlivesTask,
} from './wait.ts'

type FoundAnswer = Found & { readonly entry: AskEntry }

/** A question in a run, and what happens when its time is up, if it has a limit. */
interface Asking extends Ask {
  readonly within?: number
  expire(at: number): void
  /** Reads, records and delivers an answer. */
  take(answer: unknown, at: number): void
}

/**
 * Resolves with what the question's `read` returns for the answer, or with `EXPIRED`; never settles if the client has to be
 * asked.
 */
export function ask(run: RunState, key: string, given: Ask, limit?: Duration): Promise<unknown> {
  const plain = run.trace?.reword ? { ...given, request: run.trace.reword(key, given.request) } : given
  const within = limit === undefined ? undefined : checkDuration(`The time limit of "${key}" (within)`, limit)
  return new Promise((resolve) => {
    const digest = run.platform.digest(questionText(plain))
    // Member by member, as in every object that a request creates: spread, it would cost as much as the digest.
    const question: Asking = {
      kind: plain.kind,
      request: plain.request,
      unasked: plain.unasked,
      instead: plain.instead,
      app: plain.app,
      schema: plain.schema,
      read: plain.read,
      within,
      expire: (at) => expire(run, key, plain.kind, digest, at, resolve),
      take: (answer, at) => take(run, key, question, digest, answer, at, resolve),
    }
    if (!takeName(run, key, question.kind, digest, question.schema)) return
    const kept = run.record.takeEarly(key)
    const found = run.record.find(key) as FoundAnswer | undefined
    if (found?.entry.question === digest) return deliverRecorded(run, key, question, found, resolve)
    run.record.invalidate(key)
    if (within !== undefined && !kept && isTooLate(run, key)) return question.expire(run.platform.now())
    const { asked, answers, anchored, unasked } = run.incoming
    const arrived = run.arriving?.answers.get(key)
    const shown = arrived?.digest ?? (Object.hasOwn(asked, key) ? asked[key] : kept?.question)
    const reworded = found !== undefined || (shown !== undefined && shown !== digest)
    if (reworded) return mayReword(run, key) ? openQuestion(run, key, question, digest) : undefined
    if (arrived) return question.take(arrived.answer, run.platform.now())
    if (kept?.question === digest) return question.take(kept.answer, run.roundAt)
    const counts = question.unasked && (unasked || !anchored)
    const answer = counts && answers && Object.hasOwn(answers, key) ? answers[key] : undefined
    if (answer === undefined) return openQuestion(run, key, question, digest)
    question.take(answer, run.roundAt)
  })
}

/**
 * Keeps the answers to questions that were shown, as far as they came in time, until the run reaches their questions; in the manual
 * form until the handler returns.
 */
export function keepSolicited(run: RunState): void {
  const { asked, answers, anchored, unasked, arrivedAt = run.roundAt } = run.incoming
  if (!answers || !anchored || unasked) return
  for (const [key, answer] of Object.entries(answers)) {
    const question = Object.hasOwn(asked, key) ? asked[key] : undefined
    if (question === undefined || answer === undefined) continue
    const due = run.record.deadline(key)
    if (due === undefined || arrivedAt < due) run.record.keep(key, { question, answer })
  }
}

/** Records an answer and delivers it, or asks again if it does not fit. */
function take(
  run: RunState,
  key: string,
  question: Asking,
  digest: string,
  answer: unknown,
  at: number,
  resolve: (value: unknown) => void,
): void {
  whenReadInOrder(run, question.read(answer), (reading) => {
    if (!reading.ok)
      return mayRetry(run, key, question, reading) ? openQuestion(run, key, question, digest) : undefined
    // The handler gets the value, and may change it.
    const recorded = copyParsed(reading.answer ?? answer)
    const entry = { kind: question.kind, key, at, question: digest, answer: recorded }
    append(run, entry, (index) =>
      run.turn.deliver(index, at, () => {
        noteNews(run)
        noteReceived(run, key, recorded)
        resolve(reading.value)
      }),
    )
  })
}

function expire(
  run: RunState,
  key: string,
  kind: AskEntry['kind'],
  question: string,
  at: number,
  resolve: (value: unknown) => void,
): void {
  run.arriving?.wakers.delete(arrivalName(key))
  expireQuestion(run, { kind, key, at, question, answer: null, expired: true }, resolve)
}

function deliverRecorded(
  run: RunState,
  key: string,
  question: Asking,
  { entry, index }: FoundAnswer,
  resolve: (value: unknown) => void,
): void {
  if (entry.expired) {
    run.tally.replayed += 1
    return run.turn.deliver(index, entry.at, () => {
      noteReplayed(run)
      noteReceived(run, key, EXPIRED)
      resolve(EXPIRED)
    })
  }
  whenRead(run, question.read(copyParsed(entry.answer)), index, (reading) => {
    if (!reading.ok) {
      // The question has the same text, but its validation has become stricter.
      run.record.invalidate(key)
      return mayRetry(run, key, question, reading)
        ? openQuestion(run, key, question, entry.question)
        : undefined
    }
    run.tally.replayed += 1
    run.turn.deliver(index, entry.at, () => {
      noteReplayed(run)
      noteReceived(run, key, entry.answer)
      resolve(reading.value)
    })
  })
}

function openQuestion(run: RunState, key: string, question: Asking, digest: string): void {
  const missing = missingCapability(run.incoming.capabilities, question.request)
  if (missing) return refuseUnaskable(run, question, missing)
  const problem = run.record.reask(key).problem
  const asked = withDeclared(run, question, question.request)
  const request = problem ? withProblem(asked, problem) : asked
  const { kind, within, expire } = question
  const due = within === undefined ? undefined : fixDeadline(run, key, (now) => now + within).due
  if (due !== undefined && isOver(run, due)) return expire(run.platform.now())
  if (due !== undefined && outlivesTask(run, `The question "${key}" is open (within)`, due)) return
  if (run.onArrival) {
    const { answers, wakers } = arrivingOf(run)
    answers.delete(key)
    wakers.set(arrivalName(key), () => {
      const arrived = answers.get(key)
      if (arrived?.digest !== digest) return
      wakers.delete(arrivalName(key))
      run.waits?.delete(key)
      run.turn.close(key)
      question.take(arrived.answer, run.platform.now())
    })
  }
  run.turn.open(key, { kind, request: withElicitationId(run, key, request), digest, due })
  if (due !== undefined) closeQuestionAt(run, key, due, expire)
}
