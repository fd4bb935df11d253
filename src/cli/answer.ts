/** `rondo answer`: answers a pending call from the command line, and goes on once nothing is open. */

import { answer, openQuestions, type PendingCall } from '../client/pending.ts'
import type { InputResponse } from '../protocol/wire.ts'
import { readAnswerWords, readKeys } from './answer-words.ts'
import { openSession, openStore, RESUME_OPTIONS, targetOf } from './call-session.ts'
import type { Command, Invocation } from './command.ts'
import { CommandError, usageError } from './command-error.ts'
import { printPending } from './print-call.ts'

export const answerCommand: Command = {
  name: 'answer',
  usage: '<id> [key.field=value …]',
  summary: 'answers a pending call, and goes on with it',
  details: [
    'key.field=value fills in a field of a form. field=value is enough where one question is open, key=value where the',
    'form has one field. key=accept agrees to open a URL, or approves a form without fields; key=decline says no.',
    'key:=json gives a whole result. Nothing is sent while a question is open.',
  ],
  options: {
    decline: { type: 'boolean', help: 'says no: to the keys named, or to all that is open' },
    cancel: { type: 'boolean', help: 'dismisses: the keys named, or all that is open' },
    hold: { type: 'boolean', help: 'keeps the answers and sends nothing yet' },
    ...RESUME_OPTIONS,
  },
  async run(invocation) {
    const { io, options } = invocation
    const [start, ...words] = invocation.words
    if (start === undefined) throw usageError('Name the pending call by its id. "rondo pending" lists them')
    const store = openStore(invocation)
    const id = store.find(start)
    const release = store.claim(id)
    try {
      const call = store.load(id)
      const pending = addAnswers(call.pending, readGiven(invocation, words, call.pending))
      store.save({ ...call, pending })
      const open = openQuestions(pending).length
      if (open > 0 || options.flag('hold')) return printPending(io, options.flag('json'), pending)
      const session = await openSession(invocation, targetOf(invocation, call.target), call)
      try {
        return await session.drive(pending.request, pending)
      } finally {
        await session.close()
      }
    } finally {
      release()
    }
  },
}

function readGiven(
  { options }: Invocation,
  words: readonly string[],
  pending: PendingCall,
): Map<string, InputResponse> {
  const [decline, cancel] = [options.flag('decline'), options.flag('cancel')]
  if (decline && cancel) throw usageError('--decline and --cancel are two different answers')
  if (!decline && !cancel) {
    if (words.length === 0) throw usageError('Give answers as key.field=value, or --decline, or --cancel')
    return readAnswerWords(words, pending)
  }
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

function addAnswers(pending: PendingCall, given: ReadonlyMap<string, InputResponse>): PendingCall {
  return [...given].reduce((now, [key, response]) => answer(now, key, response), pending)
}
