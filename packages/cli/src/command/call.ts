/**
 * `rondo call`, `rondo prompt` and `rondo read`: make a request and answer the questions of the server. `rondo tools`, `rondo prompts`,
 * `rondo resources`: list what a server offers.
 */

import type { Answers, Client, Prompt, Tool } from 'rondo/client'
import { isRecord, oneLine } from 'rondo/internal'
import { CALL_OPTIONS, JSON_OPTION, openDriver } from '../call-setup.ts'
import { type Command, noTool, usageError } from '../command-line.ts'
import { CONNECT_OPTIONS, openConnection } from '../connection.ts'
import { formatTable, print, printJson, tell } from '../io.ts'
import { readArgs, readJsonObject, splitWord, takeTarget } from '../words.ts'

export const callCommand: Command = {
  name: 'call',
  usage: '<server> <tool> [name=value …]',
  summary: 'calls a tool; you answer the server’s questions',
  details: [
    'Values are converted to the types in the tool’s schema. `name:=json` passes a value as JSON, and `a.b=1` sets a property of an object. Write a list as `a,b`, or repeat the name.',
    'Without a terminal, or with `--detach`, a call that needs input becomes pending: its id is printed, and `rondo answer` or `rondo resume` continues it later, in another process. A task that is left like this begins at once: the command asks for its state, which shows the server that the id arrived.',
    'In the file of `--answers`, the value of a key is the content of its form (`{ "field": value }`), one of the words `"accept"`, `"decline"`, `"cancel"`, or a whole result object. Values are converted as the form says.',
    'Servers of 2025-11-25 and older keep the call open while they ask, so it cannot become pending. Their questions have no keys: use the whole message, or `question-1`, `question-2` … in the order of asking. A question without an answer is cancelled, the message is in `unanswered`, and the exit code is 4.',
  ],
  see: 'docs/hosts/later.md',
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

interface Listing {
  /** The output of `--json`. */
  readonly json: Record<string, unknown>
  readonly rows: readonly (readonly string[])[]
}

function listCommand(
  name: string,
  what: string,
  list: (client: Client, signal: AbortSignal) => Promise<Listing>,
): Command {
  return {
    name,
    usage: '<server>',
    summary: `lists the ${what} of a server`,
    options: { ...JSON_OPTION, ...CONNECT_OPTIONS },
    async run({ io, words: given, rest, options }) {
      const { target, words } = takeTarget(given, rest, io.cwd)
      if (words.length > 0) throw usageError(`Unexpected argument "${words[0]}"`)
      const { client, close } = await openConnection(io, target, options, { answers: UNASKED })
      try {
        const { json, rows } = await list(client, io.signal)
        if (options.flag('json')) printJson(io, { server: serverOf(client), ...json })
        else if (rows.length > 0)
          print(io, formatTable(rows, io.stdout.isTTY ? io.stdout.columns : undefined))
        else tell(io, `The server has no ${what}.`)
        return 'done'
      } finally {
        await close()
      }
    },
  }
}

/**
 * Declares the capabilities that a call declares, since a server may hide tools that a client cannot use. Questions are
 * cancelled: a list has none.
 */
const UNASKED: Answers = { elicitation: async () => ({ action: 'cancel' }) }

function serverOf({ server, protocolVersion }: Client): Record<string, unknown> {
  const { target, name, version, title } = server
  return { target, name, version, title, protocolVersion }
}

export const toolsCommand: Command = listCommand('tools', 'tools', async (client, signal) => {
  const tools = has(client, 'tools') ? await client.listTools({ signal }) : []
  return { json: { tools }, rows: tools.map((tool) => [oneLine(tool.name), argumentsOf(tool), about(tool)]) }
})

export const promptsCommand: Command = listCommand('prompts', 'prompts', async (client, signal) => {
  const prompts = has(client, 'prompts') ? await client.listPrompts({ signal }) : []
  return {
    json: { prompts },
    rows: prompts.map((one) => [oneLine(one.name), promptArguments(one), about(one)]),
  }
})

export const resourcesCommand: Command = listCommand('resources', 'resources', async (client, signal) => {
  const there = has(client, 'resources')
  const resources = there ? await client.listResources({ signal }) : []
  const templates = there ? await client.listResourceTemplates({ signal }) : []
  const rows = [
    ...resources.map((one) => [oneLine(one.uri), oneLine(one.name), about(one)]),
    ...templates.map((one) => [oneLine(one.uriTemplate), oneLine(one.name), about(one)]),
  ]
  return { json: { resources, resourceTemplates: templates }, rows }
})

function has({ server }: Client, capability: string): boolean {
  return server.capabilities[capability] !== undefined
}

function argumentsOf({ inputSchema }: Tool): string {
  const { properties, required } = inputSchema
  if (!isRecord(properties)) return ''
  const needed = new Set(Array.isArray(required) ? required : [])
  return Object.keys(properties)
    .map((name) => (needed.has(name) ? `${oneLine(name)}=…` : `[${oneLine(name)}=…]`))
    .join(' ')
}

function promptArguments({ arguments: args = [] }: Prompt): string {
  return args
    .map(({ name, required }) => (required ? `${oneLine(name)}=…` : `[${oneLine(name)}=…]`))
    .join(' ')
}

function about(entry: { readonly title?: string; readonly description?: string }): string {
  return oneLine(entry.description ?? entry.title ?? '')
}
