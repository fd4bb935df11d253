/** A round that a server asks: checked, counted, passed to the policies and then to the handlers (C8, C13). */

import { RondoError } from '../errors.ts'
import { cleanText, displayText } from '../form/clean-text.ts'
import { isLoopback } from '../lib/address.ts'
import { orAbort } from '../lib/clock.ts'
import { isRecord, measureJson } from '../lib/json.ts'
import { appOf, withoutApp } from '../protocol/common/apps.ts'
import { kindOf, type QuestionKind, readTrace } from '../protocol/common/request.ts'
import type {
  ClientCapabilities,
  InputRequest,
  InputRequests,
  InputResponse,
  JsonSchema,
} from '../protocol/wire.ts'
import type { Limits } from './limits.ts'
import { type AskedRound, answer, ask, type FlowRequest, openQuestions, type PendingCall } from './pending.ts'
import { applyPolicies } from './policy.ts'
import type { Driving, Flows, Peer, PushedRounds } from './port.ts'
import {
  type Answers,
  type AskInfo,
  answerableKinds,
  callHandler,
  capabilitiesFor,
  withTasks,
} from './question.ts'

export async function takeRound<R extends FlowRequest>(
  { peer, policies }: Flows,
  pending: PendingCall<R>,
  round: AskedRound,
  { limits, options, startedAt }: { limits: Limits; options: Driving; startedAt: number },
): Promise<PendingCall<R>> {
  const questions = vetRound(round, limits, options.kinds, options.apps)
  const now = peer.clock.now()
  const asked = ask(pending, { questions, state: round.state, now, tookMs: now - startedAt }, limits)
  const own = options.onRound === undefined ? [] : [options.onRound].flat()
  const taken = await applyPolicies(asked, [...policies, ...own])
  if (round.span !== undefined) broughtBy.set(taken, round.span)
  return taken
}

/** The requests that brought the questions of a call, as telemetry names them. */
const broughtBy = new WeakMap<PendingCall, string>()

/** Characters of a key in a message. */
const MAX_SHOWN = 100

/** The option that holds the handler of a kind. */
const HANDLERS: Readonly<Record<QuestionKind, string>> = {
  form: 'answers.elicitation.form',
  url: 'answers.elicitation.url',
  sampling: 'answers.sampling',
  roots: 'answers.roots',
}

/**
 * Checks what a server asks before anybody sees it (T22): its size, whether it can be answered, whether a URL is safe to
 * open. An app that draws a form is named only if that was declared (`apps`). Returns the questions with their visible texts cleaned; keys and enum values are echoed later and stay unchanged.
 */
export function vetRound(
  asked: AskedRound,
  limits: Limits,
  answerable: ReadonlySet<QuestionKind>,
  apps = false,
): InputRequests {
  checkSize(asked, limits)
  const entries = Object.entries(asked.questions)
  for (const [key, question] of entries) {
    const kind = kindOf(question)
    if (!answerable.has(kind)) {
      const missing = `The server asks "${cleanText(key, MAX_SHOWN)}" (${kind}), and there is no handler ${HANDLERS[kind]}`
      throw new RondoError('INPUT_NO_HANDLER', missing)
    }
  }
  return Object.fromEntries(entries.map(([key, question]) => [key, cleanQuestion(key, question, apps)]))
}

function checkSize({ questions, state = '' }: AskedRound, limits: Limits): void {
  const bytes = state.length * 3 <= limits.maxStateBytes ? 0 : new TextEncoder().encode(state).byteLength
  if (bytes > limits.maxStateBytes) {
    throw new RondoError(
      'LIMIT_CLIENT_STATE',
      `requestState is ${bytes} bytes long; the limit is ${limits.maxStateBytes}`,
    )
  }
  const count = Object.keys(questions).length
  if (count > limits.maxQuestions) {
    throw new RondoError(
      'LIMIT_CLIENT_QUESTIONS',
      `The server asks ${count} questions in one round; the limit is ${limits.maxQuestions}`,
    )
  }
  if (measureJson(questions, limits.maxQuestionSize) > limits.maxQuestionSize) {
    throw new RondoError(
      'LIMIT_CLIENT_QUESTIONS',
      `The questions of this round are larger than ${limits.maxQuestionSize}`,
    )
  }
}

