/**
 * All sessions of a server, found by id. One timer looks at everything in them that ends by time; it runs only while
 * there is a session.
 */

import { RondoError } from '../../errors.ts'
import { idle } from '../../lib/idle.ts'
import type { PeerFacts } from '../../protocol/session-call.ts'
import type { ChangeBus } from '../change-bus.ts'
import { type SessionSettings, sweepMs } from './options.ts'
import { isNamed, Session } from './session.ts'
import { createTally } from './tally.ts'

export interface SessionTable {
  /** Begins a session. Throws when there are too many. */
  open(facts: PeerFacts, owner: string): Session
  /** A session for one request: nobody finds it again. */
  transient(facts: PeerFacts, owner: string): Session
  /** The owner's session. Another's is as unknown as one that never was. */
  find(id: string, owner: string): Session | undefined
  end(session: Session): void
  /** Calls that wait for an answer get a refusal; then nothing of any session is left. */
  endAll(): Promise<void>
  /** Looks at the clock. */
  sweep(): void
  readonly size: number
  /** Calls that wait for an answer. */
  readonly parked: number
}

export function createSessionTable(settings: SessionSettings, changes: ChangeBus): SessionTable {
  const sessions = new Map<string, Session>()
  const leavers = new Map<Session, () => void>()
  const parked = createTally()
  const open = createTally()
  let stopSweeping: (() => void) | undefined

  const end = (session: Session): void => {
    if (!sessions.delete(session.id)) return
    open.add(session.owner, -1)
    leavers.get(session)?.()
    leavers.delete(session)
    session.end()
    if (sessions.size > 0) return
    stopSweeping?.()
    stopSweeping = undefined
  }

  const sweep = (): void => {
    const now = settings.now()
    for (const session of [...sessions.values()]) {
      // A session that cannot be swept must not keep the others from it.
      try {
        if (session.sweep(now)) end(session)
      } catch (error) {
        settings.onError(error)
      }
    }
  }

  return {
    open(facts, owner) {
      const { maxSessions, maxSessionsPerPrincipal } = settings
      const tooMany = isNamed(owner) && open.of(owner) >= maxSessionsPerPrincipal
      if (tooMany || sessions.size >= maxSessions) throw new RondoError('LIMIT_SESSIONS')
      const session = new Session(settings.randomId(), facts, owner, { settings, parked })
      sessions.set(session.id, session)
      open.add(owner, 1)
      leavers.set(
        session,
        changes.subscribe((change) => session.tell(change)),
      )
      stopSweeping ??= settings.every(sweepMs(settings), sweep)
      return session
    },
    transient: (facts, owner) =>
      new Session('', facts, owner, { settings: { ...settings, maxWatched: 0, resumeMs: 0 }, parked }),
    find(id, owner) {
      const session = sessions.get(id)
      return session?.owner === owner ? session : undefined
    },
    end,
    async endAll() {
      for (const session of sessions.values()) session.refuseWaiting(new RondoError('SERVER_DRAINING'))
      await new Promise<void>((resolve) => idle(resolve))
      for (const session of [...sessions.values()]) end(session)
    },
    sweep,
    get size() {
      return sessions.size
    },
    get parked() {
      return parked.total
    },
  }
}
