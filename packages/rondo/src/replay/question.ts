/**
 * A question: its request to the client, its text, how an answer to it is read, and what is said about it to a client that
 * cannot show it. Knows nothing of journals; `ask.ts` takes a question through a run.
 */

import { misuse, RondoError } from '../errors.ts'
import { cleanText } from '../form/clean-text.ts'
import { describeFields } from '../form/field.ts'
import { readForm } from '../form/form.ts'
import type { AskEntryKind } from '../journal/journal.ts'
import { isLoopback } from '../lib/address.ts'
import { canonicalJson, isRecord } from '../lib/json.ts'
import { drawsForms, isAppUri, withApp } from '../protocol/common/apps.ts'
import { joinCapabilities, nameCapabilities } from '../protocol/common/request.ts'
import type { ClientCapabilities, InputRequest, JsonSchema, SamplingParams } from '../protocol/wire.ts'
import type { ConfirmOptions, Outcome, Question } from '../tool/context.ts'
import { compileForm, type FormResult } from '../tool/schema/form.ts'
import type { TextBounds } from '../tool/schema/judge.ts'
import type { Platform } from './input.ts'
import { type RunState, toHex, type Unasked } from './run-state.ts'

export type Reading =
  /** `answer` is what is recorded if it differs from the answer as received: the same answer, normalized. */
  | { readonly ok: true; readonly value: unknown; readonly answer?: unknown }
  /** `empty`: accepted without any content. */
  | { readonly ok: false; readonly problem: string; readonly empty?: boolean }

export interface Ask {
  readonly kind: AskEntryKind
  readonly request: InputRequest
  /** Accepts an answer from a client that was never shown the question: such an answer is no more than an argument. */
  readonly unasked: boolean
  /** The arguments that make the question unnecessary. */
  readonly instead?: Question['orArgument']
  /** The app that draws the form, for clients that declare it. */
  readonly app?: string
  /** The schema of a form, as the author passed it. */
  readonly schema?: object
  read(answer: unknown): Promise<Reading>
}

export function formQuestion(
  { message, schema, allowSecretLike, orArgument, ui }: Question,
  bounds?: TextBounds,
): Ask {
  const form = compileForm(schema, { allowSecretLike })
  assertMessage(message)
  if (ui !== undefined && !isAppUri(ui))
    throw misuse(
      `The ui of a question must be the URI of a resource that begins with ui:// and names a host, such as 'ui://tables/seats'; got ${describeUi(ui)}.`,
    )
  return {
    kind: 'form',
    unasked: true,
    app: ui,
    instead: orArgument,
    schema,
    request: { method: 'elicitation/create', params: { mode: 'form', message, requestedSchema: form.json } },
    read: (answer) =>
      readElicit(answer, async (content) => readContent(content, await form.validate(content, bounds))),
  }
}

function describeUi(ui: unknown): string {
  return typeof ui === 'string' ? JSON.stringify(ui.slice(0, 100)) : typeof ui
}

export function confirmQuestion(message: string, { label = 'Yes, go ahead' }: ConfirmOptions = {}): Ask {
  assertMessage(message)
  return {
    kind: 'confirm',
    unasked: false,
    request: {
      method: 'elicitation/create',
      params: {
        mode: 'form',
        message,
        requestedSchema: {
          type: 'object',
          properties: { confirm: { type: 'boolean', title: label } },
          required: ['confirm'],
        },
      },
    },
    read: (answer) =>
      readElicit(answer, (content) =>
        isRecord(content) && typeof content.confirm === 'boolean'
          ? accepted(content.confirm, { action: 'accept', content: { confirm: content.confirm } })
          : { ok: false, problem: 'Answer yes or no.', empty: isEmpty(content) },
      ),
  }
}

export function urlQuestion({ message, url }: { message: string; url: string }): Ask {
  assertMessage(message)
  return {
    kind: 'url',
    unasked: false,
    request: { method: 'elicitation/create', params: { mode: 'url', message, url: checkedUrl(url) } },
    read: (answer) => readElicit(answer, () => accepted({}, { action: 'accept' })),
  }
}

