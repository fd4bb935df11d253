/** The parameters of the methods that only these revisions have, narrowed from JSON. */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/is-record.ts'
import type { RequestId } from '../call.ts'
import type { InitializeCall, SessionCall } from '../session-call.ts'
import { LOG_LEVELS } from '../wire.ts'

type Params = Readonly<Record<string, unknown>>

export function readInitialize(id: RequestId, params: Params): InitializeCall {
  const { protocolVersion, capabilities, clientInfo } = params
  if (typeof protocolVersion !== 'string') throw invalid('params.protocolVersion must be a string')
  if (capabilities !== undefined && !isRecord(capabilities)) {
    throw invalid('params.capabilities must be an object')
  }
  return {
    kind: 'initialize',
    id,
    requested: protocolVersion,
    capabilities: capabilities ?? {},
    clientInfo: readClientInfo(clientInfo),
  }
}

/** Clients in the field leave parts of it out; it is for logs and handlers only. */
function readClientInfo(value: unknown): InitializeCall['clientInfo'] {
  if (!isRecord(value) || typeof value.name !== 'string') return undefined
  const { name, version, title } = value
  return {
    name,
    version: typeof version === 'string' ? version : '',
    ...(typeof title === 'string' ? { title } : {}),
  }
}

export function readLevel(id: RequestId, params: Params): SessionCall {
  const level = LOG_LEVELS.find((known) => known === params.level)
  if (level === undefined) throw invalid(`params.level must be one of ${LOG_LEVELS.join(', ')}`)
  return { kind: 'level', id, level }
}

export function readWatch(id: RequestId, kind: 'watch' | 'unwatch', params: Params): SessionCall {
  if (typeof params.uri !== 'string') throw invalid('params.uri must be a string')
  return { kind, id, uri: params.uri }
}

function invalid(detail: string): RondoError {
  return new RondoError('PEER_PARAMS', detail)
}
