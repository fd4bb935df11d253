/** `rondo resume`: goes on with a pending call, asking what is still open. */

import { openSession, openStore, RESUME_OPTIONS, targetOf } from './call-session.ts'
import type { Command } from './command.ts'
import { usageError } from './command-error.ts'

export const resumeCommand: Command = {
  name: 'resume',
  usage: '<id>',
  summary: 'goes on with a pending call; asks you what is open',
  options: RESUME_OPTIONS,
  async run(invocation) {
    const [start, ...others] = invocation.words
    if (start === undefined || others.length > 0) {
      throw usageError('Name one pending call by its id. "rondo pending" lists them')
    }
    const store = openStore(invocation)
    const id = store.find(start)
    const release = store.claim(id)
    try {
      const call = store.load(id)
      const session = await openSession(invocation, targetOf(invocation, call.target), call)
      try {
        return await session.drive(call.pending.request, call.pending)
      } finally {
        await session.close()
      }
    } finally {
      release()
    }
  },
}
