/**
 * Has the open questions of a round answered: one at a time unless told otherwise. A handler that throws ends the call;
 * its siblings' signal is aborted and what they still give is not used.
 */

import { RondoError } from '../errors.ts'
import { orAbort } from '../lib/or-abort.ts'
import { type Answers, type AskInfo, callHandler } from './answers.ts'
import type { FlowRequest } from './flow-request.ts'
import { answer, openQuestions, type PendingCall } from './pending.ts'

export interface Fulfilment {
  readonly answers: Answers
  /** The whole call's. */
  readonly signal?: AbortSignal
  /** Sees the call after every answer, before the next question. */
  readonly onAnswer?: (pending: PendingCall) => void | Promise<void>
}

export async function fulfil<R extends FlowRequest>(
  pending: PendingCall<R>,
  { answers, signal, onAnswer }: Fulfilment,
): Promise<PendingCall<R>> {
  const siblings = new AbortController()
  const giveUp = () => siblings.abort(signal?.reason)
  if (signal?.aborted) giveUp()
  signal?.addEventListener('abort', giveUp, { once: true })
  let now = pending
  const open = openQuestions(pending)
  const take = async ([key, question]: (typeof open)[number], index: number): Promise<void> => {
    siblings.signal.throwIfAborted()
    // One for each: Node warns of more than ten listeners on a signal.
    const own = AbortSignal.any([siblings.signal])
    const info = infoOf(pending, key, index + 1, open.length, own)
    const response = await orAbort(callHandler(answers, question, info), own)
    if (response === undefined) throw new RondoError('INPUT_ANSWER', `The handler gave no answer to "${key}"`)
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
    throw new RondoError('INPUT_ABORTED', 'A handler ended the call', { cause: error })
  } finally {
    signal?.removeEventListener('abort', giveUp)
  }
}

function infoOf(
  pending: PendingCall,
  key: string,
  index: number,
  count: number,
  signal: AbortSignal,
): AskInfo {
  const { server, request, round } = pending
  return { key, server, request, round, index, count, signal }
}
