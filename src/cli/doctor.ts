/**
 * `rondo doctor`: examines any MCP server: what it speaks, how it refuses what it must refuse, and what an attacker can do
 * with its `requestState`.
 */

import type { Client } from '../client/client.ts'
import type { ToolRequest } from '../client/flow-request.ts'
import { RondoError } from '../errors.ts'
import { isRecord } from '../lib/is-record.ts'
import type { Tool } from '../protocol/result.ts'
import { JSON_OPTION } from './call-session.ts'
import type { Command, Invocation } from './command.ts'
import { usageError } from './command-error.ts'
import { CONNECT_OPTIONS, openConnection, readHeaders, toTarget } from './connection.ts'
import { type Finding, fail, skip } from './doctor/finding.ts'
import { checkIdentity, checkLists } from './doctor/list-checks.ts'
import { begin } from './doctor/patient.ts'
import { type Probe, probeHttp, probeStdio } from './doctor/probe.ts'
import { checkProtocol } from './doctor/protocol-checks.ts'
import { printFindings } from './doctor/report.ts'
import { checkState } from './doctor/state-checks.ts'
import { type NamedTarget, takeTarget } from './target.ts'
import { readArgs } from './typed-args.ts'

export const doctorCommand: Command = {
  name: 'doctor',
  usage: '<server> [--tool NAME name=value …]',
  summary: 'examines a server: protocol, and what can be done to its state',
  details: [
    'The state is examined on a tool that asks. Calls are made with it, also with other arguments, and every question is',
    'declined: use a test system. Without --tool, tools that say they only read are tried.',
  ],
  options: {
    tool: { type: 'string', value: 'NAME', help: 'a tool that asks; its arguments follow the server' },
    other: {
      type: 'string',
      multiple: true,
      value: 'NAME=VALUE',
      help: 'other valid arguments for that tool',
    },
    'other-tool': { type: 'string', value: 'NAME', help: 'another tool that asks' },
    'other-header': { type: 'string', multiple: true, value: 'NAME:VALUE', help: 'headers of another user' },
    wait: { type: 'string', value: 'SECONDS', help: 'uses a state this old, to see whether it expired' },
    strict: { type: 'boolean', help: 'counts a warning as a fault' },
    ...JSON_OPTION,
    ...CONNECT_OPTIONS,
  },
  async run(invocation) {
    const { io, options } = invocation
    const { target, words } = takeTarget(invocation.words, invocation.rest, io.cwd)
    if (words.length > 0 && options.text('tool') === undefined)
      throw usageError(`Whose arguments? Give --tool NAME`)
    const findings = await examine(invocation, target, words)
    printFindings(io, findings, options.flag('json'))
    const bad = options.flag('strict') ? ['fail', 'warn'] : ['fail']
    return findings.some(({ verdict }) => bad.includes(verdict)) ? 'failed' : 'done'
  },
}

/** States of rounds are what is examined. */
const EXAMINED = '2026-07-28'

async function examine(
  invocation: Invocation,
  target: NamedTarget,
  words: readonly string[],
): Promise<Finding[]> {
  const { io, options } = invocation
  io.status.start('examining')
  try {
    const { client, close } = await openConnection(io, target, options, { tasks: false, mode: EXAMINED })
    const probe = openProbe(invocation, target)
    try {
      return [
        ...checkIdentity(client),
        ...(await checkProtocol(probe)),
        ...(await checkLists(client, probe)),
        ...(await examineState(invocation, target, client, words)),
      ]
    } finally {
      await Promise.all([probe.close(), close()])
    }
  } catch (error) {
    if (!(error instanceof RondoError) || error.code !== 'PEER_ERA') throw error
    return [fail('era', error.message, 'Serve revision 2026-07-28; older ones are not examined.')]
  } finally {
    io.status.stop()
  }
}

function openProbe({ io, options }: Invocation, target: NamedTarget): Probe {
  const found = toTarget(io, target, options, () => {})
  return typeof found === 'string' ? probeHttp(found, readHeaders(options.list('header'))) : probeStdio(found)
}

async function examineState(
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
      : await openConnection(io, target, options, { headers, tasks: false, mode: EXAMINED })
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
