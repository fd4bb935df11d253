/** `rondo answer`: answers a pending call from the command line, and goes on once nothing is open. */

import { openQuestions } from '../client/pending.ts'
import { openSession, openStore, RESUME_OPTIONS, targetOf } from './call-session.ts'
import type { Command } from './command.ts'
import { usageError } from './command-error.ts'
import { addGiven, hasAnswers, NO_OPTIONS } from './given-answers.ts'
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
    ...NO_OPTIONS,
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
      if (!hasAnswers(options, words))
        throw usageError('Give answers as key.field=value, or --decline, or --cancel')
      const pending = addGiven(options, words, call.pending)
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
