/**
 * Examines a server of a revision that begins with a handshake: how it opens, keeps and ends a session, and how it refuses
 * invalid requests.
 */

import { hasRounds } from '../../client/dialect.ts'
import { isRecord } from '../../lib/json.ts'
import { sayValue } from '../io.ts'
import type { Probe, ProbeReply } from './probe.ts'
import { CLIENT_INFO, checkOrigin, checkTools, errorOf, expectError } from './protocol.ts'
import { type DoctorFinding, fail, pass, skip, warn } from './report.ts'

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
  const named = version >= '2025-06-18' ? { 'MCP-Protocol-Version': version } : {}
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
    ...(version < '2025-06-18'
      ? []
      : [expectStatus('version-header', 'an unknown MCP-Protocol-Version', header, 400)]),
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

function expectStatus(id: string, what: string, reply: ProbeReply, status: number): DoctorFinding {
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
