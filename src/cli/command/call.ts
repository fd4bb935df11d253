/** `rondo call`, `rondo prompt` and `rondo read`: make a request and answer the questions of the server. */

import { CALL_OPTIONS, openDriver } from '../call-setup.ts'
import { type Command, noTool, usageError } from '../command-line.ts'
import { takeTarget } from '../target.ts'
import { readArgs, readJsonObject, splitWord } from '../typed-args.ts'

export const callCommand: Command = {
  name: 'call',
  usage: '<server> <tool> [name=value …]',
  summary: 'calls a tool; you answer the server’s questions',
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
    const driver = await openDriver(invocation, target)
    try {
      const tools = await driver.client.listTools({ signal: io.signal })
      const tool = tools.find((one) => one.name === name)
      if (tool === undefined) throw noTool(name, tools)
      const args = readArgs(pairs, tool.inputSchema, base)
      return await driver.drive({ method: 'tools/call', name, arguments: args })
    } finally {
      await driver.close()
    }
  },
}

export const promptCommand: Command = {
  name: 'prompt',
  usage: '<server> <prompt> [name=value …]',
  summary: 'gets a prompt; you answer the server’s questions',
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
    const driver = await openDriver(invocation, target)
    try {
      return await driver.drive({ method: 'prompts/get', name, arguments: args })
    } finally {
      await driver.close()
    }
  },
}

export const readCommand: Command = {
  name: 'read',
  usage: '<server> <uri>',
  summary: 'reads a resource; you answer the server’s questions',
  options: CALL_OPTIONS,
  async run(invocation) {
    const { target, words } = takeTarget(invocation.words, invocation.rest, invocation.io.cwd)
    const [uri, ...others] = words
    if (uri === undefined || others.length > 0) throw usageError('Name one resource by its URI')
    const driver = await openDriver(invocation, target)
    try {
      return await driver.drive({ method: 'resources/read', uri })
    } finally {
      await driver.close()
    }
  },
}
