/**
 * Finds out which revision a server speaks, by `server/discover`. A server that names a version we share when it refuses
 * ours is asked once more in that version. Servers of an older era do not know the method: for them this ends with
 * PEER_ERA, and this is the place where a dialect with a handshake of its own takes over.
 */

import { RondoError } from '../errors.ts'
import { isRecord } from '../lib/is-record.ts'
import type { Received, WireError } from '../protocol/received.ts'
import type { Discovery } from '../protocol/result.ts'
import { chooseDialect, DIALECTS } from './dialect.ts'
import type { Peer, SendOptions } from './peer.ts'
import { PeerError } from './peer-error.ts'

const UNSUPPORTED_VERSION = -32022
/** Statuses with which an endpoint of an older era answers a request it does not know. */
const OLDER_STATUSES = new Set<unknown>([400, 404, 405, 406, 415])

/** Leaves the chosen dialect in the peer. */
export async function negotiate(peer: Peer, options: SendOptions = {}): Promise<Discovery> {
  let received = await discover(peer, options)
  if (received.kind === 'error' && received.error.code === UNSUPPORTED_VERSION) {
    const offered = versionsIn(received.error)
    peer.dialect = chooseDialect(offered) ?? noCommonVersion(offered)
    received = await discover(peer, options)
  }
  if (received.kind === 'error')
    throw isOlder(received.error) ? older(new PeerError(received.error)) : new PeerError(received.error)
  const discovery = received.kind === 'complete' ? peer.dialect.decodeDiscovery(received.result) : undefined
  if (discovery === undefined)
    throw new RondoError('PEER_ANSWER', 'The answer to server/discover is not valid')
  peer.dialect = chooseDialect(discovery.supportedVersions) ?? noCommonVersion(discovery.supportedVersions)
  return discovery
}

async function discover(peer: Peer, options: SendOptions): Promise<Received> {
  try {
    return await peer.send({ kind: 'discover' }, options)
  } catch (error) {
    if (!(error instanceof RondoError)) throw error
    const status = isRecord(error.data) ? error.data.status : undefined
    const silent = peer.transport.kind === 'stdio' && error.code === 'LIMIT_CLIENT_TIMEOUT'
    throw silent || (error.code === 'PEER_HTTP' && OLDER_STATUSES.has(status)) ? older(error) : error
  }
}

/** Any refusal of the method, the envelope or the missing handshake; not the errors of a server that understood. */
function isOlder({ code }: WireError): boolean {
  return (
    code === -32601 || code === -32600 || code === -32602 || code === -32000 || code === UNSUPPORTED_VERSION
  )
}

function versionsIn({ data }: WireError): readonly unknown[] {
  return isRecord(data) && Array.isArray(data.supported) ? data.supported : []
}

function noCommonVersion(offered: readonly unknown[]): never {
  const theirs = offered.filter((one) => typeof one === 'string').join(', ') || 'none it names'
  throw older(undefined, `The server speaks ${theirs}`)
}

function older(cause: unknown, finding = 'The server does not answer server/discover'): RondoError {
  const ours = DIALECTS.map(({ version }) => version).join(', ')
  const text = `${finding}; this client speaks ${ours}. Is this an MCP endpoint of that revision?`
  return new RondoError('PEER_ERA', text, { cause })
}
