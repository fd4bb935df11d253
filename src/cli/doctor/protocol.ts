/** Checks how a server of 2026-07-28 refuses invalid requests, and its discovery, lists and results. */

import type { Client } from '../../client/client.ts'
import type { ToolRequest } from '../../client/pending.ts'
import { isRecord } from '../../lib/json.ts'
import { encodeHeaderValue, scanParamHeaders } from '../../protocol/common/headers.ts'
import { sayValue } from '../io.ts'
import type { Probe, ProbeReply, ProbeRequest } from './probe.ts'
import { type DoctorFinding, fail, pass, skip, warn } from './report.ts'

const VERSION = '2026-07-28'
const PREFIX = 'io.modelcontextprotocol/'

/** A valid request. */
function validRequest(
  method: string,
  version: string = VERSION,
  params: object = {},
  capabilities: object = {},
): ProbeRequest {
  const _meta = {
    [`${PREFIX}protocolVersion`]: version,
    [`${PREFIX}clientCapabilities`]: capabilities,
    [`${PREFIX}clientInfo`]: CLIENT_INFO,
  }
  return { method, params: { ...params, _meta } }
}

export const CLIENT_INFO = { name: 'rondo doctor', version: '0.1.0' }

function headersOf(method: string, version: string = VERSION): Record<string, string> {
  return { 'MCP-Protocol-Version': version, 'Mcp-Method': method }
}

export async function checkProtocol(probe: Probe): Promise<DoctorFinding[]> {
  const findings = [await checkMethod(probe), await checkMeta(probe), await checkVersion(probe)]
  if (probe.kind === 'stdio') return findings
  return [
    ...findings,
    await checkHeader(probe),
    await checkGet(probe),
    await checkOrigin(probe, validRequest('server/discover'), headersOf('server/discover')),
  ]
}

async function checkMethod(probe: Probe): Promise<DoctorFinding> {
  const reply = await probe.send(validRequest('doctor/unknown'), headersOf('doctor/unknown'))
  return expectError('unknown-method', 'an unknown method', reply, -32601, 404)
}

async function checkMeta(probe: Probe): Promise<DoctorFinding> {
  const reply = await probe.send({ method: 'tools/list', params: {} }, headersOf('tools/list'))
  return expectError('missing-meta', 'a request without _meta', reply, -32602, 400)
}

async function checkVersion(probe: Probe): Promise<DoctorFinding> {
  const version = '1999-01-01'
  const reply = await probe.send(validRequest('tools/list', version), headersOf('tools/list', version))
  const finding = expectError('unknown-version', 'an unknown version', reply, -32022, 400)
  // Over stdio, a server that keeps the revision of its first request still serves its one client.
  if (finding.verdict === 'fail' && probe.kind === 'stdio') return { ...finding, verdict: 'warn' }
  const error = errorOf(reply)
  const data = isRecord(error?.data) ? error.data : {}
  if (finding.verdict !== 'pass' || (Array.isArray(data.supported) && data.requested === version))
    return finding
  return warn(
    'unknown-version',
    'the error does not list the supported versions',
    'Send data.supported and data.requested.',
  )
}

async function checkHeader(probe: Probe): Promise<DoctorFinding> {
  const reply = await probe.send(validRequest('tools/list'), headersOf('prompts/list'))
  return expectError('header-mismatch', 'a header that contradicts the body', reply, -32020, 400)
}

async function checkGet(probe: Probe): Promise<DoctorFinding> {
  const { status, problem } = await probe.visit('GET')
  if (status === 405) return pass('http-get', 'GET is refused with 405')
  if (status === 400 && (await hasSessions(probe))) {
    return pass(
      'http-get',
      'GET is for the sessions of older revisions; without a session it is refused with 400',
    )
  }
  return warn('http-get', `GET returns ${status ?? problem}`, 'Respond to methods other than POST with 405.')
}

/** True if the endpoint also serves older revisions, which use GET and session ids. */
async function hasSessions(probe: Probe): Promise<boolean> {
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: CLIENT_INFO }
  const { headers = {}, message } = await probe.send({ method: 'initialize', params })
  const session = headers['mcp-session-id']
  if (typeof session !== 'string') return isRecord(message?.result)
  await probe.visit('DELETE', { 'Mcp-Session-Id': session, 'MCP-Protocol-Version': '2025-11-25' })
  return true
}

/**
 * A page of another site must not reach a server on this machine (DNS rebinding). `request` must be one that the server
 * serves without an Origin: a refusal for another reason would prove nothing.
 */
export async function checkOrigin(
  probe: Probe,
  request: ProbeRequest,
  own: Readonly<Record<string, string | undefined>>,
): Promise<DoctorFinding> {
  const plain = await probe.send(request, own)
  if (!isServed(plain)) return skip('foreign-origin', `${request.method} is refused even without an Origin`)
  const foreign = await probe.send(request, { ...own, Origin: 'https://evil.example' })
  if (foreign.status === undefined) return skip('foreign-origin', foreign.problem ?? 'no response')
  if (!isServed(foreign)) return pass('foreign-origin', `a foreign Origin is refused with ${foreign.status}`)
  return fail(
    'foreign-origin',
    'a request with a foreign Origin is served',
    'Check the Origin header, and refuse foreign origins with 403.',
  )
}

function isServed(reply: ProbeReply): boolean {
  const { status, message } = reply
  return status !== undefined && status < 400 && message !== undefined && errorOf(reply) === undefined
}

