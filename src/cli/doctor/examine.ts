/** Finds a tool that asks, and examines the state of its rounds. */

import type { Client } from '../../client/client.ts'
import type { Mode } from '../../client/connect.ts'
import type { ToolRequest } from '../../client/pending.ts'
import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type { Tool } from '../../protocol/wire.ts'
import { type Invocation, noTool, usageError } from '../command-line.ts'
import { openConnection } from '../connection.ts'
import type { NamedTarget } from '../target.ts'
import { readArgs } from '../typed-args.ts'
import { begin } from './patient.ts'
import type { Probe } from './probe.ts'
import { checkCall } from './protocol.ts'
import { attempt, type DoctorFinding, skip } from './report.ts'
import { checkState } from './state.ts'

export interface ExaminedCall {
  readonly invocation: Invocation
  readonly target: NamedTarget
  readonly client: Client
  /** The arguments of the tool, as typed. */
  readonly words: readonly string[]
  /** Reads the raw results of calls, if the revision requires more of them than the client checks. */
  readonly probe?: Probe
}

export async function examineState({
  invocation,
  target,
  client,
  words,
  probe,
}: ExaminedCall): Promise<readonly DoctorFinding[]> {
  const { io, options } = invocation
  const tools = await listTools(invocation, client)
  const tool = await chooseTool(invocation, client, tools)
  if (tool === undefined)
    return [skip('state', 'no tool that asks was found', 'Name a tool that asks: --tool NAME name=value')]
  const args = readArgs(words, tool.inputSchema)
  const request: ToolRequest = { method: 'tools/call', name: tool.name, arguments: args }
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
    const shape = probe === undefined ? [] : await checkCall(probe, request)
    const exam = {
      ...{ client, tool, request, signal: io.signal, now: io.now },
      otherTool: findOther(invocation, tools, tool),
      ...(stranger && { otherUser: stranger.client }),
      ...(others.length > 0 && { otherArguments: readArgs(others, tool.inputSchema, args) }),
      ...(seconds !== undefined && { waitMs: seconds * 1000 }),
    }
    return [...shape, ...(await attempt('state', io.signal, () => checkState(exam)))]
  } finally {
    await stranger?.close()
  }
}

/** Returns an empty list if the tools cannot be listed; another check reports that. */
async function listTools({ io }: Invocation, client: Client): Promise<readonly Tool[]> {
  if (client.server.capabilities.tools === undefined) return []
  try {
    return await client.listTools({ signal: io.signal })
  } catch (error) {
    if (io.signal.aborted || !(error instanceof RondoError)) throw error
    return []
  }
}

/** The tool with this name. A server that lists no tools may still have it. */
function namedTool(tools: readonly Tool[], name: string): Tool {
  if (tools.length === 0) return { name, inputSchema: { type: 'object' } }
  const tool = tools.find((one) => one.name === name)
  if (tool === undefined) throw noTool(name, tools)
  return tool
}

/** The tool that was named, or else the first read-only one that needs no arguments and asks. */
async function chooseTool(
  { io, options }: Invocation,
  client: Client,
  tools: readonly Tool[],
): Promise<Tool | undefined> {
  const name = options.text('tool')
  if (name !== undefined) return namedTool(tools, name)
  for (const tool of tools.filter(isHarmless).slice(0, 5)) {
    const request = requestOf(tool)
    const asked = await begin({ client, request, signal: io.signal }, request)
    if (typeof asked !== 'string') return tool
  }
  return undefined
}

function findOther({ options }: Invocation, tools: readonly Tool[], own: Tool): ToolRequest | undefined {
  const name = options.text('other-tool')
  const words = options.list('other-tool-arg')
  if (name === undefined) {
    if (words.length > 0) throw usageError('Name the tool that these arguments are for: --other-tool NAME')
    const tool = tools.find((one) => one !== own && isHarmless(one))
    return tool && requestOf(tool)
  }
  const tool = namedTool(tools, name)
  return { method: 'tools/call', name, arguments: readArgs(words, tool.inputSchema) }
}

function isHarmless({ annotations, inputSchema }: Tool): boolean {
  const { required } = inputSchema
  const needs = Array.isArray(required) && required.length > 0
  return isRecord(annotations) && annotations.readOnlyHint === true && !needs
}

function requestOf({ name }: Tool): ToolRequest {
  return { method: 'tools/call', name, arguments: {} }
}
