/**
 * A question's way through a run: recorded answer, fresh answer, or out to the client.
 *
 * R2 A recorded answer wins over anything that comes later. R3 An answer counts only for the question that was shown.
 */

import { RondoError } from '../errors.ts'
import { cleanText } from '../form/clean-text.ts'
import { describeFields } from '../form/field.ts'
import { readForm } from '../form/form.ts'
import type { AskEntry } from '../journal/journal.ts'
import { canonicalJson } from '../lib/canonical-json.ts'
import { missingCapability, nameCapabilities } from '../protocol/common/request.ts'
import type { ClientCapabilities, InputRequest, JsonSchema } from '../protocol/wire.ts'
import { withElicitationId } from './draw.ts'
import type { Question, Reading } from './question.ts'
import type { Found } from './record.ts'
import { append, noteNews, noteReplayed, type RunState, takeName } from './run-state.ts'
import { copyJson } from './work.ts'

/** Gives what the question's `read` makes of the answer; never settles if the client has to be asked. */
export function ask(run: RunState, key: string, question: Question): Promise<unknown> {
  return new Promise((resolve) => {
    const digest = run.platform.digest(questionText(question))
    if (!takeName(run, key, question.kind, digest)) return
    const found = run.record.find(key) as (Found & { readonly entry: AskEntry }) | undefined
    if (found?.entry.question === digest) return handRecorded(run, key, question, found, resolve)
    if (found) run.record.strike(key)
    const shown = shownDigest(run, key)
    const answer = freshAnswer(run, key)
    const reworded = found !== undefined || (shown !== undefined && shown !== digest)
    if (reworded) return askAgain(run, key, question, digest)
    const unasked = run.incoming.unasked || !run.incoming.anchored
    const counts = unasked ? question.unasked : shown === digest
    if (answer === undefined || !counts) return openQuestion(run, key, question, digest)
    whenReadInOrder(run, question.read(answer), (reading) => {
      if (!reading.ok) return misfit(run, key, question, digest, reading)
      const recorded = reading.answer ?? answer
      const entry = { kind: question.kind, key, at: run.roundAt, question: digest, answer: recorded }
      append(run, entry, (index) =>
        run.turn.deliver(index, run.roundAt, () => {
          noteNews(run)
          give(run, key, recorded)
          resolve(reading.value)
        }),
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

function give({ given }: RunState, key: string, answer: unknown): void {
  given.set(`answer:${key}`, { answer })
}

function unreadable(): Reading {
  return { ok: false, problem: 'The answer could not be checked.' }
}

/** Goes on with what was read, at once if it can; otherwise `index` waits for it. */
function whenRead(
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
 * Answers that came with one request reach the handler in the order in which it asks for them, however long each of
 * them takes to be checked: where the request is sent again, the order is the same.
 */
function whenReadInOrder(
  run: RunState,
  reading: Reading | Promise<Reading>,
  then: (reading: Reading) => void,
): void {
  run.reading = whenRead(run, reading, Number.POSITIVE_INFINITY, then, run.reading)
}

function handRecorded(
  run: RunState,
  key: string,
  question: Question,
  { entry, index }: Found & { readonly entry: AskEntry },
  resolve: (value: unknown) => void,
): void {
  whenRead(run, question.read(copyJson(entry.answer)), index, (reading) => {
    if (!reading.ok) {
      // The wire form of the question is the same and yet its own check has become stricter.
      run.record.strike(key)
      return misfit(run, key, question, entry.question, reading)
    }
    run.tally.replayed += 1
    run.turn.deliver(index, entry.at, () => {
      noteReplayed(run)
      give(run, key, entry.answer)
      resolve(reading.value)
    })
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
  const effects = [...run.names].filter(([, kind]) => kind === 'effect')
  const isDone = run.record.unreachedEffect() !== undefined || effects.some(([key]) => run.record.find(key))
  return { request, instead, acted: isDone ? 'yes' : effects.length > 0 ? 'perhaps' : 'no' }
}

function openQuestion(run: RunState, key: string, question: Question, digest: string): void {
  const missing = missingCapability(run.incoming.capabilities, question.request)
  if (missing) return run.turn.refuse(unaskable(missing, unasked(run, question)))
  const problem = run.record.reask(key).problem
  const request = problem ? withProblem(question.request, problem) : question.request
  run.turn.open(key, { kind: question.kind, request: withElicitationId(run, key, request), digest })
}

/** The digest is of the question as the author wrote it; what was wrong with the last answer is said on top of it. */
function withProblem(request: InputRequest, problem: string): InputRequest {
  if (request.method !== 'elicitation/create') return request
  return { ...request, params: { ...request.params, message: `${problem}\n\n${request.params.message}` } }
}

/*
 * The one text of a question, whose digest is sealed with its key (R3).
 */

/** A form is written down once for all rounds that show it; its message may differ each time. */
const forms = new WeakMap<JsonSchema, string>()

export function questionText({ kind, request }: Question): string {
  if (request.method !== 'elicitation/create' || request.params.mode !== 'form') {
    return canonicalJson([kind, request])
  }
  const { message, requestedSchema } = request.params
  return `["${kind}",{"method":"${request.method}","params":{"message":${JSON.stringify(message)},"mode":"form","requestedSchema":${formText(requestedSchema)}}}]`
}

function formText(schema: JsonSchema): string {
  let text = forms.get(schema)
  if (text === undefined) {
    text = canonicalJson(schema)
    forms.set(schema, text)
  }
  return text
}

/*
 * What is said of a question that its client does not show: a model reads it and passes it on to its user. Plain sentences,
 * without control characters, of bounded length: what is asked, what may be answered, what was done, and what to do.
 */

export interface Unasked {
  readonly request: InputRequest
  /** What makes the question unnecessary, in one sentence. */
  readonly instead?: string
  /** Whether an effect of this flow has run; undefined where nobody keeps a record of that. */
  readonly acted?: keyof typeof DONE
}

const DONE = {
  no: 'Nothing was done.',
  perhaps: 'Some of the work of this call may be done already.',
  yes: 'Some of the work of this call is done already.',
}

const MAX_MESSAGE = 500
const MAX_FIELDS = 800

/** The client lacks a capability that the question needs. */
export function unaskable(missing: ClientCapabilities, unasked: Unasked): RondoError {
  const why = `This client cannot be asked: it lacks the capability ${nameCapabilities(missing)}.`
  const detail = `${why} ${describeUnasked(unasked)}`
  return new RondoError('PEER_CAPABILITY', detail, { data: { requiredCapabilities: missing } })
}

/** The question, what was done, and what to do. */
function describeUnasked({ request, instead, acted }: Unasked): string {
  const advice = instead ?? 'No argument can stand in for the answer: use a client that can be asked.'
  return [describeRequest(request), ...(acted === undefined ? [] : [DONE[acted]]), advice].join(' ')
}

function describeRequest(request: InputRequest): string {
  if (request.method === 'sampling/createMessage') return 'The tool needs an answer of the client’s model.'
  if (request.method === 'roots/list') return 'The tool needs to know the roots of the client.'
  const { params } = request
  const message = cleanText(params.message, MAX_MESSAGE)
  // The link is for the user alone: whoever opens it acts as the user.
  if (params.mode === 'url') return `The tool wants the user to open a page: "${message}"`
  const fields = cleanText(describeFields(readForm(params.requestedSchema).fields), MAX_FIELDS)
  return `The tool asks the user: "${message}" The answer has ${fields}.`
}
