/**
 * Finds the revision that client and server share.
 *
 * `server/discover` is sent first. A server that refuses it and names a version we share is asked again in that version. Any
 * other JSON-RPC response shows an older era, as do an HTTP status such as 404 or 405, and a process that stays silent or
 * exits: then `initialize` follows. A login, a failing server or a body that is not a message shows nothing, and is an error.
 */

import { RondoError } from '../errors.ts'
import { cleanText } from '../form/clean-text.ts'
import { isRecord } from '../lib/json.ts'
import type { Received, WireError } from '../protocol/reply.ts'
import type { Discovery, ListRootsResult } from '../protocol/wire.ts'
import {
  chooseDialect,
  DIALECTS,
  type Revision,
  SESSION_VERSIONS,
  sessionCapabilities,
  sessionDialect,
} from './dialect.ts'
import { type Peer, PeerError, type SendOptions } from './peer.ts'
import { openSession } from './session/session.ts'
import type { Transport } from './transport/transport.ts'

/** The revision to speak; `auto` negotiates it. */
export type Mode = 'auto' | Revision

interface Negotiation extends SendOptions {
  readonly mode?: Mode
  /** How long a process may take to respond to the first request before it counts as an older one. */
  readonly silenceMs?: number
  /** Whether an older server may ask in turns. Default true. */
  readonly turns?: boolean
  /** Roots that do not change. */
  readonly roots?: ListRootsResult
  /** Starts a server again that exited at the first request. */
  reopen?(): Promise<Transport>
}

/** What `server/discover` showed. */
type ProbeResult =
  | { readonly kind: 'rounds'; readonly discovery: Discovery }
  | { readonly kind: 'older'; readonly offered?: readonly unknown[]; readonly cause?: RondoError }

const UNSUPPORTED_VERSION = -32022
/** Characters of a server's versions in a message. */
const MAX_SHOWN = 200
/** The HTTP statuses of an older endpoint for a request it does not know. */
const OLDER_STATUSES = new Set<unknown>([400, 404, 405, 406, 415])

/** Sets the dialect of the peer, and its channel where there is a session. */
export async function negotiate(peer: Peer, options: Negotiation = {}): Promise<Discovery> {
  const { mode = 'auto' } = options
  if (mode !== 'auto' && mode !== '2026-07-28') return initialize(peer, [mode], options)
  const finding = await probe(peer, options)
  if (finding.kind === 'rounds') return finding.discovery
  if (mode !== 'auto') throw older(finding)
  if (finding.cause?.code === 'PEER_GONE' && options.reopen) {
    await peer.transport.close()
    peer.transport = await options.reopen()
  }
  try {
    return await initialize(peer, sessionVersions(finding.offered), options)
  } catch (error) {
    if (!(error instanceof RondoError) || !isRefusal(error)) throw error
    // The process was only slow to start, and knows the first request after all.
    const offered = error instanceof PeerError ? versionsIn(error.peer) : []
    const late = chooseDialect(offered) && (await probe(peer, { ...options, silenceMs: undefined }))
    if (late?.kind === 'rounds') return late.discovery
    throw older({ ...finding, cause: error })
  }
}

/** The versions to try, best first: those that the server offers, or all of them with the draft last. */
function sessionVersions(offered: readonly unknown[] = []): readonly Revision[] {
  const shared = SESSION_VERSIONS.filter((one) => offered.includes(one))
  const [draft, ...dated] = SESSION_VERSIONS
  return shared.length > 0 ? shared : [...dated, draft]
}

async function initialize(
  peer: Peer,
  accepts: readonly Revision[],
  options: Negotiation,
): Promise<Discovery> {
  const [version = '2025-11-25'] = accepts
  const hand = {
    version,
    accepts,
    capabilities: sessionCapabilities(options.capabilities, takesTurns(peer, options)),
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

/** Turns exist on HTTP streams only. */
function takesTurns({ transport }: Peer, { turns = true }: Negotiation): boolean {
  return turns && transport.kind !== 'stdio'
}

async function probe(peer: Peer, options: Negotiation): Promise<ProbeResult> {
  let received = await discover(peer, options)
  if (received.kind === 'error' && received.error.code === UNSUPPORTED_VERSION) {
    const offered = versionsIn(received.error)
    const dialect = chooseDialect(offered)
    if (dialect === undefined) return { kind: 'older', offered }
    peer.dialect = dialect
    received = await discover(peer, options)
    // It offers our version and refuses it, so a handshake would not help.
    if (received.kind === 'error')
      throw older({ kind: 'older', offered, cause: new PeerError(received.error) })
  }
  if (received.kind === 'absent') return { kind: 'older', cause: received.cause }
  if (received.kind === 'error') return { kind: 'older', cause: new PeerError(received.error) }
  const discovery = received.kind === 'complete' ? peer.dialect.decodeDiscovery(received.result) : undefined
  if (discovery === undefined) {
    return {
      kind: 'older',
      cause: new RondoError('PEER_ANSWER', 'The response to server/discover is not valid'),
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
): Promise<Received | { readonly kind: 'absent'; readonly cause: RondoError }> {
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
    throw new RondoError('PEER_HTTP', `The server responded with HTTP status ${status}`, {
      data: { status },
      cause: new PeerError(received.error),
    })
  } catch (error) {
    if (!(error instanceof RondoError)) throw error
    const quiet = line && (error.code === 'LIMIT_CLIENT_TIMEOUT' || error.code === 'PEER_GONE')
    if ((quiet || isAbsent(error)) && !signal?.aborted) return { kind: 'absent', cause: error }
    throw error
  }
}

function isAbsent({ code, data }: RondoError): boolean {
  return code === 'PEER_HTTP' && isRecord(data) && OLDER_STATUSES.has(data.status)
}

/** Whether the server understood the handshake no better than the first request. */
function isRefusal(error: RondoError): boolean {
  return error.code === 'PEER_ERROR' || error.code === 'PEER_ANSWER' || isAbsent(error)
}

function versionsIn({ data }: WireError): readonly unknown[] {
  return isRecord(data) && Array.isArray(data.supported) ? data.supported : []
}

function older({ offered, cause }: Extract<ProbeResult, { kind: 'older' }>): RondoError {
  const ours = [...DIALECTS.map(({ version }) => version), ...SESSION_VERSIONS].join(', ')
  const named = offered?.filter((one) => typeof one === 'string').join(', ') ?? ''
  const theirs = cleanText(named, MAX_SHOWN) || 'no version it names'
  const finding = offered
    ? `The server speaks ${theirs}`
    : 'The server responds neither to server/discover nor to initialize'
  const text = `${finding}; this client speaks ${ours}. Is this an MCP endpoint?`
  return new RondoError('PEER_ERA', text, { cause })
}
