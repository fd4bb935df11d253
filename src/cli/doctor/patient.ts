/**
 * A tool of the server under examination that asks something. Every attack begins a call, changes what goes back, and says
 * no: a server that takes the state shows it by going on, and a no does the least harm.
 */

import type { Client } from '../../client/client.ts'
import type { ToolRequest } from '../../client/flow-request.ts'
import { PeerError } from '../../client/peer-error.ts'
import { answer, openQuestions, type PendingCall } from '../../client/pending.ts'
import { RondoError } from '../../errors.ts'

export type Asked = PendingCall<ToolRequest>

export type Outcome =
  | { readonly kind: 'refused'; readonly code: number; readonly message: string }
  | { readonly kind: 'complete'; readonly result: string; readonly isError: boolean }
  /** `again`: it asks what it asked in the first round. */
  | { readonly kind: 'asks'; readonly again: boolean; readonly pending: Asked }
  /** No answer that the protocol knows. */
  | { readonly kind: 'broken'; readonly message: string }

export interface Patient {
  readonly client: Client
  readonly request: ToolRequest
  readonly signal: AbortSignal
}

const ACCEPTS = ['form', 'url'] as const

/** The first round. Anything but a question with a state is given as a sentence. */
export async function begin({ client, signal }: Patient, request: ToolRequest): Promise<Asked | string> {
  try {
    const step = await client.start(request, { accepts: ACCEPTS, signal })
    if (step.status !== 'input_required') return `${request.name} finished without asking`
    return step.pending.state === undefined ? `${request.name} asks, but gives no requestState` : step.pending
  } catch (error) {
    if (signal.aborted || !(error instanceof RondoError)) throw error
    return `${request.name} could not be called: ${error.message}`
  }
}

/** Sends a call on with a no to all its questions. */
export async function sendNo(
  { client, signal }: Patient,
  pending: Asked,
  action: 'decline' | 'cancel' = 'decline',
): Promise<Outcome> {
  const keys = openQuestions(pending).map(([key]) => key)
  const answered = keys.reduce((now, key) => answer(now, key, { action }), pending)
  try {
    const step = await client.resume(answered, {}, { accepts: ACCEPTS, signal })
    if (step.status === 'task') return { kind: 'complete', result: 'a task', isError: false }
    if (step.status === 'complete') {
      return { kind: 'complete', result: resultText(step.result), isError: step.result.isError === true }
    }
    return { kind: 'asks', again: sameQuestions(step.pending, pending), pending: step.pending }
  } catch (error) {
    if (signal.aborted || !(error instanceof RondoError)) throw error
    if (error instanceof PeerError)
      return { kind: 'refused', code: error.peer.code, message: error.peer.message }
    return { kind: 'broken', message: error.message }
  }
}

/** What a result says, without what differs from one answer to the next. */
function resultText(result: object): string {
  return JSON.stringify({ ...result, _meta: undefined })
}

function sameQuestions(one: Asked, other: Asked): boolean {
  return Object.keys(one.questions).sort().join('\n') === Object.keys(other.questions).sort().join('\n')
}