function cleanQuestion(key: string, given: InputRequest, apps: boolean): InputRequest {
  const question = apps && appOf(given) !== undefined ? given : withoutApp(given)
  if (question.method !== 'elicitation/create') return question
  const { method, params } = question
  const message = displayText(params.message)
  if (params.mode === 'form') {
    return { method, params: { ...params, message, requestedSchema: cleanSchema(params.requestedSchema) } }
  }
  const link = inspectLink(params.url)
  if (link === undefined) {
    throw new RondoError(
      'PEER_LINK',
      `The URL of "${cleanText(key, MAX_SHOWN)}" is not safe to open: it must be https, or http on this machine, without a user name`,
    )
  }
  return { method, params: { ...params, message, url: link.url } }
}

const VISIBLE = new Set(['title', 'description', 'enumNames'])

/** Cleans titles and descriptions. Below `properties` the keys are field names and not keywords. */
function cleanSchema(schema: JsonSchema): JsonSchema {
  return Object.fromEntries(
    Object.entries(schema).map(([keyword, value]) => [keyword, cleanKeyword(keyword, value)]),
  )
}

function cleanKeyword(keyword: string, value: unknown): unknown {
  if (VISIBLE.has(keyword)) return cleanWords(value)
  if (keyword === 'properties' && isRecord(value)) {
    return Object.fromEntries(
      Object.entries(value).map(([name, child]) => [name, isRecord(child) ? cleanSchema(child) : child]),
    )
  }
  if (keyword === 'items' && isRecord(value)) return cleanSchema(value)
  if ((keyword === 'oneOf' || keyword === 'anyOf') && Array.isArray(value)) {
    return value.map((child) => (isRecord(child) ? cleanSchema(child) : child))
  }
  return value
}

function cleanWords(value: unknown): unknown {
  if (typeof value === 'string') return displayText(value)
  return Array.isArray(value) ? value.map(cleanWords) : value
}

interface Fulfilment {
  readonly answers: Answers
  readonly peer?: Pick<Peer, 'observer' | 'clock'>
  /** The signal of the whole call. */
  readonly signal?: AbortSignal
  /** Called with the call after every answer, before the next question. */
  readonly onAnswer?: (pending: PendingCall) => void | Promise<void>
}

/**
 * Calls the handlers for the open questions of a round, one at a time unless `together` is set. A handler that throws ends
 * the call: the signal of its siblings is aborted, and their answers are dropped.
 */
export async function fulfil<R extends FlowRequest>(
  pending: PendingCall<R>,
  { answers, peer, signal, onAnswer }: Fulfilment,
): Promise<PendingCall<R>> {
  const siblings = new AbortController()
  const giveUp = () => siblings.abort(signal?.reason)
  if (signal?.aborted) giveUp()
  signal?.addEventListener('abort', giveUp, { once: true })
  let now = pending
  const open = openQuestions(pending)
  const take = async ([key, question]: (typeof open)[number], index: number): Promise<void> => {
    siblings.signal.throwIfAborted()
    // One for each handler: Node warns about more than ten listeners on a signal.
    const own = AbortSignal.any([siblings.signal])
    const ui = answers.apps ? appOf(question) : undefined
    const info = infoOf(pending, key, index + 1, open.length, own, ui)
    const handle = () => orAbort(callHandler(answers, question, info), own)
    const response = await observed(peer, pending, question, handle)
    if (response === undefined)
      throw new RondoError('INPUT_ANSWER', `The handler returned no answer to "${key}"`)
    now = answer(now, key, response)
    await onAnswer?.(now)
  }
  try {
    if (answers.together) await Promise.all(open.map(take))
    else for (const [index, entry] of open.entries()) await take(entry, index)
    return now
  } catch (error) {
    if (signal?.aborted) throw signal.reason
    siblings.abort(error)
    if (error instanceof RondoError) throw error
    throw new RondoError('INPUT_ABORTED', 'A handler threw, which ends the call', { cause: error })
  } finally {
    signal?.removeEventListener('abort', giveUp)
  }
}

/** Has a question answered inside a span of its own, in the trace that the server named. */
async function observed<T>(
  peer: Fulfilment['peer'],
  pending: PendingCall,
  { method, params }: InputRequest,
  handle: () => Promise<T>,
): Promise<T> {
  if (!peer?.observer?.begin) return handle()
  const { _meta } = (params ?? {}) as { readonly _meta?: unknown }
  const span = broughtBy.get(pending)
  const one = peer.observer.begin({
    kind: 'question',
    method,
    protocolVersion: pending.protocolVersion,
    trace: isRecord(_meta) ? readTrace(_meta) : undefined,
    began: peer.clock.now(),
    spans: span === undefined ? undefined : [span, span],
  })
  if (!one) return handle()
  try {
    const response = await one.run(handle)
    one.end({ outcome: 'complete' })
    return response
  } catch (error) {
    one.end({ code: error instanceof RondoError ? error.code : 'INPUT_ABORTED' })
    throw error
  }
}