export function samplingQuestion(params: SamplingParams): Ask {
  return {
    kind: 'sampling',
    unasked: false,
    request: { method: 'sampling/createMessage', params },
    read: async (answer) =>
      isRecord(answer) &&
      typeof answer.role === 'string' &&
      typeof answer.content === 'object' &&
      answer.content !== null
        ? { ok: true, value: answer }
        : misfit('The response must be a message with a role and content.'),
  }
}

export function rootsQuestion(): Ask {
  return {
    kind: 'roots',
    unasked: false,
    request: { method: 'roots/list' },
    read: async (answer) =>
      isRecord(answer) &&
      Array.isArray(answer.roots) &&
      answer.roots.every((root) => isRecord(root) && typeof root.uri === 'string')
        ? { ok: true, value: answer.roots, answer: { roots: answer.roots } }
        : misfit('The response must be a list of roots.'),
  }
}

function assertMessage(message: unknown): asserts message is string {
  if (typeof message !== 'string')
    throw misuse('The message of a question must be a string, because a person reads it.')
}

/** Refuses URLs that no client should be asked to open: other schemes, plain http to another machine, credentials. */
function checkedUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined
  const secure = url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopback(url.hostname))
  if (!url || !secure) {
    throw misuse('ctx.visit accepts only https URLs, and http URLs on loopback.')
  }
  if (url.username !== '' || url.password !== '') {
    throw misuse('ctx.visit does not accept a URL that contains a user name or password.')
  }
  return text
}

/**
 * Reads an `ElicitResult`; `accept` reads the content of an accepted one. Only what the handler sees is recorded: anything
 * else that a client adds (`_meta`, unknown members) must not turn the same answer into another branch (R7).
 */
async function readElicit(
  answer: unknown,
  accept: (content: unknown) => Reading | Promise<Reading>,
): Promise<Reading> {
  const action = isRecord(answer) ? answer.action : undefined
  if (action === 'decline' || action === 'cancel')
    return { ok: true, value: { action } satisfies Outcome<never>, answer: { action } }
  if (action === 'accept') return accept((answer as Record<string, unknown>).content)
  return misfit('The response must accept, decline or cancel.')
}

function accepted(content: unknown, answer?: unknown): Reading {
  return { ok: true, value: { action: 'accept', content } satisfies Outcome<unknown>, answer }
}

/** Some hosts send this for a form that they cannot show: a yes to its message, and nothing else. */
function isEmpty(content: unknown): boolean {
  return content === undefined || content === null || (isRecord(content) && Object.keys(content).length === 0)
}

/** Records the content that was asked for, with choices by their values. */
function readContent(content: unknown, result: FormResult): Reading {
  if (result.ok) return accepted(result.value, { action: 'accept', content: result.content })
  const problem = result.problems.map(({ message }) => toSentence(message)).join(' ')
  return { ok: false, problem, empty: isEmpty(content) }
}

