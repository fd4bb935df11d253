/**
 * A standing question: it is open while the handler works on, and the handler looks at it when it likes.
 *
 * offer 1: A response is recorded when it arrives, whether or not anybody waits for it.
 * offer 2: `peek` sees a response if it was recorded before the last result that the handler has received. That follows
 * from the journal alone, so a replay sees the same, and a peek costs no entry.
 *
 * Only a task can show a question while its handler runs on. In rounds an offer is asked when it is awaited, and `peek` sees
 * nothing.
 */

import { misuse } from '../errors.ts'
import type { AskEntry, Found } from '../journal/journal.ts'
import { copyParsed } from '../lib/json.ts'
import { missingCapability } from '../protocol/common/request.ts'
import type { Offer, Outcome, Question } from '../tool/context.ts'
import { ask } from './ask.ts'
import {
  type Ask,
  formQuestion,
  questionText,
  type Reading,
  whenRead,
  withDeclared,
  withProblem,
} from './question.ts'
import {
  append,
  arrivalName,
  arrivingOf,
  noteNews,
  noteReceived,
  operate,
  publishQuestions,
  type RunState,
  takeName,
  withdrawOffer,
} from './run-state.ts'
import { copyJson } from './work.ts'

const WITHDRAWN: Outcome<never> = { action: 'cancel' }

/** Only a task, which has hooks too, can show the question while it goes on. */
export function openOffer(run: RunState, key: string, question: Question): Offer<unknown> {
  if (question.within !== undefined)
    throw misuse(`The offer "${key}" cannot have a time limit (within): withdraw it when its time is up.`)
  const form = formQuestion(question, run.limits)
  return run.hooks ? standingOffer(run, key, form) : askedOffer(run, key, form)
}

/** In rounds: a question that is asked when it is awaited. */
function askedOffer(run: RunState, key: string, form: Ask): Offer<unknown> {
  let asked: Promise<Outcome<unknown>> | undefined
  let withdrawn = false
  const wait = (): Promise<Outcome<unknown>> => {
    if (withdrawn && !asked) return Promise.resolve(WITHDRAWN)
    asked ??= operate(run, `offer "${key}"`, async () => (await ask(run, key, form)) as Outcome<unknown>)
    return asked
  }
  return {
    // biome-ignore lint/suspicious/noThenProperty: an offer can be awaited.
    then: (onFulfilled, onRejected) => wait().then(onFulfilled, onRejected),
    peek: () => undefined,
    withdraw() {
      withdrawn = true
    },
  }
}

type FoundAnswer = Found & { readonly entry: AskEntry }

function standingOffer(run: RunState, key: string, form: Ask): Offer<unknown> {
  const digest = run.platform.digest(questionText(form))
  const arrival = arrivalName(key)
  const { answers, wakers } = arrivingOf(run)
  const waiting = new Set<(outcome?: Outcome<never>) => void>()
  let outcome: Outcome<unknown> | undefined
  let withdrawnAt = Number.POSITIVE_INFINITY
  const isWithdrawn = (): boolean => withdrawnAt !== Number.POSITIVE_INFINITY
  const recorded = (): FoundAnswer | undefined => outcome && (run.record.find(key) as FoundAnswer | undefined)

  const show = (): void => {
    if (isWithdrawn() || missingCapability(run.incoming.capabilities, form.request)) return
    const problem = run.record.reask(key).problem
    const asked = withDeclared(run, form, form.request)
    const request = problem ? withProblem(asked, problem) : asked
    answers.delete(key)
    wakers.set(arrival, () => {
      const arrived = answers.get(key)
      if (arrived?.digest !== digest || outcome) return
      wakers.delete(arrival)
      take(arrived.answer)
    })
    publishQuestions(run, new Map([[key, { kind: form.kind, request, digest, standing: true }]]))
  }
  const settle = (known: Outcome<unknown>): void => {
    outcome = known
    for (const wake of waiting) wake()
  }
  const take = (answer: unknown): void => {
    whenRead(run, form.read(answer), Number.POSITIVE_INFINITY, (reading) => {
      if (!reading.ok) return misfit(reading)
      const at = run.platform.now()
      const kept = copyParsed(reading.answer ?? answer)
      append(run, { kind: form.kind, key, at, question: digest, answer: kept } as AskEntry, () => {
        settle(reading.value as Outcome<unknown>)
      })
    })
  }
  /** An offer that is never answered properly stays unanswered. */
  const misfit = ({ problem }: Extract<Reading, { ok: false }>): void => {
    if (run.record.noteMisfit(key, problem) <= run.limits.maxReasks) show()
  }
  const begin = (): void => {
    const kept = run.record.takeEarly(key)
    const found = run.record.find(key) as FoundAnswer | undefined
    if (found?.entry.question === digest) {
      run.tally.replayed += 1
      whenRead(run, form.read(copyParsed(found.entry.answer)), found.index, (reading) => {
        if (reading.ok) return settle(reading.value as Outcome<unknown>)
        // The question has the same text, but its validation has become stricter.
        run.record.invalidate(key)
        misfit(reading)
      })
      return
    }
    run.record.invalidate(key)
    const arrived = answers.get(key)
    if (arrived?.digest === digest) return take(arrived.answer)
    if (kept?.question === digest) take(kept.answer)
    else show()
  }
  const wait = (): Promise<Outcome<unknown>> =>
    operate(
      run,
      `offer "${key}"`,
      () =>
        new Promise((resolve) => {
          const wake = (ended?: Outcome<never>): void => {
            const found = recorded()
            if (ended || !found) return resolve(ended ?? WITHDRAWN)
            waiting.delete(wake)
            run.turn.heard(key)
            run.turn.deliver(found.index, found.entry.at, () => {
              noteNews(run)
              noteReceived(run, key, found.entry.answer)
              resolve(outcome as Outcome<unknown>)
            })
          }
          if (recorded() || isWithdrawn()) return wake()
          waiting.add(wake)
          run.turn.listen(key)
        }),
    )

  if (takeName(run, key, form.kind, digest, form.schema)) begin()
  return {
    // biome-ignore lint/suspicious/noThenProperty: an offer can be awaited.
    then: (onFulfilled, onRejected) => wait().then(onFulfilled, onRejected),
    peek() {
      const found = recorded()
      if (!found || found.index > Math.min(run.turn.position(), withdrawnAt)) return undefined
      noteReceived(run, key, found.entry.answer)
      return copyJson(outcome)
    },
    withdraw() {
      if (isWithdrawn()) return
      withdrawnAt = run.turn.position()
      wakers.delete(arrival)
      run.turn.heard(key)
      withdrawOffer(run, key)
      for (const wake of waiting) wake(WITHDRAWN)
      waiting.clear()
    },
  }
}
