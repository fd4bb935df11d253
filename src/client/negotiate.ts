/**
 * Finds out which revision a server speaks, and speaks it.
 *
 * `server/discover` comes first. A server that names a version we share when it refuses ours is asked once more in that
 * version. Whatever else a server says to it, in JSON-RPC, shows an older era, and so does HTTP's "not here" or the silence
 * or the end of a process: then the handshake of that era follows, also where the versions it names help nobody. A login, a failing server or an answer that is no
 * message says nothing about eras, and is an error.
 */

import { experimentalOf } from '../drafts/turns/wire.ts'
import { RondoError } from '../errors.ts'
import { isRecord } from '../lib/narrow.ts'
import type { Received, WireError } from '../protocol/reply.ts'
import type { ClientCapabilities, Discovery, ListRootsResult } from '../protocol/wire.ts'
import { chooseDialect, DIALECTS, type Revision, SESSION_VERSIONS, sessionDialect } from './dialect.ts'
import { type Peer, PeerError, type SendOptions } from './peer.ts'
import { openSession } from './session/session.ts'
import type { Transport } from './transport/transport.ts'

/** Which revision to speak; `auto` finds out. */
export type Mode = 'auto' | Revision

export interface Negotiation extends SendOptions {
  readonly mode?: Mode
  /** Milliseconds a process has to answer the first request before it is taken for an older one. */
  readonly silenceMs?: number
  /** Whether an older server may ask in turns. Default true. */
  readonly turns?: boolean
  /** The roots that do not change. */
  readonly roots?: ListRootsResult
  /** Starts the server anew, where it ended at the first request. */
  reopen?(): Promise<Transport>
}

/** What `server/discover` showed. */
type ProbeResult =
  | { readonly kind: 'rounds'; readonly discovery: Discovery }
  | { readonly kind: 'older'; readonly offered?: readonly unknown[]; readonly cause?: RondoError }

const UNSUPPORTED_VERSION = -32022
/** Statuses with which an endpoint of an older era answers a request it does not know. */
const OLDER_STATUSES = new Set<unknown>([400, 404, 405, 406, 415])

/** Leaves the chosen dialect in the peer, and the session where there is one. */
export async function negotiate(peer: Peer, options: Negotiation = {}): Promise<Discovery> {
  const { mode = 'auto' } = options
  if (mode !== 'auto' && mode !== '2026-07-28') return shake(peer, [mode], options)
  const finding = await probe(peer, options)
  if (finding.kind === 'rounds') return finding.discovery
  if (mode !== 'auto') throw older(finding)
  if (finding.cause?.code === 'PEER_GONE' && options.reopen) {
    await peer.transport.close()
    peer.transport = await options.reopen()
  }
  try {
    return await shake(peer, sessionVersions(finding.offered), options)
  } catch (error) {
    if (!(error instanceof RondoError) || !isRefusal(error)) throw error
    // A process that was only slow to start: it knows the first request after all.
    const offered = error instanceof PeerError ? versionsIn(error.peer) : []
    const late = chooseDialect(offered) && (await probe(peer, { ...options, silenceMs: undefined }))
    if (late?.kind === 'rounds') return late.discovery
    throw older({ ...finding, cause: error })
  }
}

/** Those that the server offers, best first. Where it offers none that we know, it may speak any: the draft comes last. */
function sessionVersions(offered: readonly unknown[] = []): readonly Revision[] {
  const shared = SESSION_VERSIONS.filter((one) => offered.includes(one))
  const [draft, ...dated] = SESSION_VERSIONS
  return shared.length > 0 ? shared : [...dated, draft]
}

async function shake(peer: Peer, accepts: readonly Revision[], options: Negotiation): Promise<Discovery> {
  const [version = '2025-11-25'] = accepts
  const hand = {
    version,
    accepts,
    capabilities: declared(peer, options),
    clientInfo: peer.info,
    timeoutMs: options.timeoutMs,
    signal: options.signal,
    nextId: peer.nextId,
  }
  const session = await openSession(peer, hand, options.roots)
  peer.channel = session
  peer.dialect = sessionDialect(session.version, session.discovery.capabilities, takesTurns(peer, options))
  return session.discovery
}

