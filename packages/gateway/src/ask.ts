/**
 * Questions that the client cannot be asked, put to a person on this machine instead. The person's answer goes to the upstream
 * and never to the client, and the client never learns where the person was asked.
 */

import type { FlowRequest, InputRequest, InputResponse, QuestionKind } from 'rondo/client'

/** A question for a person on this machine. Show which server asks apart from its own words. */
export interface LocalQuestion {
  /** The name of the upstream in the configuration, and the name that the server gives itself. */
  readonly upstream: string
  readonly server?: string
  /** The request during which the server asks, and the tool, prompt or URI that it names. */
  readonly method: FlowRequest['method']
  readonly target: string
  readonly request: InputRequest
  /** Fires when the question is no longer open. */
  readonly signal: AbortSignal
}

/** Asks a person on this machine. */
export interface AskLocally {
  /** The kinds that can be asked here. */
  readonly kinds: readonly QuestionKind[]
  /** Where the person finds the question, for the model to say. Default: `on the user's screen`. */
  readonly place?: string
  /** Whether the person is asked here even if the client could ask. Default: false. */
  readonly always?: boolean
  /** Resolves with the answer; `cancel` if nobody answered. */
  ask(question: LocalQuestion): Promise<InputResponse>
}

/** Whether this question is asked here rather than by the client. */
export function isLocal(ask: AskLocally | undefined, kind: QuestionKind, clientCan: boolean): boolean {
  return ask?.kinds.includes(kind) === true && (ask.always === true || !clientCan)
}
