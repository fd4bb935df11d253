/** `rondo call`: calls a tool and has its questions answered. */

import { CALL_OPTIONS, openSession } from './call-session.ts'
import type { Command } from './command.ts'
import { noTool, usageError } from './command-error.ts'
import { readJsonObject } from './json-file.ts'
import { takeTarget } from './target.ts'
import { readArgs } from './typed-args.ts'

export const callCommand: Command = {
  name: 'call',
  usage: '<server> <tool> [name=value …]',
  summary: 'calls a tool; asks you what the server asks',
  details: [
    'Values are read as the tool wants them: a number where it takes a number. name:=json gives a value as JSON, a.b=1',
    'reaches into an object. Without a terminal, or with --detach, a call that needs input becomes pending: its id is',
    'printed, and "rondo answer" or "rondo resume" goes on with it, later, in another process.',
  ],
  options: {
    args: { type: 'string', value: 'FILE|-', help: 'arguments as a JSON object; name=value goes on top' },
    ...CALL_OPTIONS,
  },
  async run(invocation) {
    const { io, options } = invocation
    const { target, words } = takeTarget(invocation.words, invocation.rest, io.cwd)
    const [name, ...pairs] = words
    if (name === undefined) throw usageError('Name the tool to call. "rondo tools" lists them')
    const file = options.text('args')
    const base = file === undefined ? {} : await readJsonObject(io, '--args', file)
    const session = await openSession(invocation, target)
    try {
      const tools = await session.client.listTools({ signal: io.signal })
      const tool = tools.find((one) => one.name === name)
      if (tool === undefined) throw noTool(name, tools)
      const args = readArgs(pairs, tool.inputSchema, base)
      return await session.drive({ method: 'tools/call', name, arguments: args })
    } finally {
      await session.close()
    }
  },
}