/** Turns are about streams of HTTP. */
function takesTurns({ transport }: Peer, { turns = true }: Negotiation): boolean {
  return turns && transport.kind !== 'stdio'
}

function declared(peer: Peer, options: Negotiation): ClientCapabilities {
  return { ...options.capabilities, experimental: experimentalOf(takesTurns(peer, options)) }
}

async function probe(peer: Peer, options: Negotiation): Promise<ProbeResult> {
  let received = await discover(peer, options)
  if (received.kind === 'error' && received.error.code === UNSUPPORTED_VERSION) {
    const offered = versionsIn(received.error)
    const dialect = chooseDialect(offered)
    if (dialect === undefined) return { kind: 'older', offered }
    peer.dialect = dialect
    received = await discover(peer, options)
    // It names our version and refuses it: there is no point in a handshake.
    if (received.kind === 'error')
      throw older({ kind: 'older', offered, cause: new PeerError(received.error) })
  }
  if (received.kind === 'unheard') return { kind: 'older', cause: received.cause }
  if (received.kind === 'error') return { kind: 'older', cause: new PeerError(received.error) }
  const discovery = received.kind === 'complete' ? peer.dialect.decodeDiscovery(received.result) : undefined
  if (discovery === undefined) {
    return {
      kind: 'older',
      cause: new RondoError('PEER_ANSWER', 'The answer to server/discover is not valid'),
    }
  }
  const dialect = chooseDialect(discovery.supportedVersions)
  if (dialect === undefined) return { kind: 'older', offered: discovery.supportedVersions }
  peer.dialect = dialect
  return { kind: 'rounds', discovery }
}

async function discover(
  peer: Peer,
  options: Negotiation,
): Promise<Received | { readonly kind: 'unheard'; readonly cause: RondoError }> {
  const { signal, capabilities, silenceMs } = options
  const line = peer.transport.kind === 'stdio'
  let status = 200
  const timeoutMs =
    line && silenceMs !== undefined ? Math.min(silenceMs, options.timeoutMs ?? silenceMs) : options.timeoutMs
  try {
    const received = await peer.send(
      { kind: 'discover' },
      {
        signal,
        capabilities,
        timeoutMs,
        onHead(head) {
          status = head.status
        },
      },
    )
    if (received.kind !== 'error' || status < 300 || OLDER_STATUSES.has(status)) return received
    throw new RondoError('PEER_HTTP', `The server answered with HTTP status ${status}`, {
      data: { status },
      cause: new PeerError(received.error),
    })
  } catch (error) {
    if (!(error instanceof RondoError)) throw error
    const quiet = line && (error.code === 'LIMIT_CLIENT_TIMEOUT' || error.code === 'PEER_GONE')
    if ((quiet || isAbsent(error)) && !signal?.aborted) return { kind: 'unheard', cause: error }
    throw error
  }
}

function isAbsent({ code, data }: RondoError): boolean {
  return code === 'PEER_HTTP' && isRecord(data) && OLDER_STATUSES.has(data.status)
}

/** The handshake was understood no better than the first request. */
function isRefusal(error: RondoError): boolean {
  return error.code === 'PEER_ERROR' || error.code === 'PEER_ANSWER' || isAbsent(error)
}

function versionsIn({ data }: WireError): readonly unknown[] {
  return isRecord(data) && Array.isArray(data.supported) ? data.supported : []
}

function older({ offered, cause }: Extract<ProbeResult, { kind: 'older' }>): RondoError {
  const ours = [...DIALECTS.map(({ version }) => version), ...SESSION_VERSIONS].join(', ')
  const theirs = offered?.filter((one) => typeof one === 'string').join(', ') || 'none it names'
  const finding = offered
    ? `The server speaks ${theirs}`
    : 'The server answers neither server/discover nor initialize'
  const text = `${finding}; this client speaks ${ours}. Is this an MCP endpoint?`
  return new RondoError('PEER_ERA', text, { cause })
}
