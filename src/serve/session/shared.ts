/**
 * Sessions over HTTP, which every instance knows: what a session is, is sealed into its id (`seal/session-id.ts`).
 *
 * shared 1  An id that was altered, belongs to another caller or has expired is unknown.
 * shared 2  A session that its client has ended is unknown from then on.
 */

import type { FlowHost } from '../../carry/host.ts'
import type { PeerFacts } from '../../protocol/call.ts'
import { digest } from '../../seal/envelope.ts'
import { openSession, sealSession } from '../../seal/session-id.ts'
import type { Session } from './session.ts'
import type { SessionTable } from './table.ts'

export interface SharedSessions {
  /** Begins a session. Throws or rejects if there are too many. `share` is whose share of the limits it uses. */
  begin(facts: PeerFacts, owner: string, share: string): Session | Promise<Session>
  /** This instance's part of the owner's session; undefined if there is no such session. */
  find(id: string, owner: string, share: string): Session | undefined | Promise<Session | undefined>
  /** Ends a session for good, because its client asked for it. */
  end(session: Session): void | Promise<void>
}

/** Sessions that an instance remembers as ended; their ids would be valid until they expire. */
const MAX_ENDED = 10_000

export function createSharedSessions(host: FlowHost, table: SessionTable): SharedSessions {
  const { keys, audience, platform } = host
  const ended = new Set<string>()

  const begin = (facts: PeerFacts, owner: string, share: string): Session => {
    const place = { ring: keys.ring, audience, principal: owner }
    const until = platform.now() + table.lifetimeMs
    const sealed = sealSession('pushed', place, { facts, until })
    return table.open(sealed.facts, owner, share, { id: sealed.id, until })
  }

  const find = (id: string, owner: string, share: string): Session | undefined => {
    const known = table.find(id, owner)
    if (known) return known
    if (ended.has(digest(id))) return undefined
    const opened = openSession({ ring: keys.ring, audience, principal: owner }, id, platform.now())
    return opened && table.adopt({ id, until: opened.until }, opened.facts, owner, share)
  }

  return {
    begin: (...args) => keys.ready()?.then(() => begin(...args)) ?? begin(...args),
    find(...args) {
      const loading = keys.ready()
      return loading ? loading.then(() => find(...args)) : find(...args)
    },
    end(session) {
      ended.add(digest(session.id))
      const [oldest] = ended
      if (ended.size > MAX_ENDED && oldest !== undefined) ended.delete(oldest)
      table.end(session)
    },
  }
}
