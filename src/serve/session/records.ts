/** Sealed records of sessions in the store. Each is sealed for its place: nobody who can write to the store can move one. */

import type { FlowHost } from '../../carry/host.ts'
import { RondoError } from '../../errors.ts'
import { openEnvelope, sealEnvelope } from '../../seal/envelope.ts'
import type { RecordStore } from '../../store/store.ts'
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
  /** Changes a record, however many others do so at the same time. `edit` may return undefined to leave it as it is. */
  change<T>(
    id: string,
    session: Session,
    edit: (value: T | undefined, quietMs: number) => NextRecord<T> | undefined,
    narrow: (value: unknown) => T | undefined,
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

  const put: SealedRecords['put'] = async (id, { share, keptBytes: maxBytes }, { value, ttlMs }, version) => {
    await host.keys.ready()
    const sealed = sealEnvelope(host.keys.ring, placeOf(id), JSON.stringify(value)).token
    if (sealed.length > MAX_BYTES) return 'limit'
    return store.put({ id: nameOf(id), owner: share, sealed, version, ttlMs: Math.max(1, ttlMs), maxBytes })
  }

  return {
    get,
    put,
    async change(id, session, edit, narrow) {
      for (let tries = 0; tries < MAX_TRIES; tries++) {
        const found = await get(id, narrow)
        const next = edit(found?.value, found?.quietMs ?? 0)
        if (next === undefined) return 'unchanged'
        const outcome = await put(id, session, next, found?.version ?? 0)
        if (outcome !== 'conflict') return outcome
      }
      throw new RondoError('STORE_BUSY', 'Too many requests change the same session')
    },
    touch: (ids) => store.touch(ids.map(nameOf)),
    remove: (id) => store.remove(nameOf(id)),
  }
}