function infoOf(
  pending: PendingCall,
  key: string,
  index: number,
  count: number,
  signal: AbortSignal,
  ui: string | undefined,
): AskInfo {
  const { server, request, round } = pending
  return { key, server, request, round, index, count, ...(ui !== undefined && { ui }), signal }
}

/** The capabilities a request declares: what may be asked, and that a tool call may become a task. */
export function declare(
  { tasks }: Pick<Flows, 'tasks'>,
  { kinds, apps }: Pick<Driving, 'kinds' | 'apps'>,
  method: FlowRequest['method'],
): ClientCapabilities {
  const asked = capabilitiesFor(kinds, apps)
  return tasks === 'off' || method !== 'tools/call' ? asked : withTasks(asked)
}

export function createPushedRounds(
  flows: Flows,
  pending: PendingCall,
  options: Driving,
  limits: Limits,
): PushedRounds {
  const { answers } = flows
  const kinds = answerableKinds(answers)
  let current = pending
  let last: Promise<unknown> = Promise.resolve()
  const takeNow = async (question: InputRequest, signal: AbortSignal): Promise<InputResponse> => {
    signal.throwIfAborted()
    if (options.suspends && !kinds.has(kindOf(question))) throw cannotKeep(question, pending)
    const key = `question-${current.round + 1}`
    const startedAt = flows.peer.clock.now()
    const how = { limits, startedAt, options: { ...options, kinds, apps: answers.apps } }
    const asked = await takeRound(flows, current, { questions: { [key]: question } }, how)
    current = asked
    const open = openQuestions(asked).length > 0
    const { answers: given } = open ? await fulfil(asked, { answers, peer: flows.peer, signal }) : asked
    const answer = given[key]
    if (answer === undefined) throw new RondoError('INPUT_ANSWER', `There is no answer to "${key}"`)
    return answer
  }
  return {
    get rounds() {
      return current.round
    },
    take(question, signal) {
      const turn = answers.together ? takeNow(question, signal) : last.then(() => takeNow(question, signal))
      last = turn.catch(() => {})
      return turn
    },
  }
}

function cannotKeep(question: InputRequest, { protocolVersion }: PendingCall): RondoError {
  const why = `in ${protocolVersion} the server waits for the answer, so the call cannot be stored`
  return new RondoError('INPUT_PENDING', `The server asks (${kindOf(question)}), and ${why}: pass a handler`)
}

export interface Link {
  /** The URL as it will be opened; show this one. */
  readonly url: string
  readonly host: string
  /** The text to show a person before opening the URL. */
  readonly warnings: readonly ('not-encrypted' | 'look-alike-letters' | 'bare-address')[]
}

const MAX_LENGTH = 8_192
const BARE_ADDRESS = /^(?:\d{1,3}(?:\.\d{1,3}){3}|\[.*\])$/

/**
 * Checks a URL that a server wants opened: https, or http on this machine, and no user name, which can make one host
 * look like another. Returns undefined if it is not safe. Nothing is fetched or opened here.
 *
 * @example
 * ```ts
 * const link = inspectLink('https://pay.example.com/42')
 * if (!link) throw new Error('This link is not safe.')
 * ```
 */
export function inspectLink(text: string): Link | undefined {
  if (text.length > MAX_LENGTH || !URL.canParse(text)) return undefined
  const url = new URL(text)
  if (url.username !== '' || url.password !== '') return undefined
  const plain = url.protocol === 'http:'
  if (url.protocol !== 'https:' && !(plain && isLoopback(url.hostname))) return undefined
  const labels = url.hostname.split('.')
  return {
    url: url.href,
    host: url.host,
    warnings: [
      ...(plain ? (['not-encrypted'] as const) : []),
      ...(labels.some((label) => label.startsWith('xn--')) ? (['look-alike-letters'] as const) : []),
      ...(BARE_ADDRESS.test(url.hostname) ? (['bare-address'] as const) : []),
    ],
  }
}
