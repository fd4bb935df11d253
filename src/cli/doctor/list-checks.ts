/** Looks at what the server says of itself: discovery, and its lists. */

import type { Client } from '../../client/client.ts'
import { isRecord } from '../../lib/is-record.ts'
import { scanParamHeaders } from '../../protocol/param-header.ts'
import { type Finding, pass, skip, warn } from './finding.ts'
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
    return [
      warn(
        'tools',
        `tools/list gives no list${problem ? `: ${problem}` : ''}`,
        'Answer with { tools: […] }.',
      ),
    ]
  }
  return [checkResult(result), checkTools(result.tools)]
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
