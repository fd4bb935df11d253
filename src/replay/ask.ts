/**
 * The way of a question through a run: resolve with the recorded answer, record and deliver a new one, or send the question
 * to the client.
 *
 * R2 A recorded answer wins over anything that comes later. R3 An answer counts only for the question that was shown.
 */

import { RondoError } from '../errors.ts'
import type { AskEntry, Found } from '../journal/journal.ts'
import type { Duration } from '../lib/duration.ts'
import { missingCapability } from '../protocol/common/request.ts'
import {
  type Ask,
  describeUnasked,
  questionText,
  type Reading,
  type Unasked,
  unaskable,
  withElicitationId,
  withProblem,
} from './question.ts'
import { append, noteNews, noteReplayed, type RunState, takeName } from './run-state.ts'
import { checkDuration, closeQuestionAt, fixDeadline, isOver } from './wait.ts'
import { copyJson } from './work.ts'

type FoundAnswer = Found & { readonly entry: AskEntry }

/** What a question resolves with if its time is up. */
export const EXPIRED = { action: 'expired' } as const

/** A question in a run, and what happens when its time is up, if it has a limit. */
interface Asking extends Ask {
  readonly within?: number
  expire?(at: number): void
  /** Reads, records and delivers an answer. */
  take(answer: unknown, at: number): void
}

/**
 * Resolves with what the question's `read` returns for the answer, or with `EXPIRED`; never settles if the client has to be
 * asked.
 */
