/**
 * Answers for servers of older revisions, which ask while a call waits. What nobody can answer there is cancelled, so that
 * the server goes on and nothing hangs, and is remembered: the command ends with an error then.
 */

import type { Answers, AskInfo } from '../client/answers.ts'
import type { QuestionKind } from '../client/question.ts'
import type { ElicitResult, InputRequest, InputResponse, Root } from '../protocol/wire.ts'
import type { Answerer } from './answerer.ts'
import { CommandError } from './command-error.ts'
import { messageOf } from './describe-call.ts'
import type { Io } from './io.ts'
import { type NamedTarget, sayTarget } from './target.ts'

export interface PushedAnswers {
  readonly answers: Answers
  /** What was asked and cancelled, because nobody could answer it. */
  readonly unanswered: readonly string[]
}

export interface Answering {
  readonly answerer: Answerer
  readonly target: NamedTarget
  /** What the server may ask. */
  readonly kinds: readonly QuestionKind[]
  readonly roots: readonly Root[]
  /** The call goes on as a task. */
  readonly isTask: () => boolean
}

export function createPushedAnswers(io: Io, answering: Answering): PushedAnswers {
  const { answerer, target, kinds, roots, isTask } = answering
  const unanswered: string[] = []
  const take = async (question: InputRequest, info: AskInfo): Promise<InputResponse> => {
    const { key, request, round, signal } = info
    const server = { ...info.server, target: sayTarget(target) }
    io.status.stop()
    const waiting = { key, question, signal, server, request, round, canKeep: false }
    const response = await answerer.answerNow(waiting)
    io.status.start('waiting for the server')
    if (response !== undefined) return response
    const asked = messageOf(question) ?? key
    // A task outlives whoever follows it: somebody else may have the answer.
    if (isTask()) throw new CommandError('answers', `No answer for "${asked}"`)
    unanswered.push(asked)
    if (question.method === 'elicitation/create') return { action: 'cancel' }
    throw new CommandError(
      'answers',
      `Nobody answers "${key}" (${question.method}), and the server waits for it`,
    )
  }
  return {
    unanswered,
    answers: {
      elicitation: (params, info) =>
        take({ method: 'elicitation/create', params }, info) as Promise<ElicitResult>,
      ...(kinds.includes('sampling') && {
        sampling: (params, info) => take({ method: 'sampling/createMessage', params }, info) as never,
      }),
      ...(kinds.includes('roots') && { roots }),
    },
  }
}
