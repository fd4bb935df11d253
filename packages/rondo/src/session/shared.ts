/**
 * Sessions over HTTP, which every instance knows: what a session is, is sealed into its id (`seal/session-id.ts`). What
 * changes later, its log level and its subscriptions, and that it has ended, is a record in the store, sealed as well.
 *
 * shared 1  An id that was altered, belongs to another caller or has expired is unknown.
 * shared 2  A session that its client has ended is unknown from then on: on every instance with a store, on this one without.
 * shared 3  A change is in the store before its request is answered, and other instances are told of it.
 */

import type { FlowHost } from '../carry/host.ts'
import { RondoError } from '../errors.ts'
import type { Every } from '../lib/clock.ts'
import { storeClock } from '../lib/clock.ts'
import { isRecord } from '../lib/json.ts'
import { drawId } from '../lib/random.ts'
import type { PeerFacts, RequestId, SessionCall } from '../protocol/call.ts'
import type { LogLevel } from '../protocol/wire.ts'
import { digest } from '../seal/envelope.ts'
import { openSession, sealSession } from '../seal/session-id.ts'
import type { Fleet } from '../serve/fleet.ts'
import { createOwnerTally, type OwnerTally } from '../serve/limits.ts'
import { createKeptCalls, type KeptCalls } from './kept.ts'
import { createRecords, createRelays, type NextRecord, type Relays, type SealedRecords } from './records.ts'
import type { Session } from './session.ts'
import type { SessionTable } from './table.ts'

export interface SharedSessions {
  /** Begins a session. Rejects if there are too many. `share` is whose share of the limits it uses. */
  begin(facts: PeerFacts, owner: string, share: string): Promise<Session>
  /**
   * This instance's part of the owner's session; undefined if there is no such session. With the id of an event that no
   * instance can have sent, rejects before the store is read.
   */
  find(id: string, owner: string, share: string, eventId?: string): Promise<Session | undefined>
  /** Brings this instance's part of a session up to date. False if the session has ended. */
  refresh(session: Session): Promise<boolean>
  /** Changes a session for all instances: here at once. Rejects if the client asks for too much. */
  change(session: Session, call: StateCall, observe?: Parameters<Session['watch']>[1]): Promise<void>
  /** Cancels a call of a session, whichever instance has it. */
  cancel(session: Session, request: RequestId): void
  /** Keeps a call of a session while it waits; undefined without a store. */
  readonly hold?: KeptCalls['hold']
  /** Takes an answer to a question of any instance. Resolves with false if no such question is open. */
  readonly answer?: KeptCalls['answer']
  /** The parts with which a stream of another instance is resumed; undefined without a store. */
  readonly parts?: ResumeParts
  /** Resolves when calls that were released can be continued elsewhere. */
  close(): Promise<void>
  /** Ends a session for good, because its client asked for it. */
  end(session: Session): Promise<void>
}

/** The parts of an instance with which it resumes the streams of others. */
export interface ResumeParts {
  readonly host: FlowHost
  readonly fleet: Fleet
  readonly kept: KeptCalls
  readonly relays: Relays
  /** Streams that are being looked for, by caller. */
  readonly resuming: OwnerTally
}

/**
 * Cancellations of a caller that are passed on in a second, of calls that this instance does not have. A client may name any
 * id, and every instance has to read each of them; a cancellation that is dropped has no effect, which the protocol allows.
 */
const MAX_CANCELS = 64
const MAX_REQUEST_ID = 1_024

/** Sessions that an instance remembers as ended; their ids would be valid until they expire. */
const MAX_ENDED = 10_000

/** A request that changes what a session is. */
export type StateCall = Extract<SessionCall, { readonly kind: 'level' | 'watch' | 'unwatch' }>

/** The content of a session's record. */
interface SessionState {
  readonly level?: LogLevel
  readonly watched?: readonly string[]
  readonly ended?: boolean
}