export function errorOf({ message }: ProbeReply): Readonly<Record<string, unknown>> | undefined {
  return isRecord(message?.error) ? message.error : undefined
}

/** `status` is compared only over HTTP. */
export function expectError(
  id: string,
  what: string,
  reply: ProbeReply,
  code: number,
  status: number,
): DoctorFinding {
  const error = errorOf(reply)
  if (reply.problem !== undefined) return warn(id, `${what}: ${reply.problem}`, `Respond with error ${code}.`)
  if (error === undefined) return fail(id, `${what} is not refused`, `Respond with error ${code}.`)
  if (error.code !== code)
    return warn(id, `${what} returns error ${sayValue(error.code)}`, `Respond with error ${code}.`)
  if (reply.status !== undefined && reply.status !== status) {
    return warn(id, `${what} returns HTTP ${reply.status}`, `Respond with HTTP ${status}.`)
  }
  return pass(id, `${what} is refused with ${code}`)
}

export function checkIdentity({ server, protocolVersion }: Client): DoctorFinding[] {
  const kinds = Object.keys(server.capabilities).join(', ') || 'none'
  const named = server.name !== undefined
  return [
    pass('era', `the server speaks ${protocolVersion}`),
    pass('capabilities', kinds),
    named
      ? pass('identity', `its name is "${server.name}" ${server.version}`)
      : warn('identity', 'the server sends no name', 'Send serverInfo in _meta of every result.'),
  ]
}

export async function checkLists({ server }: Client, probe: Probe): Promise<DoctorFinding[]> {
  if (server.capabilities.tools === undefined) return [skip('tools', 'the server has no tools')]
  const { message, problem } = await probe.send(validRequest('tools/list'), headersOf('tools/list'))
  const result = message?.result
  if (!isRecord(result) || !Array.isArray(result.tools)) {
    const asks = isRecord(result) && result.resultType === 'input_required'
    const detail = asks
      ? 'tools/list asks for input, which only tools/call, prompts/get and resources/read may do'
      : `tools/list returns no list${problem ? `: ${problem}` : ''}`
    return [fail('tools', detail, 'Return { tools: […] }.')]
  }
  return [checkResult(result), checkTools(result.tools)]
}

/** Checks the type of a call's result. A client treats a result without a type as complete, and never asks its questions. */
export async function checkCall(
  probe: Probe,
  { name, arguments: args }: ToolRequest,
): Promise<DoctorFinding[]> {
  const capabilities = { elicitation: { form: {}, url: {} } }
  const request = validRequest('tools/call', undefined, { name, arguments: args ?? {} }, capabilities)
  const { message } = await probe.send(request, {
    ...headersOf('tools/call'),
    'Mcp-Name': encodeHeaderValue(name),
  })
  const result = message?.result
  if (!isRecord(result)) return []
  const { resultType, inputRequests, requestState } = result
  if (typeof resultType === 'string') return [pass('call-result', `${name} returns ${resultType}`)]
  const asks = inputRequests !== undefined || requestState !== undefined
  const detail = `the result of ${name} has no resultType${asks ? ' but asks for input' : ''}`
  const advice = 'Send resultType in every result: "complete", or "input_required" if it asks.'
  return [(asks ? fail : warn)('call-result', detail, advice)]
}

function checkResult({ resultType, ttlMs, cacheScope }: Readonly<Record<string, unknown>>): DoctorFinding {
  const missing = [
    ...(resultType === 'complete' ? [] : ['resultType']),
    ...(Number.isInteger(ttlMs) && Number(ttlMs) >= 0 ? [] : ['ttlMs']),
    ...(cacheScope === 'public' || cacheScope === 'private' ? [] : ['cacheScope']),
  ]
  if (missing.length === 0) return pass('results', 'tools/list has resultType, ttlMs and cacheScope')
  return warn(
    'results',
    `tools/list lacks ${missing.join(', ')}`,
    'Add them; clients need them to read and cache the list.',
  )
}

/** How many problems of tools are shown. */
const MAX_PROBLEMS = 20

export function checkTools(tools: readonly unknown[]): DoctorFinding {
  const names = new Set<string>()
  const problems = tools.flatMap((tool) => {
    const before = names.size
    if (isRecord(tool)) names.add(sayValue(tool.name))
    return problemsOf(tool, names.size === before)
  })
  if (problems.length === 0) return pass('tools', `${tools.length} tools with valid names and schemas`)
  return warn(
    'tools',
    problems.slice(0, MAX_PROBLEMS).join('; '),
    'Clients ignore such tools, or cannot tell them apart.',
  )
}

function problemsOf(tool: unknown, repeated: boolean): string[] {
  if (!isRecord(tool)) return ['an entry is not a tool']
  const { inputSchema } = tool
  const name = sayValue(tool.name)
  const scan = isRecord(inputSchema) ? scanParamHeaders(inputSchema) : undefined
  return [
    ...(/^[A-Za-z0-9_.-]{1,128}$/.test(name)
      ? []
      : [`the name ${JSON.stringify(tool.name)} is not portable`]),
    ...(repeated ? [`${name} is listed twice`] : []),
    ...(isRecord(inputSchema) && inputSchema.type === 'object'
      ? []
      : [`${name}: inputSchema is not of type object`]),
    ...(scan?.kind === 'bad' ? [`${name}: ${scan.problem}`] : []),
  ]
}
