/** How a session begins that is sealed into its id: who gets one, and what it is told. */

import { echoesState, rememberedCapabilities, takesTurns } from '../../protocol/draft-turns/capability.ts'
import { encodeReply } from '../../protocol/rev-2025-11-25/encode.ts'
import { negotiate, VERSIONS } from '../../protocol/rev-2025-11-25/version.ts'
import type { PeerFacts } from '../../protocol/session-call.ts'
import { isSealedSession } from '../../seal/session-id.ts'
import { JSON_HEADERS } from '../http-answer.ts'
import { isInitialize } from './era.ts'
import type { TurnsService } from './older.ts'
import { type Posted, type PostOptions, readInitialize } from './session-post.ts'

/** Bytes of what a client calls itself: with it, an id stays below the 1024 that some clients take. */
const INFO_BYTES = 200

/** True if the message begins such a session, or belongs to one. */
export function isOfDrafts({ older, sessions }: PostOptions, { message, headers }: Posted): boolean {
  if (!isInitialize(message)) return isSealedSession(headers('mcp-session-id'))
  const { requested, capabilities } = readInitialize(message)
  // Who takes no turns waits for its answers, which needs a session.
  const takesPart = takesTurns(capabilities) || (sessions && echoesState(capabilities))
  return takesPart && VERSIONS.includes(negotiate(requested, older.versions))
}

export async function greetDrafts(
  { older, sessions }: PostOptions,
  turns: TurnsService,
  { message, principal, outlet }: Posted,
): Promise<void> {
  const { id, requested, capabilities: declared, clientInfo } = readInitialize(message)
  const protocolVersion = negotiate(requested, older.versions)
  const capabilities = rememberedCapabilities(declared)
  const facts = { protocolVersion, capabilities, clientInfo: fitting(clientInfo) }
  const session = await turns.sealSession(facts, principal)
  const known = principal !== undefined
  const greeting = older.greet(protocolVersion, { session: sessions, known, tasks: true })
  // A level that a client sets would have to be remembered.
  const { logging, ...offered } = greeting.capabilities as Readonly<Record<string, unknown>>
  const { experimental } = capabilities
  const result = {
    ...greeting,
    capabilities: { ...offered, ...(sessions && { logging }), experimental },
  }
  outlet.send({
    status: 200,
    headers: { ...JSON_HEADERS, 'Mcp-Session-Id': session },
    body: encodeReply(id, { kind: 'complete', result }, protocolVersion),
  })
}

/** It is for logs and handlers only, so a long one is left out. */
function fitting(info: PeerFacts['clientInfo']): PeerFacts['clientInfo'] {
  const size = Buffer.byteLength(JSON.stringify(info ?? {}))
  if (size <= INFO_BYTES) return info
  const { name, version } = info ?? { name: '', version: '' }
  const short = { name: name.slice(0, 64), version: version.slice(0, 32) }
  return Buffer.byteLength(JSON.stringify(short)) <= INFO_BYTES ? short : undefined
}
