/**
 * Sealed records of sessions in the store, and streams that are passed on through them. Each record is sealed for its place:
 * nobody who can write to the store can move one.
 *
 * A stream of one instance whose client is connected to another is relayed: the instance that has the stream writes its
 * events to the store, piece by piece, and the other passes them on.
 *
 * relay 1  Pieces are numbered, and removed once they are passed on; what nobody reads expires.
 * relay 2  The reader says from time to time that it is there. If it is silent, the client counts as gone, as after any lost
 *          connection. If the writer is silent, the reader ends the stream, and the client resumes it elsewhere.
 */

import type { FlowHost } from '../carry/host.ts'
import { RondoError } from '../errors.ts'
import { isRecord, isText } from '../lib/json.ts'
import { openEnvelope, sealEnvelope } from '../seal/envelope.ts'
import type { Fleet, News } from '../serve/fleet.ts'
import type { Outlet } from '../serve/port.ts'
import type { RecordStore } from '../store/store.ts'
import type { Session } from './session.ts'

export interface OpenRecord<T> {
  readonly value: T
  readonly version: number
  /** How long ago its holder was heard of. */
  readonly quietMs: number
}

export interface NextRecord<T> {
  readonly value: T
  readonly ttlMs: number
  /** True if it is kept only for a client that missed the end. Such records have a limit of their own, as large as that of the others. */
  readonly ended?: boolean
}

/** A record as somebody last saw or wrote it. Its version decides whether it still is so, and follows each change. */
export interface RecordGuess<T> {
  readonly value: T | undefined
  version: number
}

export interface SealedRecords {
  /** Undefined if there is none, or it does not open. `narrow` checks its form. */
  get<T>(id: string, narrow: (value: unknown) => T | undefined): Promise<OpenRecord<T> | undefined>
  put<T>(
    id: string,
    session: Session,
    next: NextRecord<T>,
    version: number,
  ): Promise<'stored' | 'conflict' | 'limit'>
  /**
   * Changes a record, however many others do so at the same time. `edit` may return undefined to leave it as it is. With a
   * guess, the record is read only if the guess is wrong.
   */
  change<T>(
    id: string,
    session: Session,
    edit: (value: T | undefined) => NextRecord<T> | undefined,
    narrow: (value: unknown) => T | undefined,
    guess?: RecordGuess<T>,
  ): Promise<'stored' | 'limit' | 'unchanged'>
  touch(ids: readonly string[]): Promise<void>
  remove(id: string): Promise<void>
}

/** A record of the size of the largest result that is sent. */
const MAX_BYTES = 16 * 1024 * 1024
/** Attempts of one change. Others have succeeded as often. */
const MAX_TRIES = 32

export function createRecords(host: FlowHost, store: RecordStore): SealedRecords {
  const placeOf = (id: string): string => JSON.stringify(['record', id, host.audience])
  const nameOf = (id: string): string => `${host.audience} ${id}`

  const get: SealedRecords['get'] = async (id, narrow) => {
    await host.keys.ready()
    const stored = await store.get(nameOf(id))
    if (stored === undefined) return undefined
    const opened = openEnvelope(host.keys.ring, placeOf(id), stored.sealed, MAX_BYTES)
    const value = opened.kind === 'open' ? narrow(JSON.parse(opened.plaintext.toString('utf8'))) : undefined
    return value === undefined ? undefined : { value, version: stored.version, quietMs: stored.quietMs }
  }

  const put: SealedRecords['put'] = async (id, session, { value, ttlMs, ended }, version) => {
    await host.keys.ready()
    const sealed = sealEnvelope(host.keys.ring, placeOf(id), JSON.stringify(value)).token
    if (sealed.length > MAX_BYTES) return 'limit'
    const { share, keptBytes: maxBytes } = session
    const owner = ended ? `ended ${share}` : share
    return store.put({ id: nameOf(id), owner, sealed, version, ttlMs: Math.max(1, ttlMs), maxBytes })
  }

  return {
    get,
    put,
    async change(id, session, edit, narrow, guess) {
      for (let tries = 0; tries < MAX_TRIES; tries++) {
        const isGuessed = guess !== undefined && tries === 0
        const found = isGuessed ? guess : await get(id, narrow)
        const version = found?.version ?? 0
        const next = edit(found?.value)
        if (next === undefined && !isGuessed) return 'unchanged'
        const outcome = next && (await put(id, session, next, version))
        if (outcome === 'stored' && guess) guess.version = version + 1
        if (outcome === 'stored' || outcome === 'limit') return outcome
      }
      throw new RondoError('STORE_BUSY', 'Too many requests change the same session')
    },
    touch: (ids) => store.touch(ids.map(nameOf)),
    remove: (id) => store.remove(nameOf(id)),
  }
}

interface Piece {
  readonly text: string
  readonly ended: boolean
  /** The scopes that a token needs to read the stream. */
  readonly scopes: readonly string[]
}

type Every = (ms: number, tick: () => void) => () => void

export interface Relays {
  /** Passes on what another instance writes. Resolves when there is nothing more, or the client has gone. */
  read(session: Session, stream: string, relay: string, outlet: Outlet): Promise<void>
  /** The first piece of a relay, if it is there. */
  peek(relay: string): Promise<{ readonly scopes: readonly string[] } | undefined>
  /** Resolves when there is news of a stream, or after `ms`. */
  news(stream: string, ms: number): Promise<void>
}

