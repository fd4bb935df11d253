/**
 * Who answers a server's questions: one handler for each kind, whatever the era of the server (C5). What has no handler
 * is not declared as a capability.
 */

import type {
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
import type { FlowRequest } from './flow-request.ts'
import type { PendingServer } from './pending.ts'
import type { QuestionKind } from './question.ts'

/** What a handler knows besides the question. Show who asks: the question's own words are the server's. */
export interface AskInfo {
  readonly key: string
  readonly server: PendingServer
  readonly request: FlowRequest
  /** 1 the first time the server asks. */
  readonly round: number
  /** This question is number `index` of `count` in its round, counted from 1. */
  readonly index: number
  readonly count: number
  /** Aborted when the call is, or when another handler of the round gave up. */
  readonly signal: AbortSignal
}

export type AnswerHandler<Params, Result> = (params: Params, info: AskInfo) => Result | Promise<Result>

/** Fills in forms. */
export type FormHandler = AnswerHandler<ElicitFormParams, ElicitResult>
/** Asks for consent to open a URL. `accept` means consent, not that anything was done there. */
export type UrlHandler = AnswerHandler<ElicitUrlParams, ElicitResult>

export interface Answers {
  /** One function for both modes, or one for each mode that is to be declared. */
  readonly elicitation?:
    | AnswerHandler<ElicitFormParams | ElicitUrlParams, ElicitResult>
    | { readonly form?: FormHandler; readonly url?: UrlHandler }
  readonly sampling?: AnswerHandler<SamplingParams, CreateMessageResult>
  /** A list that does not change, or a function. */
  readonly roots?: readonly Root[] | AnswerHandler<Readonly<Record<string, unknown>>, ListRootsResult>
  /** Hand over all questions of a round at once instead of one after the other. */
  readonly together?: boolean
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

/** Hands one question to its handler. Only questions of an answerable kind get here. */
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
