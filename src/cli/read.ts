/** `rondo read`: reads a resource, and has its questions answered. */

import { CALL_OPTIONS, openSession } from './call-session.ts'
import type { Command } from './command.ts'
import { usageError } from './command-error.ts'
import { takeTarget } from './target.ts'

export const readCommand: Command = {
  name: 'read',
  usage: '<server> <uri>',
  summary: 'reads a resource; asks you what the server asks',
  options: CALL_OPTIONS,
  async run(invocation) {
    const { target, words } = takeTarget(invocation.words, invocation.rest, invocation.io.cwd)
    const [uri, ...others] = words
    if (uri === undefined || others.length > 0) throw usageError('Name one resource by its URI')
    const session = await openSession(invocation, target)
    try {
      return await session.drive({ method: 'resources/read', uri })
    } finally {
      await session.close()
    }
  },
}