export function createSharedSessions(
  host: FlowHost,
  table: SessionTable,
  fleet: Fleet | undefined,
  every: Every,
): SharedSessions {
  const { keys, audience, platform } = host
  const records = fleet && createRecords(host, fleet.records)
  const kept = fleet && records && createKeptCalls(host, fleet, records, every)
  const relays = fleet && records && createRelays(fleet, records, every, table.named)
  const ended = new Set<string>()
  const cancelling = createOwnerTally()

  const begin = (facts: PeerFacts, owner: string, share: string): Session => {
    const place = { ring: keys.ring, audience, principal: owner }
    const until = platform.now() + table.lifetimeMs
    const secret = drawId()
    const sealed = sealSession('pushed', place, { facts, until, secret })
    return table.open(sealed.facts, owner, share, { id: sealed.id, until, secret })
  }

  const open = (id: string, owner: string, share: string): Session | undefined => {
    const known = table.find(id, owner)
    if (known) return known
    if (ended.has(digest(id))) return undefined
    const opened = openSession({ ring: keys.ring, audience, principal: owner }, id, platform.now())
    if (opened === undefined) return undefined
    const { facts, until, secret } = opened
    return table.adopt({ id, until, secret }, facts, owner, share)
  }

  const find = (id: string, owner: string, share: string, eventId?: string): Session | undefined => {
    const session = open(id, owner, share)
    if (session && eventId !== undefined && !session.streams.mayHaveSent(eventId))
      throw new RondoError('PEER_EVENT')
    return session
  }

  /** Brings this instance's part up to date. Returns false if the session has ended. */
  const refresh = async (session: Session, kept: SealedRecords): Promise<boolean> => {
    const found = await kept.get(recordOf(session), narrowState)
    if (found?.value.ended) {
      table.end(session)
      return false
    }
    session.adopt(found?.value ?? {})
    return true
  }

  const forget = (session: Session): void => {
    ended.add(session.name)
    const [oldest] = ended
    if (ended.size > MAX_ENDED && oldest !== undefined) ended.delete(oldest)
    table.end(session)
  }

  fleet?.onNews(async (news) => {
    const session = 'session' in news ? table.named(news.session) : undefined
    if (!session || !records) return
    if (news.kind === 'session') await refresh(session, records)
    else if (news.kind === 'note') session.noteHere(news.json)
    else if (news.kind === 'cancel') session.cancel(news.request)
  })

  return {
    async begin(...args) {
      await keys.ready()
      return begin(...args)
    },
    async find(...args) {
      await keys.ready()
      const session = find(...args)
      return session && (!records || (await refresh(session, records))) ? session : undefined
    },
    refresh: async (session) => (records && session.portable ? refresh(session, records) : true),
    async change(session, call, observe) {
      applyHere(session, call, observe)
      if (!records || !session.portable) return
      const edit = (state: SessionState | undefined): NextRecord<SessionState> | undefined =>
        state?.ended
          ? undefined
          : { value: changed(state ?? {}, call), ttlMs: session.until - platform.now() }
      const outcome = await records.change(recordOf(session), session, edit, narrowState)
      if (outcome === 'limit') throw new RondoError('LIMIT_SUBSCRIPTIONS')
      await refresh(session, records)
      // Another request may have refreshed the session before the change was in the store.
      if (call.kind === 'watch' && session.state.watched.includes(call.uri)) applyHere(session, call, observe)
      await fleet?.tell({ kind: 'session', session: session.name })
    },
    hold: kept?.hold,
    answer: kept?.answer,
    parts: fleet && kept && relays && { host, fleet, kept, relays, resuming: createOwnerTally() },
    async close() {
      kept?.close()
      await kept?.flush()
    },
    cancel(session, request) {
      if (session.cancel(request) || !session.portable || !fleet || !isRequestId(request)) return
      const { share, name } = session
      if (cancelling.of(share) >= MAX_CANCELS) return
      cancelling.add(share, 1)
      storeClock.idly(1_000, () => cancelling.add(share, -1))
      fleet.announce({ kind: 'cancel', session: name, request })
    },
    async end(session) {
      if (!records) return forget(session)
      const last = (): NextRecord<SessionState> => ({
        value: { ended: true },
        ttlMs: session.until - platform.now(),
      })
      const outcome = await records.change(recordOf(session), session, last, narrowState)
      // Other instances would go on serving it.
      if (outcome === 'limit')
        throw new RondoError('STORE_BUSY', 'The store has no room for the end of a session')
      forget(session)
      await fleet?.tell({ kind: 'session', session: session.name })
    },
  }
}

/** Throws if the client asks for too much. */
function applyHere(session: Session, call: StateCall, observe?: Parameters<Session['watch']>[1]): void {
  if (call.kind === 'level') session.level = call.level
  else if (call.kind === 'watch') session.watch(call.uri, observe)
  else session.unwatch(call.uri)
}

function changed(state: SessionState, call: StateCall): SessionState {
  if (call.kind === 'level') return { ...state, level: call.level }
  const others = (state.watched ?? []).filter((uri) => uri !== call.uri)
  return { ...state, watched: call.kind === 'watch' ? [...others, call.uri] : others }
}

function isRequestId(value: unknown): value is RequestId {
  return typeof value === 'number' || (typeof value === 'string' && value.length <= MAX_REQUEST_ID)
}

function recordOf({ name }: Session): string {
  return `session ${name}`
}

function narrowState(value: unknown): SessionState | undefined {
  return isRecord(value) ? (value as SessionState) : undefined
}
