/**
 * Checks how a server of 2026-07-28 refuses invalid requests, and its discovery, lists and results. Of a revision that begins with a
 * handshake: how the server opens, keeps and ends a session, and how it refuses invalid requests.
 */

import type { Client, ToolRequest } from 'rondo/client'
import {
  encodeHeaderValue,
  hasRounds,
  hasVersionHeader,
  isRecord,
  LATEST_VERSION,
  SESSION_VERSIONS,
  scanParamHeaders,
} from 'rondo/internal'
import { sayValue } from '../io.ts'
import {
  type CheckId,
  type DoctorFinding,
  fail,
  type Probe,
  type ProbeReply,
  type ProbeRequest,
  pass,
  skip,
  warn,
} from './probe.ts'

const PREFIX = 'io.modelcontextprotocol/'

/** A valid request. */
function validRequest(
  method: string,
  version: string = LATEST_VERSION,
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

const CLIENT_INFO = { name: 'rondo doctor', version: '0.1.0' }

function headersOf(method: string, version: string = LATEST_VERSION): Record<string, string> {
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
  const params = { protocolVersion: SESSION_VERSIONS[0], capabilities: {}, clientInfo: CLIENT_INFO }
  const { headers = {}, message } = await probe.send({ method: 'initialize', params })
  const session = headers['mcp-session-id']
  if (typeof session !== 'string') return isRecord(message?.result)
  await probe.visit('DELETE', { 'Mcp-Session-Id': session, 'MCP-Protocol-Version': SESSION_VERSIONS[0] })
  return true
}

/**
 * A page of another site must not reach a server on this machine (DNS rebinding). `request` must be one that the server
 * serves without an Origin: a refusal for another reason would prove nothing.
 */
async function checkOrigin(
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

function errorOf({ message }: ProbeReply): Readonly<Record<string, unknown>> | undefined {
  return isRecord(message?.error) ? message.error : undefined
}

/** `status` is compared only over HTTP. */
function expectError(
  id: CheckId,
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

/** The number of problems of tools that are shown. */
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

interface OlderExam {
  /** The version both sides speak. */
  readonly version: string
  /** Opens a separate connection. */
  open(): Promise<Probe>
}

/** A session that the probe has opened. */
interface Held {
  readonly probe: Probe
  readonly version: string
  readonly session: string | undefined
  readonly headers: Readonly<Record<string, string | undefined>>
}

export async function checkOlder({ version, open }: OlderExam): Promise<DoctorFinding[]> {
  const probe = await open()
  try {
    const hello = await initialize(probe, version)
    const findings = [checkHandshake(hello, version), await checkNegotiation(open)]
    if (errorOf(hello) !== undefined || hello.problem !== undefined) return findings
    const held = hold(probe, version, hello)
    await probe.notify({ method: 'notifications/initialized' }, held.headers)
    return [...findings, ...(await checkRequests(held)), ...(await checkHttp(held))]
  } finally {
    await probe.close()
  }
}

function initialize(probe: Probe, protocolVersion: string): Promise<ProbeReply> {
  const params = { protocolVersion, capabilities: {}, clientInfo: CLIENT_INFO }
  return probe.send({ method: 'initialize', params })
}

function hold(probe: Probe, version: string, { headers = {} }: ProbeReply): Held {
  const id = headers['mcp-session-id']
  const session = typeof id === 'string' ? id : undefined
  const named = hasVersionHeader(version) ? { 'MCP-Protocol-Version': version } : {}
  return { probe, version, session, headers: { ...named, ...(session && { 'Mcp-Session-Id': session }) } }
}

function resultOf({ message }: ProbeReply): Readonly<Record<string, unknown>> | undefined {
  return isRecord(message?.result) ? message.result : undefined
}

function checkHandshake(reply: ProbeReply, version: string): DoctorFinding {
  const result = resultOf(reply)
  if (result?.protocolVersion === version && isRecord(result.serverInfo) && isRecord(result.capabilities)) {
    return pass('handshake', `initialize agrees on ${version}`)
  }
  const advice = 'Return protocolVersion, capabilities and serverInfo from initialize.'
  return fail('handshake', `initialize in ${version} returns ${sayReply(reply)}`, advice)
}

/** For an unknown version, the server must offer one that it speaks. */
async function checkNegotiation(open: () => Promise<Probe>): Promise<DoctorFinding> {
  const unknown = '1999-01-01'
  const probe = await open()
  try {
    const reply = await initialize(probe, unknown)
    const offered = resultOf(reply)?.protocolVersion
    if (typeof offered === 'string' && offered !== unknown) {
      const { session, headers } = hold(probe, offered, reply)
      if (session !== undefined) await probe.visit('DELETE', headers)
      return pass('version-negotiation', `for an unknown version the server offers ${offered}`)
    }
    const advice = 'Return a version that the server speaks from initialize; the client decides.'
    if (offered === unknown) return fail('version-negotiation', `the server agrees to ${unknown}`, advice)
    return warn('version-negotiation', `an unknown version returns ${sayReply(reply)}`, advice)
  } finally {
    await probe.close()
  }
}

async function checkRequests({ probe, headers }: Held): Promise<DoctorFinding[]> {
  const ping = await probe.send({ method: 'ping' }, headers)
  const unknown = await probe.send({ method: 'doctor/unknown' }, headers)
  const list = await probe.send({ method: 'tools/list' }, headers)
  const { tools } = resultOf(list) ?? {}
  return [
    resultOf(ping) === undefined
      ? fail('ping', `ping returns ${sayReply(ping)}`, 'Return an empty result from ping.')
      : pass('ping', 'works'),
    expectError('unknown-method', 'an unknown method', { ...unknown, status: undefined }, -32601, 200),
    Array.isArray(tools) ? checkTools(tools) : skip('tools', `tools/list returns ${sayReply(list)}`),
  ]
}

async function checkHttp(held: Held): Promise<DoctorFinding[]> {
  const { probe, headers, version } = held
  if (probe.kind === 'stdio') return []
  const wrong = { ...headers, 'MCP-Protocol-Version': '1999-01-01' }
  const header = await probe.send({ method: 'tools/list' }, wrong)
  return [
    ...(hasVersionHeader(version)
      ? [expectStatus('version-header', 'an unknown MCP-Protocol-Version', header, 400)]
      : []),
    await checkOrigin(probe, { method: 'ping' }, headers),
    ...(await checkSession(held)),
  ]
}

async function checkSession({ probe, headers, session, version }: Held): Promise<DoctorFinding[]> {
  if (session === undefined) return [skip('session', 'the server has no sessions')]
  const ping = (id: string | undefined): Promise<ProbeReply> =>
    probe.send({ method: 'ping' }, { ...headers, 'Mcp-Session-Id': id })
  const findings = [
    expectStatus('session', 'a wrong session id', await ping(`${session}0`), 404),
    // With rounds a request needs no session.
    ...(hasRounds(version)
      ? []
      : [expectStatus('session-missing', 'a request without its session id', await ping(undefined), 400)]),
  ]
  const { status } = await probe.visit('DELETE', headers)
  if (status === 405) return [...findings, pass('session-end', 'DELETE is refused with 405')]
  const after = expectStatus('session-end', 'a session ended by DELETE', await ping(session), 404)
  return [...findings, after]
}

function expectStatus(id: CheckId, what: string, reply: ProbeReply, status: number): DoctorFinding {
  if (reply.status === status) return pass(id, `${what} is refused with ${status}`)
  return warn(id, `${what} returns ${sayReply(reply)}`, `Respond with HTTP ${status}.`)
}

function sayReply(reply: ProbeReply): string {
  const error = errorOf(reply)
  if (reply.problem !== undefined) return reply.problem
  if (error !== undefined)
    return `error ${sayValue(error.code)}${reply.status ? `, HTTP ${reply.status}` : ''}`
  return reply.status === undefined ? 'no usable response' : `HTTP ${reply.status}`
}
