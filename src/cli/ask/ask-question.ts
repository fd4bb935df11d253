/** Asks one question of a round: who asks and what for, in our words; then the server's words; then the prompts. */

import type { PendingCall } from '../../client/pending.ts'
import { readForm } from '../../form/read-form.ts'
import type { InputRequest, InputResponse } from '../../protocol/wire.ts'
import { sayRequest, sayServer } from '../describe-call.ts'
import { askForm } from './ask-form.ts'
import { askSampling } from './ask-sampling.ts'
import { askUrl } from './ask-url.ts'
import type { Terminal } from './terminal.ts'

export type Reply = { readonly kind: 'answer'; readonly response: InputResponse } | { readonly kind: 'later' }

/** Who asks, and what for. */
export interface Asking extends Pick<PendingCall, 'server' | 'request' | 'round'> {
  /** The answer may come later; otherwise the server waits for it. */
  readonly canKeep: boolean
}

export interface Place {
  /** This is question `index` of `count` in its round, counted from 1. */
  readonly index: number
  readonly count: number
}

export async function askQuestion(
  terminal: Terminal,
  { server, request, round, canKeep }: Asking,
  question: InputRequest,
  { index, count }: Place,
): Promise<Reply> {
  const waits = canKeep ? '' : '; the server waits for the answer'
  const place = `question ${index} of ${count}, round ${round}${waits}`
  terminal.say(`${sayServer(server)} asks, for ${sayRequest(request)}\n${place}`, 'info')
  switch (question.method) {
    case 'elicitation/create': {
      const { params } = question
      if (params.mode === 'url') {
        terminal.say(params.message)
        return askUrl(terminal, params, canKeep)
      }
      return askForm(terminal, params.message, readForm(params.requestedSchema), canKeep)
    }
    case 'sampling/createMessage':
      return askSampling(terminal, question.params)
    case 'roots/list':
      terminal.say('The server wants to know your folders. Give them with --root; none are told now.', 'warn')
      return { kind: 'answer', response: { roots: [] } }
  }
}
