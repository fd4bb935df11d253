/**
 * What `params._meta` of every request says: version, capabilities, who the client is, what it wants to hear.
 *
 * A request without a version claim is of an older dialect or broken: an older one learns which versions are served
 * (-32022), a broken one what is missing (-32602). A version header that disagrees with the claim comes before a
 * version that is not served, and that before a missing header.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/is-record.ts'
import type { Envelope, RequestId } from '../call.ts'
import type { ClientCapabilities, LogLevel } from '../wire.ts'
import { LOG_LEVELS } from '../wire.ts'
import { type HeaderReader, versionHeader } from './headers.ts'
import { CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION } from './meta-key.ts'

type Params = Readonly<Record<string, unknown>>

interface Versions {
  readonly supportedVersions: readonly string[]
  readonly namedVersions?: readonly string[]
}

export function readEnvelope(
  id: RequestId,
  method: string,
  params: Params | undefined,
  headers: HeaderReader | undefined,
  versions: Versions,
): Envelope {
  const meta = params?._meta
  const header = headers === undefined ? undefined : versionHeader(headers)
  if (!isRecord(meta) || meta[PROTOCOL_VERSION] === undefined) {
    throw unclaimed(method, params, header, versions)
  }
  const capabilities = meta[CLIENT_CAPABILITIES]
  const protocolVersion = checkVersion(meta[PROTOCOL_VERSION], header, versions)
  if (headers !== undefined && header === undefined) {
    throw new RondoError('PEER_HEADER', 'The MCP-Protocol-Version header is missing')
  }
  if (!isRecord(capabilities))
    throw new RondoError('PEER_META', `params._meta lacks "${CLIENT_CAPABILITIES}"`)
  return {
    id,
    protocolVersion,
    capabilities: capabilities as ClientCapabilities,
    clientInfo: meta[CLIENT_INFO] === undefined ? undefined : clientInfo(meta[CLIENT_INFO]),
    progressToken: meta.progressToken === undefined ? undefined : progressToken(meta.progressToken),
    logLevel: meta[LOG_LEVEL] === undefined ? undefined : logLevel(meta[LOG_LEVEL]),
    trace: meta.traceparent === undefined ? undefined : trace(meta),
  }
}

function checkVersion(claim: unknown, header: string | undefined, versions: Versions): string {
  if (typeof claim !== 'string') throw new RondoError('PEER_META', `"${PROTOCOL_VERSION}" must be a string`)
  if (header !== undefined && header !== claim) {
    throw new RondoError('PEER_HEADER', `MCP-Protocol-Version does not match "${PROTOCOL_VERSION}"`)
  }
  if (!versions.supportedVersions.includes(claim)) throw unsupported(claim, versions)
  return claim
}

function unclaimed(
  method: string,
  params: Params | undefined,
  header: string | undefined,
  versions: Versions,
): RondoError {
  if (header !== undefined && !versions.supportedVersions.includes(header))
    return unsupported(header, versions)
  if (method !== 'initialize') return new RondoError('PEER_META', `params._meta lacks "${PROTOCOL_VERSION}"`)
  if (header !== undefined) {
    return new RondoError('PEER_HEADER', `initialize does not exist in ${header}, the version of the header`)
  }
  const wanted = params?.protocolVersion
  return unsupported(typeof wanted === 'string' ? wanted : '', versions)
}

function unsupported(requested: string, { supportedVersions, namedVersions }: Versions): RondoError {
  const supported = namedVersions ?? supportedVersions
  return new RondoError('PEER_VERSION', undefined, { data: { supported, requested } })
}

function clientInfo(value: unknown): Envelope['clientInfo'] {
  if (!isRecord(value) || typeof value.name !== 'string' || typeof value.version !== 'string') {
    throw new RondoError('PEER_META', `"${CLIENT_INFO}" must have a name and a version`)
  }
  return value as unknown as Envelope['clientInfo']
}

function progressToken(value: unknown): string | number {
  if (typeof value === 'string' || Number.isSafeInteger(value)) return value as string | number
  throw new RondoError('PEER_META', '"progressToken" must be a string or an integer')
}

function logLevel(value: unknown): LogLevel {
  const level = LOG_LEVELS.find((known) => known === value)
  if (level === undefined) {
    throw new RondoError('PEER_META', `"${LOG_LEVEL}" must be one of ${LOG_LEVELS.join(', ')}`)
  }
  return level
}

function trace(meta: Params): Readonly<Record<string, string>> {
  const found: Record<string, string> = {}
  for (const key of ['traceparent', 'tracestate', 'baggage']) {
    const value = meta[key]
    if (typeof value === 'string') found[key] = value
  }
  return found
}