const SIGN_MS = 10_000
/** How long a reader or a writer may be silent. A writer sends a keep-alive every 15 s. */
const SILENT_MS = 45_000
const POLL_MS = 1_000

const pieceId = (relay: string, number: number): string => `relay ${relay} ${number}`

export function createRelays(
  fleet: Fleet,
  records: SealedRecords,
  every: Every,
  findSession: (name: string) => Session | undefined,
): Relays {
  const waiting = new Map<string, Set<() => void>>()
  const writers = new Map<string, (gone: boolean) => void>()

  const write = (session: Session, { stream, relay, after }: Extract<News, { kind: 'wanted' }>): void => {
    const outlet = createRemoteOutlet(session, stream, relay, { fleet, records, every })
    const scopes = session.streams.relay(stream, after, outlet)
    if (scopes === undefined) return
    writers.set(relay, outlet.heard)
    outlet.begin(scopes, () => writers.delete(relay))
  }

  fleet.onNews((news) => {
    if (news.kind === 'call') for (const wake of waiting.get(news.call) ?? []) wake()
    else if (news.kind === 'reader') writers.get(news.relay)?.(news.gone)
    else if (news.kind === 'wanted') {
      const session = findSession(news.session)
      if (session) write(session, news)
    }
  })

  const news = (stream: string, ms: number): Promise<void> =>
    new Promise((resolve) => {
      const others = waiting.get(stream) ?? new Set()
      waiting.set(stream, others)
      const wake = (): void => {
        clearTimeout(timer)
        others.delete(wake)
        if (others.size === 0) waiting.delete(stream)
        resolve()
      }
      const timer = setTimeout(wake, ms)
      others.add(wake)
    })

  return {
    news,
    peek: async (relay) => (await records.get(pieceId(relay, 0), narrowPiece))?.value,
    async read(session, stream, relay, outlet) {
      const say = (gone: boolean): void =>
        fleet.announce({ kind: 'reader', session: session.name, stream, relay, gone })
      const stopSaying = every(SIGN_MS, () => say(false))
      let heardAt = Date.now()
      try {
        for (let number = 0; !outlet.gone; ) {
          const piece = (await records.get(pieceId(relay, number), narrowPiece))?.value
          if (piece === undefined) {
            if (Date.now() - heardAt > SILENT_MS) break
            await news(stream, POLL_MS)
            continue
          }
          heardAt = Date.now()
          if (piece.text !== '') outlet.write(piece.text)
          await records.remove(pieceId(relay, number))
          number += 1
          if (piece.ended) break
        }
      } finally {
        stopSaying()
        if (outlet.gone) say(true)
        else outlet.end()
      }
    },
  }
}

interface RemoteOutlet extends Outlet {
  /** Says what a token needs to read what was written, and begins to write. */
  begin(scopes: readonly string[], onEnd: () => void): void
  /** There is news of the reader. */
  heard(gone: boolean): void
}

function createRemoteOutlet(
  session: Session,
  stream: string,
  relay: string,
  { fleet, records, every }: { fleet: Fleet; records: SealedRecords; every: Every },
): RemoteOutlet {
  const listeners = new Set<() => void>()
  let pending = ''
  let scopes: readonly string[] | undefined
  let isGone = false
  let ended = false
  let writing = false
  let number = 0
  let heardAt = Date.now()
  let finish = (): void => {}
  let stopWatching = (): void => {}

  const close = (): void => {
    stopWatching()
    finish()
  }
  const leave = (): void => {
    if (isGone || ended) return
    isGone = true
    close()
    for (const listener of [...listeners]) listener()
  }
  const flush = async (): Promise<void> => {
    if (writing || scopes === undefined) return
    writing = true
    try {
      for (let isLast = false; !isGone && !isLast && (pending !== '' || ended); ) {
        const text = pending
        pending = ''
        isLast = ended
        const value: Piece = { text, ended: isLast, scopes }
        const next = { value, ttlMs: Math.max(SILENT_MS, session.resumeMs) }
        const outcome = await records.put(pieceId(relay, number), session, next, 0)
        if (outcome === 'limit') return leave()
        number += 1
        await fleet.tell({ kind: 'call', call: stream })
      }
    } catch {
      // The store is away: the client resumes its stream once more.
      leave()
    } finally {
      writing = false
    }
  }
  return {
    begin(given, onEnd) {
      scopes = given
      finish = onEnd
      // A stream that has ended is whole by now, and closes nothing any more.
      if (ended) {
        onEnd()
        return void flush()
      }
      stopWatching = every(SIGN_MS, () => {
        if (Date.now() - heardAt > SILENT_MS) leave()
      })
      // A stream that is resumed writes something at once, so there is a first piece.
      void flush()
    },
    heard(gone) {
      heardAt = Date.now()
      if (gone) leave()
    },
    send() {},
    open() {},
    write(text) {
      if (isGone || ended) return
      pending += text
      void flush()
    },
    end() {
      if (ended || isGone) return
      ended = true
      void flush()
      close()
    },
    fail: leave,
    drop: leave,
    get gone() {
      return isGone
    },
    get ended() {
      return ended
    },
    address: undefined,
    get backlog() {
      return pending.length
    },
    onGone(listener) {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
  }
}

function narrowPiece(value: unknown): Piece | undefined {
  return isRecord(value) && isText(value.text) && Array.isArray(value.scopes)
    ? (value as unknown as Piece)
    : undefined
}
