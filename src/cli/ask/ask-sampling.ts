/** Lets a person play the model: shows the messages that a server wants answered, and takes a line as the reply. */

import { isRecord } from '../../lib/is-record.ts'
import type { InputResponse, SamplingParams } from '../../protocol/wire.ts'
import type { Terminal } from './terminal.ts'

export async function askSampling(
  terminal: Terminal,
  params: SamplingParams,
): Promise<{ readonly kind: 'answer'; readonly response: InputResponse }> {
  terminal.say(`The server wants a model to answer (at most ${params.maxTokens} tokens).`)
  for (const message of params.messages) terminal.say(sayMessage(message))
  const check = (input: string) =>
    input.trim() === '' ? 'Type the reply; Ctrl-C dismisses the question' : undefined
  const text = await terminal.line('The reply, typed by you in place of a model', '', check)
  const content = { type: 'text', text }
  return { kind: 'answer', response: { role: 'assistant', content, model: 'a person at a terminal' } }
}

function sayMessage(message: unknown): string {
  if (!isRecord(message)) return JSON.stringify(message)
  const { role, content } = message
  const text = isRecord(content) && typeof content.text === 'string' ? content.text : JSON.stringify(content)
  return `${String(role)}: ${text}`
}
