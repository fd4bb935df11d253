/** What a client declares to take part in the drafts, and what a server declares back. */

import { isRecord } from '../../lib/is-record.ts'
import type { ClientCapabilities } from '../wire.ts'

const MULTI_TURN = 'multi-turn-sse'
const REQUEST_STATE = 'request-state'

/** Whoever declares it, client or server: answers are buffered and come together. */
export function takesTurns(capabilities: ClientCapabilities): boolean {
  return declares(capabilities, MULTI_TURN)
}

/** The client echoes `state`. */
export function echoesState(capabilities: ClientCapabilities): boolean {
  return declares(capabilities, REQUEST_STATE)
}

/** What a client declares that echoes `state`, and that takes questions in turns if it says so. */
export function experimentalOf(turns: boolean): Readonly<Record<string, object>> {
  return { ...(turns && { [MULTI_TURN]: {} }), [REQUEST_STATE]: {} }
}

function declares({ experimental }: ClientCapabilities, name: string): boolean {
  return isRecord(experimental) && isRecord(experimental[name])
}

/** The part of a client's capabilities that a session has to remember: what may be asked, and how. */
export function rememberedCapabilities(given: ClientCapabilities): ClientCapabilities {
  const parts: Readonly<Record<string, readonly string[]>> = {
    elicitation: ['form', 'url'],
    sampling: ['tools', 'context'],
    roots: [],
    experimental: [MULTI_TURN, REQUEST_STATE],
  }
  const kept: Record<string, unknown> = {}
  for (const [name, members] of Object.entries(parts)) {
    const declared = given[name]
    if (!isRecord(declared)) continue
    kept[name] = Object.fromEntries(
      members.filter((member) => isRecord(declared[member])).map((member) => [member, {}]),
    )
  }
  return kept
}
