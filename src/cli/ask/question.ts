/** Asks one question of a round: first who asks and why, in our words; then the server's message; then the prompts. */

import type { PendingCall } from '../../client/pending.ts'
import { inspectLink } from '../../client/round.ts'
import { readForm } from '../../form/form.ts'
import { isRecord } from '../../lib/json.ts'
import type { ElicitUrlParams, InputRequest, InputResponse, SamplingParams } from '../../protocol/wire.ts'
import { sayRequest, sayServer } from '../describe.ts'
import { sayValue } from '../io.ts'
import { askForm, type Given, laterChoice } from './form.ts'
import type { Choice, Terminal } from './terminal.ts'

type QuestionReply =
  | { readonly kind: 'answer'; readonly response: InputResponse }
  | { readonly kind: 'later' }

/** Who asks, and for which request. */
export interface Asking extends Pick<PendingCall, 'server' | 'request' | 'round'> {
  /** True if the answer may come later; otherwise the server waits for it. */
  readonly canKeep: boolean
}

interface Place {
  /** This is question `index` of `count` in its round, counted from 1. */
  readonly index: number
  readonly count: number
}

export async function askQuestion(
  terminal: Terminal,
  { server, request, round, canKeep }: Asking,
  question: InputRequest,
  { index, count }: Place,
): Promise<QuestionReply> {
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
      terminal.say('The server asks for your folders, and none were sent. Pass them with --root.', 'warn')
      return { kind: 'answer', response: { roots: [] } }
  }
}

/** Shows the messages of a sampling request, and lets the user type the completion. */
async function askSampling(
  terminal: Terminal,
  params: SamplingParams,
): Promise<{ readonly kind: 'answer'; readonly response: InputResponse }> {
  terminal.say(`The server requests a completion by a model (at most ${params.maxTokens} tokens).`)
  for (const message of params.messages) terminal.say(sayMessage(message))
  const check = (input: string) =>
    input.trim() === '' ? 'Type the completion; Ctrl-C cancels the question' : undefined
  const text = await terminal.line('The completion, typed by you instead of a model', '', check)
  const content = { type: 'text', text }
  return { kind: 'answer', response: { role: 'assistant', content, model: 'a person at a terminal' } }
}

function sayMessage(message: unknown): string {
  if (!isRecord(message)) return sayValue(message)
  const { role, content } = message
  return `${sayValue(role)}: ${sayValue(isRecord(content) && content.text ? content.text : content)}`
}

const WARNINGS = {
  'not-encrypted': 'The connection is not encrypted.',
  'look-alike-letters':
    'The host name contains letters that look like other letters. Compare it with the name you expect.',
  'bare-address': 'The host is an IP address, not a name.',
} as const

/**
 * Asks for consent to open a URL. Shows the whole URL and its host, with warnings, and never opens or fetches it: the user
 * does. The cursor starts on "Decline".
 */
async function askUrl(terminal: Terminal, { url }: ElicitUrlParams, canKeep: boolean): Promise<Given> {
  const link = inspectLink(url)
  if (link === undefined) {
    terminal.say(
      'The server asks you to open a URL that is not safe to open. The request was declined.',
      'error',
    )
    return { kind: 'answer', response: { action: 'decline' } }
  }
  terminal.say(`${link.url}\nhost: ${link.host}`)
  for (const warning of link.warnings) terminal.say(WARNINGS[warning], 'warn')
  const choices: Choice<'decline' | 'accept' | 'later'>[] = [
    { value: 'decline', label: 'Decline' },
    { value: 'accept', label: 'I agree to open it', hint: 'open it yourself, then continue here' },
    ...laterChoice(canKeep),
  ]
  const way = await terminal.choose('Do you want to open this address in your browser?', choices, 'decline')
  return way === 'later' ? { kind: 'later' } : { kind: 'answer', response: { action: way } }
}
