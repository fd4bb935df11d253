/**
 * All sessions of a server, found by id. One timer sweeps everything in them that ends by time; it runs only while there
 * is a session.
 */

import { RondoError } from '../errors.ts'
import { idle } from '../lib/clock.ts'
import type { PeerFacts } from '../protocol/call.ts'
import { costOf, createOwnerTally } from '../serve/limits.ts'
import type { ChangeBus } from '../serve/port.ts'
import { type MemoryBudget, type SessionSettings, sweepMs, UNCOUNTED } from './options.ts'
import { callerLimit, isNamed, Session, type SessionName } from './session.ts'

export interface SessionTable {
  /**
   * Begins a session. If there are too many, the oldest unused one of an anonymous caller is evicted; throws if there is
   * none. `share` is whose share of the limits it uses, if not its owner's. Without a name it gets a random id.
   */
  open(facts: PeerFacts, owner: string, share?: string, name?: SessionName): Session
  /** Creates a session for one request, which `find` does not know. */
  transient(facts: PeerFacts, owner: string, name?: SessionName): Session
  /** This instance's part of a session that is sealed into its id. If there are too many sessions, one for this request alone. */
  adopt(name: SessionName, facts: PeerFacts, owner: string, share?: string): Session
  /** The owner's session. Another caller's session is unknown, as if it did not exist. */
  find(id: string, owner: string): Session | undefined
  /** The session with this name (`Session.name`), if this instance has a part of it. */
  named(name: string): Session | undefined
  end(session: Session): void
  /** Refuses all calls that wait for an answer, then ends every session. */
  endAll(): Promise<void>
  /** Ends what is due now. */
  sweep(): void
  readonly size: number
  readonly lifetimeMs: number
  /** Bytes that are kept for clients. */
  readonly keptBytes: number
}

/** The bytes that an empty session counts as. */
const SESSION_BYTES = 2_048

/** Reports sessions that begin and end. */
export type OnSession = (phase: 'opened' | 'closed', session: Session) => void

export function createSessionTable(
  settings: SessionSettings,
  changes: ChangeBus,
  onSession: OnSession = () => {},
): SessionTable {
  /** The most recently used is last. */
  const sessions = new Map<string, Session>()
  const names = new Map<string, Session>()
  const kept = createOwnerTally()
  const unsubscribes = new Map<Session, () => void>()
  /** Sessions of single requests whose call waits. */
  const transients = new Set<Session>()
  const open = createOwnerTally()
  let stopSweeping: (() => void) | undefined

  const end = (session: Session): void => {
    if (!sessions.delete(session.id)) return
    names.delete(session.name)
    open.add(session.share, -1)
    unsubscribes.get(session)?.()
    unsubscribes.delete(session)
    session.end()
    budgetOf(session).release(costOfFacts(session.facts))
    stopIfEmpty()
    onSession('closed', session)
  }

  const stopIfEmpty = (): void => {
    if (sessions.size > 0 || transients.size > 0) return
    stopSweeping?.()
    stopSweeping = undefined
  }

  const budgetOf = (caller: Pick<Session, 'owner' | 'share'>): MemoryBudget => {
    const { maxKeptBytes, maxKeptBytesPerCaller } = settings
    const most = callerLimit(caller, maxKeptBytesPerCaller)
    return {
      take(bytes) {
        if (kept.total + bytes > maxKeptBytes || kept.of(caller.share) + bytes > most) return false
        kept.add(caller.share, bytes)
        return true
      },
      release: (bytes) => kept.add(caller.share, -bytes),
    }
  }

  /** Ends the oldest unused session of an anonymous caller. */
  const evict = (share?: string): boolean => {
    for (const session of sessions.values()) {
      if (isNamed(session.owner) || !session.unused) continue
      if (share !== undefined && session.share !== share) continue
      end(session)
      return true
    }
    return false
  }

  const makeRoom = (
    caller: Pick<Session, 'owner' | 'share'>,
    budget: MemoryBudget,
    bytes: number,
  ): boolean => {
    const { maxSessions, maxSessionsPerCaller } = settings
    const most = callerLimit(caller, maxSessionsPerCaller)
    if (open.of(caller.share) >= most && !evict(caller.share)) return false
    if (sessions.size >= maxSessions && !evict()) return false
    while (!budget.take(bytes)) if (!evict(caller.share) && !evict()) return false
    return true
  }

  const sweep = (): void => {
    const now = settings.now()
    for (const session of [...sessions.values(), ...transients]) {
      // One session that fails must not stop the sweep of the others.
      try {
        if (!session.sweep(now)) continue
        if (transients.delete(session)) stopIfEmpty()
        else end(session)
      } catch (error) {
        settings.onError(error)
      }
    }
  }

  /** Returns undefined if there is no room. */
  const enroll = (
    name: SessionName,
    facts: PeerFacts,
    caller: Pick<Session, 'owner' | 'share'>,
  ): Session | undefined => {
    const { owner, share } = caller
    const budget = budgetOf(caller)
    if (!makeRoom(caller, budget, costOfFacts(facts))) return undefined
    const session = new Session(name, facts, owner, { share, settings, budget, waiting: budget })
    sessions.set(session.id, session)
    names.set(session.name, session)
    open.add(share, 1)
    unsubscribes.set(
      session,
      changes.subscribe((change) => session.notify(change)),
    )
    beginSweeping()
    onSession('opened', session)
    return session
  }

  const find = (id: string, owner: string): Session | undefined => {
    const session = sessions.get(id)
    if (session?.owner !== owner || settings.now() >= session.until) return undefined
    sessions.delete(id)
    sessions.set(id, session)
    return session
  }

  const beginSweeping = (): void => {
    stopSweeping ??= settings.every(sweepMs(settings), sweep)
  }

  const onParked = (session: Session): void => {
    transients.add(session)
    beginSweeping()
  }

  const transient = (facts: PeerFacts, owner: string, name: SessionName = { id: '' }): Session =>
    new Session(name, facts, owner, {
      share: owner,
      settings: { ...settings, maxWatched: 0, resumeMs: 0 },
      budget: UNCOUNTED,
      waiting: budgetOf({ owner, share: owner }),
      onParked,
    })

  return {
    open(facts, owner, share = owner, name = { id: settings.randomId() }) {
      const session = enroll(name, facts, { owner, share })
      if (session === undefined) throw new RondoError('LIMIT_SESSIONS')
      return session
    },
    transient,
    adopt: (name, facts, owner, share = owner) =>
      find(name.id, owner) ?? enroll(name, facts, { owner, share }) ?? transient(facts, owner, name),
    find,
    named: (name) => names.get(name),
    end,
    async endAll() {
      for (const session of [...sessions.values(), ...transients]) {
        session.refuseWaiting(new RondoError('SERVER_DRAINING'))
      }
      await new Promise<void>((resolve) => idle(resolve))
      for (const session of [...sessions.values()]) end(session)
    },
    sweep,
    get size() {
      return sessions.size
    },
    lifetimeMs: settings.lifetimeMs,
    get keptBytes() {
      return kept.total
    },
  }
}

function costOfFacts(facts: PeerFacts): number {
  return SESSION_BYTES + costOf(JSON.stringify(facts))
}
