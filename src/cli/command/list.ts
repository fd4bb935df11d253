/** `rondo tools`, `rondo prompts`, `rondo resources`: list what a server offers. */

import type { Client } from '../../client/client.ts'
import type { Answers } from '../../client/question.ts'
import { oneLine } from '../../form/clean-text.ts'
import { isRecord } from '../../lib/json.ts'
import type { Prompt, Tool } from '../../protocol/wire.ts'
import { JSON_OPTION } from '../call-setup.ts'
import { type Command, usageError } from '../command-line.ts'
import { CONNECT_OPTIONS, openConnection } from '../connection.ts'
import { formatTable } from '../format.ts'
import { print, printJson, tell } from '../io.ts'
import { takeTarget } from '../target.ts'

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
