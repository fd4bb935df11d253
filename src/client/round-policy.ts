/**
 * What a policy sees and may say (C13). It sees every round before anybody is asked: which server, for which request,
 * which questions. It can let the round pass, refuse the call, or rewrite: change questions, or answer some itself.
 */

import { RondoError } from '../errors.ts'
import type { InputRequest, InputRequests, InputResponse, InputResponses } from '../protocol/wire.ts'
import type { FlowRequest } from './flow-request.ts'
import { answer, type PendingCall, type PendingServer } from './pending.ts'
import { kindOf } from './question.ts'

export interface Round {
  readonly server: PendingServer
  readonly request: FlowRequest
  /** 1 the first time the server asks. */
  readonly round: number
  readonly questions: InputRequests
  /** Length of the server's state. */
  readonly stateLength: number
}

export type Verdict =
  | { readonly kind: 'allow' }
  | { readonly kind: 'refuse'; readonly reason: string }
  | {
      readonly kind: 'rewrite'
      /** Replaces questions by key; what people are shown, not what the server asked. */
      readonly questions?: InputRequests
      /** Answers that nobody needs to be asked for any more. */
      readonly answers?: InputResponses
    }

/** Gives a verdict; nothing means allow. */
export type RoundPolicy = (round: Round) => Verdict | undefined | Promise<Verdict | undefined>

/** Runs the policies in order. The first refusal ends the call; each sees what those before it rewrote. */
export async function applyPolicies<R extends FlowRequest>(
  pending: PendingCall<R>,
  policies: readonly RoundPolicy[],
): Promise<PendingCall<R>> {
  let now = pending
  for (const policy of policies) {
    const verdict = await policy(roundOf(now))
    if (verdict?.kind === 'refuse') {
      throw new RondoError('INPUT_REFUSED', `Refused by policy: ${verdict.reason}`, { data: verdict })
    }
    if (verdict?.kind === 'rewrite') now = rewrite(now, verdict.questions ?? {}, verdict.answers ?? {})
  }
  return now
}

function roundOf(pending: PendingCall): Round {
  const { server, request, round, questions, state = '' } = pending
  return { server, request, round, questions, stateLength: state.length }
}

function rewrite<R extends FlowRequest>(
  pending: PendingCall<R>,
  questions: InputRequests,
  answers: InputResponses,
): PendingCall<R> {
  const shown = Object.entries(pending.questions).map(([key, question]): [string, InputRequest] => {
    const other = Object.hasOwn(questions, key) ? questions[key] : undefined
    if (other !== undefined && kindOf(other) !== kindOf(question)) {
      throw new TypeError(`A policy made "${key}" a question of another kind`)
    }
    return [key, other ?? question]
  })
  const given: [string, InputResponse][] = Object.entries(answers)
  return given.reduce((now, [key, response]) => answer(now, key, response), {
    ...pending,
    questions: Object.fromEntries(shown),
  })
}
