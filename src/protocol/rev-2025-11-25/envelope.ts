/**
 * What stands for an envelope in these revisions: the session's facts, and the little that `params._meta` of a request
 * says. A token that is none is left out: nobody is told of progress then. Extensions came later and mean nothing here.
 */

import { isRecord } from '../../lib/is-record.ts'
import type { Envelope, RequestId } from '../call.ts'
import type { PeerFacts } from '../session-call.ts'

type Params = Readonly<Record<string, unknown>>

export function readEnvelope(id: RequestId, params: Params, peer: PeerFacts): Envelope {
  const meta = isRecord(params._meta) ? params._meta : {}
  return {
    id,
    protocolVersion: peer.protocolVersion,
    capabilities: { ...peer.capabilities, extensions: undefined },
    clientInfo: peer.clientInfo,
    progressToken: isToken(meta.progressToken) ? meta.progressToken : undefined,
    logLevel: peer.logLevel,
    trace: meta.traceparent === undefined ? undefined : trace(meta),
  }
}

function isToken(value: unknown): value is string | number {
  return typeof value === 'string' || Number.isSafeInteger(value)
}

function trace(meta: Params): Readonly<Record<string, string>> {
  const found: Record<string, string> = {}
  for (const key of ['traceparent', 'tracestate', 'baggage']) {
    const value = meta[key]
    if (typeof value === 'string') found[key] = value
  }
  return found
}