function toSentence(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`
}

function misfit(problem: string): Reading {
  return { ok: false, problem }
}

/** Begins the digest of a question in the manual form, whose answers replay does not interpret. */
export const MANUAL = 'manual:'

/** Forms are canonicalized once; only the message changes between rounds. */
const formTexts = new WeakMap<JsonSchema, string>()

/** The canonical text of a question. Its digest is sealed under the question's key (R3). */
export function questionText({ kind, request, app }: Ask): string {
  if (request.method !== 'elicitation/create' || request.params.mode !== 'form') {
    return canonicalJson([kind, request])
  }
  const { message, requestedSchema } = request.params
  // Whether this client is sent the app is not part of the question: another request of the same call may declare something else.
  const ui = app === undefined ? '' : `,"ui":${JSON.stringify(app)}`
  return `["${kind}",{"method":"${request.method}","params":{"message":${JSON.stringify(message)},"mode":"form","requestedSchema":${formText(requestedSchema)}${ui}}}]`
}

function formText(schema: JsonSchema): string {
  let text = formTexts.get(schema)
  if (text === undefined) {
    text = canonicalJson(schema)
    formTexts.set(schema, text)
  }
  return text
}

/**
 * The request with the problem of the last answer in front of its message, on the same line because some hosts drop line
 * breaks. The digest does not include the problem.
 */
export function withProblem(request: InputRequest, problem: string): InputRequest {
  if (request.method !== 'elicitation/create') return request
  return {
    ...request,
    params: { ...request.params, message: `${toSentence(problem)} ${request.params.message}` },
  }
}

/** The request as this client is sent it: with the app that draws the form, if the client declares that. */
export function withDeclared({ incoming }: RunState, { app }: Ask, request: InputRequest): InputRequest {
  return app !== undefined && drawsForms(incoming.capabilities) ? withApp(request, app) : request
}

/** Adds the id of a page to visit: unguessable, the same on every replay, and not part of the question's text. */
export function withElicitationId(
  { platform, journal }: { readonly platform: Platform; readonly journal: { readonly seed: string } },
  key: string,
  request: InputRequest,
): InputRequest {
  if (request.method !== 'elicitation/create' || request.params.mode !== 'url') return request
  const elicitationId = toHex(platform.derive(journal.seed, `elicitation:${key}`)).slice(0, 32)
  return { ...request, params: { elicitationId, ...request.params } }
}

/** Whether an effect of this flow has run; undefined if there is no record of effects. */
type Acted = keyof typeof DONE | undefined

const DONE = {
  no: 'Nothing was done.',
  perhaps: 'Some of the work of this call may be done already; a new call may repeat it.',
  yes: 'Some of the work of this call is done already; a new call may repeat it.',
}

const MAX_MESSAGE = 500
const MAX_FIELDS = 800
const MAX_DESCRIBED = 4

/** The client lacks capabilities that the questions need. */
export function unaskable(questions: readonly Unasked[], acted?: Acted): RondoError {
  const requiredCapabilities = joinCapabilities(questions.map(({ missing }) => missing))
  const why = `This client cannot be asked: it lacks the capability ${nameCapabilities(requiredCapabilities)}.`
  const detail = `${why} ${describeUnasked(questions, acted)}`
  return new RondoError('PEER_CAPABILITY', detail, { data: { requiredCapabilities } })
}

/** The questions, what was done, and what to do, for a model to pass on to its user. Bounded, without control characters. */
function describeUnasked(questions: readonly Omit<Unasked, 'missing'>[], acted: Acted): string {
  const shown = questions.slice(0, MAX_DESCRIBED).map(({ request }) => describeRequest(request))
  const more = questions.length - shown.length
  return [
    ...shown,
    ...(more > 0 ? [`There are more questions: ${more}.`] : []),
    ...(acted === undefined ? [] : [DONE[acted]]),
    adviceFor(questions),
  ].join(' ')
}

/** Arguments help only if they make every question unnecessary. */
function adviceFor(questions: readonly Omit<Unasked, 'missing'>[]): string {
  const names = questions.flatMap(({ instead = [] }) => instead).map((name) => `"${name}"`)
  if (questions.every(({ instead }) => instead !== undefined)) {
    return `Ask the user, then call again with the argument${names.length > 1 ? 's' : ''} ${names.join(', ')}.`
  }
  const isForUser = questions.every(({ request }) => request.method === 'elicitation/create')
  const why = isForUser ? 'this host cannot show questions' : 'this host cannot do what the tool needs'
  return `No argument can stand in for the answer. Do not call it again here; tell the user that ${why}.`
}

function describeRequest(request: InputRequest): string {
  if (request.method === 'sampling/createMessage')
    return 'The tool needs a completion from the client’s model.'
  if (request.method === 'roots/list') return 'The tool needs to know the roots of the client.'
  const { params } = request
  const message = cleanText(params.message, MAX_MESSAGE)
  // The link is for the user alone: whoever opens it acts as the user.
  if (params.mode === 'url') return `The tool wants the user to open a page: "${message}"`
  const fields = cleanText(describeFields(readForm(params.requestedSchema).fields), MAX_FIELDS)
  return `The tool asks the user: "${message}" The answer has ${fields}.`
}

/** Continues with the reading, after `before`. Until then the turn holds at `index`. */
export async function whenRead(
  run: RunState,
  reading: Promise<Reading>,
  index: number,
  then: (reading: Reading) => void,
  before?: Promise<void>,
): Promise<void> {
  const settled = run.turn.busy()
  const release = run.turn.hold(index)
  try {
    const result = await reading.catch((error) => unreadable(run, error))
    await before
    if (!run.turn.ended()) then(result)
  } catch (cause) {
    run.turn.refuse(new RondoError('SERVER_INTERNAL', undefined, { cause }))
  } finally {
    release()
    settled()
  }
}

/** The author's schema threw. The client is asked again; the author reads the error in the log. */
function unreadable(run: RunState, error: unknown): Reading {
  run.onAsideError?.(error)
  return misfit('The answer could not be checked.')
}

/**
 * Delivers the answers of one request in the order in which the handler asks for them, no matter how long each validation
 * takes: if the request is sent again, the order is the same.
 */
export function whenReadInOrder(
  run: RunState,
  reading: Promise<Reading>,
  then: (reading: Reading) => void,
): void {
  run.reading = whenRead(run, reading, Number.POSITIVE_INFINITY, then, run.reading)
}

// Questions that are asked again, and how often they may be: one whose wording changed between two rounds, and one whose
// answer does not fit. Also what a client that cannot be asked reads instead.

/** Ends the run and returns false if the question has been reworded too often. */
export function mayReword(run: RunState, key: string): boolean {
  if (run.record.noteChange(key) <= run.limits.maxReasks) return true
  const detail =
    `The question "${key}" changes on every replay, so no answer ever matches it. ` +
    'Keep clocks, rates and random values out of its message and schema, or record them with ctx.step.'
  run.turn.refuse(new RondoError('REPLAY_QUESTION_CHANGES', detail))
  return false
}

const EMPTY = 'The form came back empty.'

/** Ends the run and returns false if the answers did not fit too often, or the client seems unable to show the form. */
export function mayRetry(
  run: RunState,
  key: string,
  question: Ask,
  { problem, empty = false }: { problem: string; empty?: boolean },
): boolean {
  const before = run.record.reask(key).problem
  const now = empty ? `${EMPTY} ${problem}` : problem
  if (empty && before?.startsWith(EMPTY)) {
    const detail = `This client accepted "${key}" twice without filling in the form: it seems unable to show it.`
    const instead = describeUnasked([question], hasActed(run))
    run.turn.refuse(new RondoError('INPUT_REJECTED', `${detail} ${instead}`))
    return false
  }
  if (run.record.noteMisfit(key, now) <= run.limits.maxReasks) return true
  const detail = `The answer to "${key}" was invalid ${run.limits.maxReasks + 1} times. ${now}`
  run.turn.refuse(new RondoError('INPUT_REJECTED', detail))
  return false
}

/** Refuses at the end of this moment, to name every question that the handler asks in it. */
export function refuseUnaskable(run: RunState, question: Ask, missing: ClientCapabilities): void {
  const { request, instead } = question
  const unasked = [...(run.unasked ?? []), { request, instead, missing }]
  run.unasked = unasked
  run.turn.doom(() => unaskable(unasked, hasActed(run)))
}

function hasActed(run: RunState): NonNullable<Acted> {
  const effects = [...run.names].filter(([, kind]) => kind === 'effect')
  const isDone = run.record.unreachedEffect() !== undefined || effects.some(([key]) => run.record.find(key))
  return isDone ? 'yes' : effects.length > 0 ? 'perhaps' : 'no'
}
