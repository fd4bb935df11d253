/**
 * The questions a client can be asked, the handlers that answer them, and the check of an answer's shape: an accepted form
 * has content of plain values, a model's message has a role. Whether content satisfies the requested schema is left to the
 * form that shows it and to the server, which asks again. A kind without a handler is not declared as a capability (C5).
 */

import { isRecord } from '../lib/json.ts'
import { DRAWS_FORMS } from '../protocol/common/apps.ts'
import { kindOf, type QuestionKind } from '../protocol/common/request.ts'
import { TASKS_EXTENSION } from '../protocol/reply.ts'
import type {
  ClientCapabilities,
  CreateMessageResult,
  ElicitFormParams,
  ElicitResult,
  ElicitUrlParams,
  InputRequest,
  InputResponse,
  ListRootsResult,
  Root,
  SamplingParams,
} from '../protocol/wire.ts'
import type { FlowRequest, PendingServer } from './pending.ts'

export const QUESTION_KINDS: readonly QuestionKind[] = ['form', 'url', 'sampling', 'roots']

/** The facts that a handler gets besides the question. Show people which server asks: the text of the question is the server's. */
export interface AskInfo {
  readonly key: string
  readonly server: PendingServer
  readonly request: FlowRequest
  /** 1 the first time the server asks. */
  readonly round: number
  /** The position of this question in its round, from 1 to `count`. */
  readonly index: number
  readonly count: number
  /** The `ui://` URI of the app that can draw the form. Only with `answers.apps`. */
  readonly ui?: string
  /** Aborted when the call is, or when another handler of the round fails. */
  readonly signal: AbortSignal
}

export type AnswerHandler<Params, Result> = (params: Params, info: AskInfo) => Result | Promise<Result>

/** Fills in forms. */
export type FormHandler = AnswerHandler<ElicitFormParams, ElicitResult>
/** Asks for consent to open a URL. `accept` means consent, not completion. */
export type UrlHandler = AnswerHandler<ElicitUrlParams, ElicitResult>

export interface Answers {
  /** One function for both modes, or one for each mode to declare. */
  readonly elicitation?:
    | AnswerHandler<ElicitFormParams | ElicitUrlParams, ElicitResult>
    | { readonly form?: FormHandler; readonly url?: UrlHandler }
  readonly sampling?: AnswerHandler<SamplingParams, CreateMessageResult>
  /** A list that does not change, or a function. */
  readonly roots?: readonly Root[] | AnswerHandler<Readonly<Record<string, unknown>>, ListRootsResult>
  /**
   * Declares that forms may be drawn by an app of the server (draft SEP-3118); the handler gets the URI of the app as `info.ui`, and
   * may show the form instead. Default: false.
   *
   * @see docs/guide/13-drafts.md#questions-drawn-by-an-app
   */
  readonly apps?: boolean
  /** Calls the handlers for all questions of a round at once instead of one after another. */
  readonly together?: boolean
}

/** The capabilities that let a server ask exactly these kinds. */
export function capabilitiesFor(kinds: ReadonlySet<QuestionKind>, apps = false): ClientCapabilities {
  const form = kinds.has('form') && { form: {} }
  const url = kinds.has('url') && { url: {} }
  return {
    ...((form || url) && { elicitation: { ...form, ...url } }),
    ...(kinds.has('sampling') && { sampling: {} }),
    ...(kinds.has('roots') && { roots: {} }),
    ...(form && apps && { extensions: DRAWS_FORMS }),
  }
}

/** Capabilities that also say that the client follows tasks. */
export function withTasks(asked: ClientCapabilities = {}): ClientCapabilities {
  return { ...asked, extensions: { ...asked.extensions, [TASKS_EXTENSION]: {} } }
}

export function answerableKinds(answers: Answers): Set<QuestionKind> {
  const { elicitation, sampling, roots } = answers
  const both = typeof elicitation === 'function'
  const modes = both ? undefined : elicitation
  const kinds = new Set<QuestionKind>()
  if (both || modes?.form) kinds.add('form')
  if (both || modes?.url) kinds.add('url')
  if (sampling) kinds.add('sampling')
  if (roots) kinds.add('roots')
  return kinds
}

/** Calls the handler for a question of an answerable kind. */
export async function callHandler(
  answers: Answers,
  question: InputRequest,
  info: AskInfo,
): Promise<InputResponse | undefined> {
  const { elicitation, sampling, roots } = answers
  switch (question.method) {
    case 'elicitation/create': {
      const { params } = question
      if (typeof elicitation === 'function') return elicitation(params, info)
      return params.mode === 'form' ? elicitation?.form?.(params, info) : elicitation?.url?.(params, info)
    }
    case 'sampling/createMessage':
      return sampling?.(question.params, info)
    case 'roots/list':
      return typeof roots === 'function' ? roots(question.params ?? {}, info) : roots && { roots }
  }
}

/** Returns what is wrong with an answer, or undefined. */
export function answerProblem(question: InputRequest, answer: unknown): string | undefined {
  if (!isRecord(answer)) return 'it is not a result object'
  switch (kindOf(question)) {
    case 'form':
      return elicitProblem(answer, true)
    case 'url':
      return elicitProblem(answer, false)
    case 'sampling':
      return samplingProblem(answer)
    case 'roots':
      return rootsProblem(answer)
  }
}

export function isAnswerTo(question: InputRequest, answer: unknown): answer is InputResponse {
  return answerProblem(question, answer) === undefined
}

const ACTIONS = new Set<unknown>(['accept', 'decline', 'cancel'])

function elicitProblem(answer: Record<string, unknown>, form: boolean): string | undefined {
  const { action, content } = answer
  if (!ACTIONS.has(action)) return 'its action is not accept, decline or cancel'
  if (!form || action !== 'accept')
    return content === undefined ? undefined : 'only an accepted form has content'
  if (!isRecord(content)) return 'an accepted form needs content'
  const bad = Object.entries(content).find(([, value]) => !isPlain(value))
  return bad && `"${bad[0]}" is not a string, number, boolean or list of strings`
}

function isPlain(value: unknown): boolean {
  if (Array.isArray(value)) return value.every((item) => typeof item === 'string')
  return typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value)
}

function samplingProblem(answer: Record<string, unknown>): string | undefined {
  const { role, content, model } = answer
  if (role !== 'user' && role !== 'assistant') return 'its role is not user or assistant'
  if (typeof content !== 'object' || content === null) return 'it has no content'
  return typeof model === 'string' ? undefined : 'it does not name its model'
}

function rootsProblem(answer: Record<string, unknown>): string | undefined {
  const { roots } = answer
  const good = Array.isArray(roots) && roots.every((root) => isRecord(root) && typeof root.uri === 'string')
  return good ? undefined : 'it is not a list of roots'
}
