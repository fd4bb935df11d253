/** Finds a tool that asks, and has the state of its rounds examined. */

import type { Client } from '../../client/client.ts'
import type { ToolRequest } from '../../client/flow-request.ts'
import type { Mode } from '../../client/negotiate.ts'
import { isRecord } from '../../lib/is-record.ts'
import type { Tool } from '../../protocol/result.ts'
import type { Invocation } from '../command.ts'
import { usageError } from '../command-error.ts'
import { openConnection } from '../connection.ts'
import type { NamedTarget } from '../target.ts'
import { readArgs } from '../typed-args.ts'
import { type Finding, skip } from './finding.ts'
import { begin } from './patient.ts'
import { checkState } from './state-checks.ts'

export async function examineState(
  invocation: Invocation,
  target: NamedTarget,
  client: Client,
  words: readonly string[],
): Promise<Finding[]> {
  const { io, options } = invocation
  const tools =
    client.server.capabilities.tools === undefined ? [] : await client.listTools({ signal: io.signal })
  const tool = await chooseTool(invocation, client, tools)
  if (tool === undefined)
    return [skip('state', 'no tool to examine', 'Name a tool that asks: --tool NAME name=value')]
  const args = readArgs(words, tool.inputSchema)
  const others = options.list('other')
  const seconds = options.number('wait')
  const headers = options.list('other-header')
  const stranger =
    headers.length === 0
      ? undefined
      : await openConnection(io, target, options, {
          headers,
          tasks: false,
          mode: client.protocolVersion as Mode,
        })
  try {
    return await checkState({
      ...{ client, tool, signal: io.signal, now: io.now },
      request: { method: 'tools/call', name: tool.name, arguments: args },
      otherTool: findOther(invocation, tools, tool),
      ...(stranger && { otherUser: stranger.client }),
      ...(others.length > 0 && { otherArguments: readArgs(others, tool.inputSchema, args) }),
      ...(seconds !== undefined && { waitMs: seconds * 1000 }),
    })
  } finally {
    await stranger?.close()
  }
}

/** The tool that was named; else the first that says it only reads, needs nothing, and asks. */
async function chooseTool(
  { io, options }: Invocation,
  client: Client,
  tools: readonly Tool[],
): Promise<Tool | undefined> {
  const name = options.text('tool')
  if (name !== undefined) {
    const tool = tools.find((one) => one.name === name)
    if (tool === undefined) throw usageError(`There is no tool "${name}" here`)
    return tool
  }
  for (const tool of tools.filter(isHarmless).slice(0, 5)) {
    const request = requestOf(tool)
    const asked = await begin({ client, request, signal: io.signal }, request)
    if (typeof asked !== 'string') return tool
  }
  return undefined
}

function findOther({ options }: Invocation, tools: readonly Tool[], own: Tool): ToolRequest | undefined {
  const name = options.text('other-tool')
  const tool = tools.find((one) => (name === undefined ? one !== own && isHarmless(one) : one.name === name))
  if (name !== undefined && tool === undefined) throw usageError(`There is no tool "${name}" here`)
  return tool && requestOf(tool)
}

function isHarmless({ annotations, inputSchema }: Tool): boolean {
  const { required } = inputSchema
  const needs = Array.isArray(required) && required.length > 0
  return isRecord(annotations) && annotations.readOnlyHint === true && !needs
}

function requestOf({ name }: Tool): ToolRequest {
  return { method: 'tools/call', name, arguments: {} }
}
