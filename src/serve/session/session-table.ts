/**
 * All sessions of a server, found by id. One timer looks at everything in them that ends by time; it runs only while
 * there is a session.
 */

import { RondoError } from '../../errors.ts'
import { idle } from '../../lib/idle.ts'
import type { PeerFacts } from '../../protocol/session-call.ts'
import type { ChangeBus } from '../change-bus.ts'
import { type SessionSettings, sweepMs } from './options.ts'
import { type Parking, Session } from './session.ts'

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
  const parking: Parking = { parked: 0 }
  let stopSweeping: (() => void) | undefined

  const end = (session: Session): void => {
    if (!sessions.delete(session.id)) return
    leavers.get(session)?.()
    leavers.delete(session)
    session.end()
    if (sessions.size > 0) return
    stopSweeping?.()
    stopSweeping = undefined
  }

  const sweep = (): void => {
    const now = settings.now()
    for (const session of [...sessions.values()]) if (session.sweep(now)) end(session)
  }

  return {
    open(facts, owner) {
      if (sessions.size >= settings.maxSessions) throw new RondoError('LIMIT_SESSIONS')
      const session = new Session(settings.randomId(), facts, owner, { settings, parking })
      sessions.set(session.id, session)
      leavers.set(
        session,
        changes.subscribe((change) => session.tell(change)),
      )
      stopSweeping ??= settings.every(sweepMs(settings), sweep)
      return session
    },
    transient: (facts, owner) =>
      new Session('', facts, owner, { settings: { ...settings, maxWatched: 0, resumeMs: 0 }, parking }),
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
      return parking.parked
    },
  }
}
