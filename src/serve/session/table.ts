/**
 * All sessions of a server, found by id. One timer looks at everything in them that ends by time; it runs only while
 * there is a session.
 */

import { RondoError } from '../../errors.ts'
import { idle } from '../../lib/clock.ts'
import type { PeerFacts } from '../../protocol/call.ts'
import type { ChangeBus } from '../http/subscription.ts'
import { createTally, type Keeper, type SessionSettings, sweepMs, UNCOUNTED } from './options.ts'
import { costOf, isNamed, Session, shareLimit } from './session.ts'

export interface SessionTable {
  /**
   * Begins a session. Where there are too many, the oldest unused one of a caller without a name makes room; throws where
   * there is none. `share` is whose part of the limits it uses, if not its owner's.
   */
  open(facts: PeerFacts, owner: string, share?: string): Session
  /** A session for one request: nobody finds it again. */
  transient(facts: PeerFacts, owner: string, id?: string): Session
  /** This instance's part of a session that is sealed into its id. Where there are too many, one for this request alone. */
  adopt(id: string, facts: PeerFacts, owner: string, share?: string): Session
  /** The owner's session. Another's is as unknown as one that never was. */
  find(id: string, owner: string): Session | undefined
  end(session: Session): void
  /** Calls that wait for an answer get a refusal; then nothing of any session is left. */
  endAll(): Promise<void>
  /** Looks at the clock. */
  sweep(): void
  readonly size: number
  /** Bytes that are kept for clients. */
  readonly keptBytes: number
  /** Calls that wait for an answer. */
  readonly parked: number
}

/** A session itself, before anything is kept for it. */
const SESSION_BYTES = 2_048

export function createSessionTable(settings: SessionSettings, changes: ChangeBus): SessionTable {
  /** The one that was used last is last. */
  const sessions = new Map<string, Session>()
  const kept = createTally()
  const leavers = new Map<Session, () => void>()
  /** Sessions for one request whose call waits. */
  const passing = new Set<Session>()
  const parked = createTally()
  const open = createTally()
  let stopSweeping: (() => void) | undefined

  const end = (session: Session): void => {
    if (!sessions.delete(session.id)) return
    open.add(session.share, -1)
    leavers.get(session)?.()
    leavers.delete(session)
    session.end()
    keeperOf(session).give(costOfFacts(session.facts))
    rest()
  }

  const rest = (): void => {
    if (sessions.size > 0 || passing.size > 0) return
    stopSweeping?.()
    stopSweeping = undefined
  }

  const keeperOf = (caller: Pick<Session, 'owner' | 'share'>): Keeper => {
    const { maxKeptBytes, maxKeptBytesPerCaller: perCaller } = settings
    const most = shareLimit(caller, perCaller, perCaller)
    return {
      take(bytes) {
        if (kept.total + bytes > maxKeptBytes || kept.of(caller.share) + bytes > most) return false
        kept.add(caller.share, bytes)
        return true
      },
      give: (bytes) => kept.add(caller.share, -bytes),
    }
  }

  /** Ends the oldest session that nobody with a name has and nobody uses. */
  const evict = (share?: string): boolean => {
    for (const session of sessions.values()) {
      if (isNamed(session.owner) || !session.unused) continue
      if (share !== undefined && session.share !== share) continue
      end(session)
      return true
    }
    return false
  }

  const makeRoom = (caller: Pick<Session, 'owner' | 'share'>, keeper: Keeper, bytes: number): boolean => {
    const { maxSessions, maxSessionsPerPrincipal, maxSessionsPerAddress } = settings
    const most = shareLimit(caller, maxSessionsPerPrincipal, maxSessionsPerAddress)
    if (open.of(caller.share) >= most && !evict(caller.share)) return false
    if (sessions.size >= maxSessions && !evict()) return false
    while (!keeper.take(bytes)) if (!evict(caller.share) && !evict()) return false
    return true
  }

  const sweep = (): void => {
    const now = settings.now()
    for (const session of [...sessions.values(), ...passing]) {
      // A session that cannot be swept must not keep the others from it.
      try {
        if (!session.sweep(now)) continue
        if (passing.delete(session)) rest()
        else end(session)
      } catch (error) {
        settings.onError(error)
      }
    }
  }

  /** Nothing where there is no room. */
  const enroll = (
    id: string,
    facts: PeerFacts,
    caller: Pick<Session, 'owner' | 'share'>,
  ): Session | undefined => {
    const { owner, share } = caller
    const keeper = keeperOf(caller)
    if (!makeRoom(caller, keeper, costOfFacts(facts))) return undefined
    const session = new Session(id, facts, owner, { share, settings, parked, keeper })
    sessions.set(id, session)
    open.add(share, 1)
    leavers.set(
      session,
      changes.subscribe((change) => session.tell(change)),
    )
    beginSweeping()
    return session
  }

  const find = (id: string, owner: string): Session | undefined => {
    const session = sessions.get(id)
    if (session?.owner !== owner) return undefined
    sessions.delete(id)
    sessions.set(id, session)
    return session
  }

  const beginSweeping = (): void => {
    stopSweeping ??= settings.every(sweepMs(settings), sweep)
  }

  const onParked = (session: Session): void => {
    passing.add(session)
    beginSweeping()
  }

  const transient = (facts: PeerFacts, owner: string, id = ''): Session =>
    new Session(id, facts, owner, {
      share: owner,
      settings: { ...settings, maxWatched: 0, resumeMs: 0 },
      parked,
      keeper: UNCOUNTED,
      onParked,
    })

  return {
    open(facts, owner, share = owner) {
      const session = enroll(settings.randomId(), facts, { owner, share })
      if (session === undefined) throw new RondoError('LIMIT_SESSIONS')
      return session
    },
    transient,
    adopt: (id, facts, owner, share = owner) =>
      find(id, owner) ?? enroll(id, facts, { owner, share }) ?? transient(facts, owner, id),
    find,
    end,
    async endAll() {
      for (const session of [...sessions.values(), ...passing]) {
        session.refuseWaiting(new RondoError('SERVER_DRAINING'))
      }
      await new Promise<void>((resolve) => idle(resolve))
      for (const session of [...sessions.values()]) end(session)
    },
    sweep,
    get size() {
      return sessions.size
    },
    get keptBytes() {
      return kept.total
    },
    get parked() {
      return parked.total
    },
  }
}

function costOfFacts(facts: PeerFacts): number {
  return SESSION_BYTES + costOf(JSON.stringify(facts))
}
