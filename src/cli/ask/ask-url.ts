/**
 * Asks for consent to open a URL. Shows all of it and its host apart, warns where a person should look twice, and never
 * opens or fetches anything: whoever agrees opens it themselves. The cursor starts on the no.
 */

import { inspectLink } from '../../client/safe-link.ts'
import type { ElicitUrlParams } from '../../protocol/wire.ts'
import { type Given, laterChoice } from './ask-form.ts'
import type { Choice, Terminal } from './terminal.ts'

const WARNINGS = {
  'not-encrypted': 'The connection is not encrypted.',
  'look-alike-letters': 'The name has letters that can look like others. Compare it with what you expect.',
  'bare-address': 'The host is a bare address, not a name.',
} as const

export async function askUrl(terminal: Terminal, { url }: ElicitUrlParams, canKeep: boolean): Promise<Given> {
  const link = inspectLink(url)
  if (link === undefined) {
    terminal.say('The server wants a URL opened that is not safe to open. It was declined.', 'error')
    return { kind: 'answer', response: { action: 'decline' } }
  }
  terminal.say(`${link.url}\nhost: ${link.host}`)
  for (const warning of link.warnings) terminal.say(WARNINGS[warning], 'warn')
  const choices: Choice<'decline' | 'accept' | 'later'>[] = [
    { value: 'decline', label: 'Decline' },
    { value: 'accept', label: 'I agree to open it', hint: 'open it yourself, then go on here' },
    ...laterChoice(canKeep),
  ]
  const way = await terminal.choose('Do you want to open this address in your browser?', choices, 'decline')
  return way === 'later' ? { kind: 'later' } : { kind: 'answer', response: { action: way } }
}
