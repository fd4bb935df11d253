/**
 * The handshake of a session: reads `initialize`, decides what the session keeps of it, and builds the result, which
 * depends on what the server has declared and on how much it can do for this client.
 */

import type { FlowHost } from '../../carry/host.ts'
import { RondoError } from '../../errors.ts'
import type { InitializeCall, PeerFacts } from '../../protocol/call.ts'
import type { Codecs } from '../../protocol/codec.ts'
import { rememberedCapabilities } from '../../protocol/common/request.ts'
import type { Registry } from '../../tool/registry.ts'
import type { Service } from '../service.ts'
import type { Older } from './older.ts'

/** What the server can do for the client that it greets. */
export interface Greeting {
  /** False if there is no session: then the server sends nothing that no request asked for. */
  readonly session: boolean
  /** True if the caller can be told apart from all others: it is authenticated, or the only client of this process. */
  readonly known: boolean
  /** True if tasks are served to it. */
  readonly tasks: boolean
}

export interface GreetOptions {
  readonly host: FlowHost
  readonly registry: Registry
  readonly serverInfo: Service['serverInfo']
  readonly instructions?: string
  readonly codecs: Codecs
}

/** Declared capabilities up to this many characters are kept as they are; of longer ones, only what decides what can be asked. */
const MAX_DECLARED = 2_048
const MAX_NAME = 128

/** `initialize` has the same form in every version that it can agree on. */
export function readInitialize({ codecs }: Older, message: unknown): InitializeCall {
  const decoded = codecs.session('').decode(message, { protocolVersion: '', capabilities: {} })
  if (decoded.kind === 'refused') throw decoded.error
  if (decoded.kind === 'session' && decoded.call.kind === 'initialize') return decoded.call
  throw new RondoError('PEER_REQUEST', 'initialize must be a request with an id')
}

/** What a session keeps of `initialize`: no more than it needs, however much was sent. */
export function factsOf(
  { draft }: Older,
  { capabilities, clientInfo }: InitializeCall,
  protocolVersion: string,
): PeerFacts {
  const small = JSON.stringify(capabilities).length <= MAX_DECLARED
  const kept = small ? capabilities : rememberedCapabilities(capabilities, draft?.experimental)
  const info = Object.entries(clientInfo ?? {}).map(([name, text]) => [name, text.slice(0, MAX_NAME)])
  // Copied, because a slice of a string keeps the whole string in memory.
  const copy = JSON.parse(JSON.stringify({ kept, info: Object.fromEntries(info) }))
  return { protocolVersion, capabilities: copy.kept, clientInfo: clientInfo && copy.info }
}

/** The result of `initialize`. */
export function greet(
  { host, registry, serverInfo, instructions, codecs }: GreetOptions,
  protocolVersion: string,
  { session, known, tasks }: Greeting,
): Readonly<Record<string, unknown>> {
  const changes = session ? { listChanged: true } : {}
  const rows = (listing: 'tools' | 'prompts' | 'resources' | 'templates'): number =>
    registry.rows(listing).length
  const reads = rows('resources') + rows('templates') > 0
  return {
    protocolVersion,
    capabilities: {
      tools: rows('tools') > 0 ? changes : undefined,
      prompts: rows('prompts') > 0 ? changes : undefined,
      resources: reads ? { ...changes, ...(session ? { subscribe: true } : {}) } : undefined,
      completions: rows('prompts') + rows('templates') > 0 ? {} : undefined,
      logging: {},
      tasks:
        host.tasks && tasks && codecs.session(protocolVersion).tasks
          ? { list: known ? {} : undefined, cancel: {}, requests: { tools: { call: {} } } }
          : undefined,
    },
    serverInfo,
    instructions,
  }
}