export function ask(run: RunState, key: string, plain: Ask, limit?: Duration): Promise<unknown> {
  const within = limit === undefined ? undefined : checkDuration(`The time limit of "${key}" (within)`, limit)
  return new Promise((resolve) => {
    const digest = run.platform.digest(questionText(plain))
    const question: Asking = {
      ...(within === undefined ? plain : limited(run, key, plain, within, resolve)),
      take: (answer, at) => take(run, key, question, digest, answer, at, resolve),
    }
    if (!takeName(run, key, question.kind, digest)) return
    const found = run.record.find(key) as FoundAnswer | undefined
    if (found?.entry.question === digest) return deliverRecorded(run, key, question, found, resolve)
    if (found) run.record.invalidate(key)
    if (isTooLate(run, key, question)) return question.expire?.(run.platform.now())
    const { asked, answers, anchored, unasked } = run.incoming
    const arrived = run.answered.get(key)
    const shown = arrived?.digest ?? (Object.hasOwn(asked, key) ? asked[key] : undefined)
    const reworded = found !== undefined || (shown !== undefined && shown !== digest)
    if (reworded) return askReworded(run, key, question, digest)
    if (arrived) return question.take(arrived.answer, run.platform.now())
    const answer = answers && Object.hasOwn(answers, key) ? answers[key] : undefined
    const counts = unasked || !anchored ? question.unasked : shown === digest
    if (answer === undefined || !counts) return openQuestion(run, key, question, digest)
    question.take(answer, run.roundAt)
  })
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
    if (!reading.ok) return askAfterMisfit(run, key, question, digest, reading)
    const recorded = reading.answer ?? answer
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

/** The name under which a run waits for the answer to a question. */
function arrivalName(key: string): string {
  return `answer ${key}`
}

/** An answer to a published question has arrived. Returns false if the run is over. */
export function answerArrived(
  run: RunState,
  key: string,
  { answer, digest }: { readonly answer: unknown; readonly digest: string },
): boolean {
  if (run.turn.ended()) return false
  // Only the owner of a task can answer, and names the task to do so.
  run.turn.anchor()
  run.answered.set(key, { answer, digest })
  run.arrivals.get(arrivalName(key))?.()
  return true
}

/** An answer that came in time counts, however long it had to wait for this run. */
function isTooLate(
  { incoming, record, platform, frozen }: RunState,
  key: string,
  { within }: Asking,
): boolean {
  const due = within === undefined ? undefined : record.deadline(key)
  if (due === undefined || frozen) return false
  const isAnswered = incoming.answers !== undefined && Object.hasOwn(incoming.answers, key)
  return ((isAnswered ? incoming.arrivedAt : undefined) ?? platform.now()) >= due
}

function limited(
  run: RunState,
  key: string,
  question: Ask,
  within: number,
  resolve: (value: unknown) => void,
): Omit<Asking, 'take'> {
  const expire = (at: number): void => {
    run.turn.close(key)
    run.arrivals.delete(arrivalName(key))
    const entry: AskEntry = {
      kind: question.kind,
      key,
      at,
      question: run.platform.digest(questionText(question)),
      answer: null,
      expired: true,
    }
    append(run, entry, (index) =>
      run.turn.deliver(index, at, () => {
        noteNews(run)
        noteReceived(run, key, EXPIRED)
        resolve(EXPIRED)
      }),
    )
  }
  return { ...question, within, expire }
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
  whenRead(run, question.read(copyJson(entry.answer)), index, (reading) => {
    if (!reading.ok) {
      // The question has the same text, but its validation has become stricter.
      run.record.invalidate(key)
      return askAfterMisfit(run, key, question, entry.question, reading)
    }
    run.tally.replayed += 1
    run.turn.deliver(index, entry.at, () => {
      noteReplayed(run)
      noteReceived(run, key, entry.answer)
      resolve(reading.value)
    })
  })
}

export function noteReceived({ received }: RunState, key: string, answer: unknown): void {
  received.set(`answer:${key}`, { answer })
}

/** Continues with the reading, synchronously if possible; otherwise the turn holds at `index` until it is there. */
export function whenRead(
  run: RunState,
  reading: Reading | Promise<Reading>,
  index: number,
  then: (reading: Reading) => void,
  before?: Promise<void>,
): Promise<void> | undefined {
  if (before === undefined && !(reading instanceof Promise)) {
    then(reading)
    return undefined
  }
  const settled = run.turn.busy()
  const release = run.turn.hold(index)
  const unreadable = (): Reading => ({ ok: false, problem: 'The answer could not be checked.' })
  return Promise.all([Promise.resolve(reading).catch(unreadable), before])
    .then(([result]) => {
      if (!run.turn.ended()) then(result)
    })
    .catch((cause) => run.turn.refuse(new RondoError('SERVER_INTERNAL', undefined, { cause })))
    .finally(() => {
      release()
      settled()
    })
}

/**
 * Delivers the answers of one request in the order in which the handler asks for them, no matter how long each validation
 * takes: if the request is sent again, the order is the same.
 */
function whenReadInOrder(
  run: RunState,
  reading: Reading | Promise<Reading>,
  then: (reading: Reading) => void,
): void {
  run.reading = whenRead(run, reading, Number.POSITIVE_INFINITY, then, run.reading)
}

function askReworded(run: RunState, key: string, question: Asking, digest: string): void {
  if (run.record.noteChange(key) <= run.limits.maxReasks) return openQuestion(run, key, question, digest)
  const detail =
    `The question "${key}" changes on every replay, so no answer ever matches it. ` +
    'Keep clocks, rates and random values out of its message and schema, or record them with ctx.step.'
  run.turn.refuse(new RondoError('REPLAY_QUESTION_CHANGES', detail))
}

const EMPTY = 'The form came back empty.'

function askAfterMisfit(
  run: RunState,
  key: string,
  question: Asking,
  digest: string,
  { problem, empty = false }: { problem: string; empty?: boolean },
): void {
  const before = run.record.reask(key).problem
  const now = empty ? `${EMPTY} ${problem}` : problem
  if (empty && before?.startsWith(EMPTY)) {
    const detail = `This client accepted "${key}" twice without filling in the form: it seems unable to show it.`
    return run.turn.refuse(
      new RondoError('INPUT_REJECTED', `${detail} ${describeUnasked(toUnasked(run, question))}`),
    )
  }
  if (run.record.noteMisfit(key, now) <= run.limits.maxReasks) return openQuestion(run, key, question, digest)
  const detail = `The answer to "${key}" was invalid ${run.limits.maxReasks + 1} times. ${now}`
  run.turn.refuse(new RondoError('INPUT_REJECTED', detail))
}

function openQuestion(run: RunState, key: string, question: Asking, digest: string): void {
  const missing = missingCapability(run.incoming.capabilities, question.request)
  if (missing) return run.turn.refuse(unaskable(missing, toUnasked(run, question)))
  const problem = run.record.reask(key).problem
  const request = problem ? withProblem(question.request, problem) : question.request
  const { kind, within, expire } = question
  const due = within === undefined ? undefined : fixDeadline(run, key, (now) => now + within).due
  if (due !== undefined && isOver(run, due)) return expire?.(run.platform.now())
  run.answered.delete(key)
  run.arrivals.set(arrivalName(key), () => {
    const arrived = run.answered.get(key)
    if (arrived?.digest !== digest) return
    run.arrivals.delete(arrivalName(key))
    run.waits.delete(key)
    run.turn.close(key)
    question.take(arrived.answer, run.platform.now())
  })
  run.turn.open(key, { kind, request: withElicitationId(run, key, request), digest, due })
  if (due !== undefined && expire) closeQuestionAt(run, key, due, expire)
}

function toUnasked(run: RunState, { request, instead }: Ask): Unasked {
  const effects = [...run.names].filter(([, kind]) => kind === 'effect')
  const isDone = run.record.unreachedEffect() !== undefined || effects.some(([key]) => run.record.find(key))
  return { request, instead, acted: isDone ? 'yes' : effects.length > 0 ? 'perhaps' : 'no' }
}
