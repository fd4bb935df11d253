/** Looks at what the server says of itself: discovery, and its lists. */

import type { Client } from '../../client/client.ts'
import type { ToolRequest } from '../../client/flow-request.ts'
import { isRecord } from '../../lib/is-record.ts'
import { encodeHeaderValue } from '../../protocol/header-value.ts'
import { scanParamHeaders } from '../../protocol/param-header.ts'
import { type Finding, fail, pass, skip, warn } from './finding.ts'
import type { Probe } from './probe.ts'
import { headersOf, proper } from './protocol-checks.ts'

export function checkIdentity({ server, protocolVersion }: Client): Finding[] {
  const kinds = Object.keys(server.capabilities).join(', ') || 'none'
  const named = server.name !== undefined
  return [
    pass('era', `speaks ${protocolVersion}`),
    pass('capabilities', kinds),
    named
      ? pass('identity', `calls itself "${server.name}" ${server.version}`)
      : warn('identity', 'does not say its name', 'Put serverInfo into _meta of every result.'),
  ]
}

export async function checkLists({ server }: Client, probe: Probe): Promise<Finding[]> {
  if (server.capabilities.tools === undefined) return [skip('tools', 'the server has no tools')]
  const { message, problem } = await probe.send(proper('tools/list'), headersOf('tools/list'))
  const result = message?.result
  if (!isRecord(result) || !Array.isArray(result.tools)) {
    const asks = isRecord(result) && result.resultType === 'input_required'
    const detail = asks
      ? 'tools/list asks for input, which only tools/call, prompts/get and resources/read may do'
      : `tools/list returns no list${problem ? `: ${problem}` : ''}`
    return [fail('tools', detail, 'Answer with { tools: […] }.')]
  }
  return [checkResult(result), checkTools(result.tools)]
}

/** What a call says of itself. A client takes a result without a type for the last word, and never asks its questions. */
export async function checkCall(probe: Probe, { name, arguments: args }: ToolRequest): Promise<Finding[]> {
  const capabilities = { elicitation: { form: {}, url: {} } }
  const request = proper('tools/call', undefined, { name, arguments: args ?? {} }, capabilities)
  const { message } = await probe.send(request, {
    ...headersOf('tools/call'),
    'Mcp-Name': encodeHeaderValue(name),
  })
  const result = message?.result
  if (!isRecord(result)) return []
  const { resultType, inputRequests, requestState } = result
  if (typeof resultType === 'string') return [pass('call-result', `${name} answers with ${resultType}`)]
  const asks = inputRequests !== undefined || requestState !== undefined
  const detail = `the result of ${name} has no resultType${asks ? ', although it asks for input' : ''}`
  const advice = 'Put resultType into every result: "complete", or "input_required" where it asks.'
  return [(asks ? fail : warn)('call-result', detail, advice)]
}

function checkResult({ resultType, ttlMs, cacheScope }: Readonly<Record<string, unknown>>): Finding {
  const lacks = [
    ...(resultType === 'complete' ? [] : ['resultType']),
    ...(Number.isInteger(ttlMs) && Number(ttlMs) >= 0 ? [] : ['ttlMs']),
    ...(cacheScope === 'public' || cacheScope === 'private' ? [] : ['cacheScope']),
  ]
  if (lacks.length === 0) return pass('results', 'tools/list has resultType, ttlMs and cacheScope')
  return warn(
    'results',
    `tools/list lacks ${lacks.join(', ')}`,
    'Add them: clients need them to read and to cache.',
  )
}

export function checkTools(tools: readonly unknown[]): Finding {
  const names = tools.map((tool) => (isRecord(tool) ? String(tool.name) : ''))
  const problems = tools.flatMap((tool, i) => problemsOf(tool, names.indexOf(names[i] ?? '') !== i))
  if (problems.length === 0) return pass('tools', `${tools.length} tools, names and schemas are fine`)
  return warn('tools', problems.join('; '), 'Clients leave such tools out, or cannot tell them apart.')
}

function problemsOf(tool: unknown, repeated: boolean): string[] {
  if (!isRecord(tool)) return ['an entry is no tool']
  const { name, inputSchema } = tool
  const scan = isRecord(inputSchema) ? scanParamHeaders(inputSchema) : undefined
  return [
    ...(/^[A-Za-z0-9_.-]{1,128}$/.test(String(name))
      ? []
      : [`the name ${JSON.stringify(name)} is not portable`]),
    ...(repeated ? [`${String(name)} is there twice`] : []),
    ...(isRecord(inputSchema) && inputSchema.type === 'object'
      ? []
      : [`${String(name)}: inputSchema is no object`]),
    ...(scan?.kind === 'bad' ? [`${String(name)}: ${scan.problem}`] : []),
  ]
}
