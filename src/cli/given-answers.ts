/** The answers on a command line: words, or a no for everything. */

import { answer, type PendingCall } from '../client/pending.ts'
import type { InputResponse } from '../protocol/wire.ts'
import { readAnswerWords, readKeys } from './answer-words.ts'
import { CommandError, usageError } from './command-error.ts'
import type { OptionTable } from './option-table.ts'
import type { Options } from './read-line.ts'

export const NO_OPTIONS: OptionTable = {
  decline: { type: 'boolean', help: 'says no: to the keys named, or to all that is open' },
  cancel: { type: 'boolean', help: 'dismisses: the keys named, or all that is open' },
}

/** Whether the line has answers at all. */
export function hasAnswers(options: Options, words: readonly string[]): boolean {
  return words.length > 0 || options.flag('decline') || options.flag('cancel')
}

/** The call with the answers of the line. */
export function addGiven(options: Options, words: readonly string[], pending: PendingCall): PendingCall {
  const [decline, cancel] = [options.flag('decline'), options.flag('cancel')]
  if (decline && cancel) throw usageError('--decline and --cancel are two different answers')
  const given = decline || cancel ? noTo(pending, words, decline) : readAnswerWords(words, pending)
  return [...given].reduce((now, [key, response]) => answer(now, key, response), pending)
}

function noTo(pending: PendingCall, words: readonly string[], decline: boolean): Map<string, InputResponse> {
  const action = decline ? 'decline' : 'cancel'
  return new Map(
    readKeys(words, pending).map((key) => {
      if (pending.questions[key]?.method === 'elicitation/create') return [key, { action }]
      throw new CommandError(
        'answers',
        `"${key}" is no form and no URL: it cannot be declined, only answered`,
      )
    }),
  )
}
