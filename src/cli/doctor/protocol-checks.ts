/** Sends what the protocol says must be refused, and looks at how it is. */

import { isRecord } from '../../lib/is-record.ts'
import { type Finding, fail, pass, skip, warn } from './finding.ts'
import type { Probe, ProbeRequest, Reply } from './probe.ts'

const VERSION = '2026-07-28'
const PREFIX = 'io.modelcontextprotocol/'

/** A request as it should be. */
export function proper(method: string, version: string = VERSION): ProbeRequest {
  const _meta = {
    [`${PREFIX}protocolVersion`]: version,
    [`${PREFIX}clientCapabilities`]: {},
    [`${PREFIX}clientInfo`]: { name: 'rondo doctor', version: '0.1.0' },
  }
  return { method, params: { _meta } }
}

export function headersOf(method: string, version: string = VERSION): Record<string, string> {
  return { 'MCP-Protocol-Version': version, 'Mcp-Method': method }
}

export async function checkProtocol(probe: Probe): Promise<Finding[]> {
  const findings = [await checkMethod(probe), await checkMeta(probe), await checkVersion(probe)]
  if (probe.kind === 'stdio') return findings
  return [
    ...findings,
    await checkHeader(probe),
    await checkGet(probe),
    await checkOrigin(probe, proper('tools/list'), headersOf('tools/list')),
  ]
}

async function checkMethod(probe: Probe): Promise<Finding> {
  const reply = await probe.send(proper('doctor/unknown'), headersOf('doctor/unknown'))
  return expectError('unknown-method', 'an unknown method', reply, -32601, 404)
}

async function checkMeta(probe: Probe): Promise<Finding> {
  const reply = await probe.send({ method: 'tools/list', params: {} }, headersOf('tools/list'))
  return expectError('missing-meta', 'a request without _meta', reply, -32602, 400)
}

async function checkVersion(probe: Probe): Promise<Finding> {
  const version = '1999-01-01'
  const reply = await probe.send(proper('tools/list', version), headersOf('tools/list', version))
  const finding = expectError('unknown-version', 'an unknown version', reply, -32022, 400)
  const error = errorOf(reply)
  const data = isRecord(error?.data) ? error.data : {}
  if (finding.verdict !== 'pass' || (Array.isArray(data.supported) && data.requested === version))
    return finding
  return warn('unknown-version', 'the error names no versions', 'Give data.supported and data.requested.')
}

async function checkHeader(probe: Probe): Promise<Finding> {
  const reply = await probe.send(proper('tools/list'), headersOf('prompts/list'))
  return expectError('header-mismatch', 'a header that contradicts the body', reply, -32020, 400)
}

async function checkGet(probe: Probe): Promise<Finding> {
  const { status, problem } = await probe.visit('GET')
  if (status === 405) return pass('http-get', 'GET is refused with 405')
  return warn('http-get', `GET gets ${status ?? problem}`, 'Answer methods other than POST with 405.')
}

/** A page on another site must not reach a server on this machine (DNS rebinding). */
export async function checkOrigin(
  probe: Probe,
  request: ProbeRequest,
  own: Readonly<Record<string, string | undefined>>,
): Promise<Finding> {
  const { status, problem } = await probe.send(request, { ...own, Origin: 'https://evil.example' })
  if (status === 403) return pass('foreign-origin', 'a foreign Origin is refused with 403')
  if (status !== undefined && status >= 400) {
    return pass('foreign-origin', `a foreign Origin is refused with ${status}`)
  }
  if (status === undefined) return skip('foreign-origin', problem ?? 'no answer')
  return fail(
    'foreign-origin',
    'a request of a foreign page is served',
    'Check Origin and answer others with 403.',
  )
}

export function errorOf({ message }: Reply): Readonly<Record<string, unknown>> | undefined {
  return isRecord(message?.error) ? message.error : undefined
}

/** `status` counts where the reply has one. */
export function expectError(id: string, what: string, reply: Reply, code: number, status: number): Finding {
  const error = errorOf(reply)
  if (reply.problem !== undefined) return warn(id, `${what}: ${reply.problem}`, `Answer with error ${code}.`)
  if (error === undefined) return fail(id, `${what} is not refused`, `Answer with error ${code}.`)
  if (error.code !== code) return warn(id, `${what} gets ${error.code}`, `Answer with error ${code}.`)
  if (reply.status !== undefined && reply.status !== status) {
    return warn(id, `${what} gets HTTP ${reply.status}`, `Answer with HTTP ${status}.`)
  }
  return pass(id, `${what} is refused with ${code}`)
}
