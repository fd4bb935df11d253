/** `rondo call`, `rondo prompt` and `rondo read`: make a request and answer the questions of the server. */

import { type Command, noTool, usageError } from '../command-line.ts'
import { CALL_OPTIONS, openSession } from '../session.ts'
import { takeTarget } from '../target.ts'
import { readArgs, readJsonObject, splitWord } from '../typed-args.ts'

export const callCommand: Command = {
  name: 'call',
  usage: '<server> <tool> [name=value …]',
  summary: 'calls a tool; asks you what the server asks',
  details: [
    'Values are converted to the types in the tool’s schema. name:=json passes a value as JSON, and a.b=1 sets a property',
    'of an object. Without a terminal, or with --detach, a call that needs input becomes pending: its id is printed, and',
    '"rondo answer" or "rondo resume" continues it later, in another process.',
  ],
  options: {
    args: { type: 'string', value: 'FILE|-', help: 'arguments as a JSON object; name=value overrides them' },
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
