/** `rondo prompt`: gets a prompt, and has its questions answered. */

import { CALL_OPTIONS, openSession } from './call-session.ts'
import type { Command } from './command.ts'
import { usageError } from './command-error.ts'
import { takeTarget } from './target.ts'
import { splitWord } from './typed-args.ts'

export const promptCommand: Command = {
  name: 'prompt',
  usage: '<server> <prompt> [name=value …]',
  summary: 'gets a prompt; asks you what the server asks',
  options: CALL_OPTIONS,
  async run(invocation) {
    const { target, words } = takeTarget(invocation.words, invocation.rest, invocation.io.cwd)
    const [name, ...pairs] = words
    if (name === undefined) throw usageError('Name the prompt to get. "rondo prompts" lists them')
    const args = Object.fromEntries(
      pairs.map((pair) => {
        const { name: key, text } = splitWord(pair)
        return [key, text]
      }),
    )
    const session = await openSession(invocation, target)
    try {
      return await session.drive({ method: 'prompts/get', name, arguments: args })
    } finally {
      await session.close()
    }
  },
}
