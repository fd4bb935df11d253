/**
 * The handshake of earlier eras: which messages are theirs, what a session keeps of `initialize`, and what its result says.
 */

import type { FlowHost } from '../carry/host.ts'
import { RondoError } from '../errors.ts'
import type { InitializeCall, PeerFacts } from '../protocol/call.ts'
import type { Codecs } from '../protocol/codec.ts'
import { HAS_APPS, hasApps } from '../protocol/common/apps.ts'
import { versionHeader } from '../protocol/common/headers.ts'
import { claimedVersion, isInitialize, rememberedCapabilities } from '../protocol/common/request.ts'
import type { IsOlder, Service } from '../serve/port.ts'
import type { Registry } from '../tool/registry.ts'
import type { Greeting, Older } from './older.ts'

export interface GreetOptions {
  readonly host: FlowHost
  readonly registry: Registry
  readonly serverInfo: Service['serverInfo']
  readonly instructions?: () => string | undefined
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

/** The part of `initialize` that a session keeps: no more than it needs, however much was sent. */
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
    // Where each caller has lists of its own, they may have what is declared for nobody else.
    host.rowsFor ? 1 : registry.rows(listing).length
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
      extensions: hasApps(registry) ? HAS_APPS : undefined,
    },
    serverInfo,
    instructions: instructions?.(),
  }
}

interface EraOptions {
  /** Versions of the new era. */
  readonly modern: readonly string[]
  /** Versions of the earlier eras. */
  readonly older: readonly string[]
  /** The versions of `older` that a request may claim for itself. */
  readonly drafts: readonly string[]
  /** A message that names no version and no session is of an earlier era. */
  readonly unnamed: boolean
}

/**
 * Recognizes messages of earlier eras. The body decides: a request that claims a version in its `_meta` is of 2026-07-28
 * or later, unless it claims a draft. Without a claim it is of an earlier era if it begins a session, belongs to one, or
 * names such a version in its header. A header of the new era without a claim in the body is refused by that era.
 */
export function createOlderTest({ modern, older, drafts, unnamed }: EraOptions): IsOlder {
  return (message, headers) => {
    const header = headers && versionHeader(headers)
    if (header !== undefined && modern.includes(header)) return false
    const claim = claimedVersion(message)
    if (claim !== undefined) return drafts.some((version) => version === claim)
    if (header !== undefined) return older.includes(header)
    return unnamed || headers?.['mcp-session-id'] !== undefined || isInitialize(message)
  }
}
