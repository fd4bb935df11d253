/** Instances that share a store, as the sessions of older clients see them. Clock, timers and bus are driven by hand. */

import type { FlowHost } from '../../packages/rondo/src/carry/host.ts'
import { generateKey, resolveKeys } from '../../packages/rondo/src/seal/key-ring.ts'
import type { Fleet, News } from '../../packages/rondo/src/serve/fleet.ts'
import { createChangeBus } from '../../packages/rondo/src/serve/http/subscription.ts'
import { resolveSessions, type SessionOptions } from '../../packages/rondo/src/session/options.ts'
import type { Session } from '../../packages/rondo/src/session/session.ts'
import { createSessionTable, type SessionTable } from '../../packages/rondo/src/session/table.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { RecordStore, RecordWrite } from '../../packages/rondo/src/store/store.ts'

export const FACTS = { protocolVersion: '2025-11-25', capabilities: {} }
export const LEASE_MS = 3_000

export interface Instance {
  readonly host: FlowHost
  readonly fleet: Fleet
  readonly table: SessionTable
  /** Its part of a session that every instance knows. */
  session(owner?: string, secret?: string, id?: string): Session
  every(ms: number, tick: () => void): () => void
  /** The store and the bus as this instance finds them. */
  readonly link: {
    isAway: boolean
    /** The store has no room. */
    isFull: boolean
    /** Called before a record is written. */
    beforePut?(): unknown
  }
  /** What it did: news that it told, reads and writes of the store, lines of its log. */
  readonly told: News[]
  readonly reads: string[]
  readonly writes: RecordWrite[]
  readonly log: unknown[]
  /** Timers that run. */
  readonly timers: { readonly ms: number; readonly tick: () => void }[]
  /** Alarms that are set. */
  readonly alarms: { readonly ms: number; readonly run: () => void }[]
  /** Another instance, or the bus, has news. */
  hear(news: News): Promise<void>
}

export interface World {
  readonly clock: { now: number }
  readonly store: RecordStore
  /** The text of the key that all have. */
  readonly key: string
  readonly instances: readonly Instance[]
}

export function startInstances(
  count: number,
  options: SessionOptions = {},
  more: Partial<FlowHost> = {},
): World {
  const clock = { now: 1_000_000 }
  const store = createMemoryStore({ now: () => clock.now }).records as RecordStore
  const key = generateKey()
  const keys = resolveKeys(key)
  const instances: Instance[] = []
  let ids = 0
  const start = (): Instance => {
    const listeners: ((news: News) => void | Promise<void>)[] = []
    const [told, reads, writes, log] = [[] as News[], [] as string[], [] as RecordWrite[], [] as unknown[]]
    const timers: { ms: number; tick: () => void }[] = []
    const link: Instance['link'] = { isAway: false, isFull: false }
    const check = (): void => {
      if (link.isAway) throw new Error('The store is away')
    }
    const records: RecordStore = {
      async get(id) {
        check()
        reads.push(id)
        return store.get(id)
      },
      async put(record) {
        check()
        await link.beforePut?.()
        writes.push(record)
        return link.isFull ? 'limit' : store.put(record)
      },
      async touch(ids) {
        check()
        await store.touch(ids)
      },
      async remove(id) {
        check()
        await store.remove(id)
      },
    }
    const hear = async (news: News): Promise<void> => {
      for (const listener of listeners) await listener(news)
    }
    const tell = async (news: News): Promise<void> => {
      check()
      told.push(news)
      for (const other of instances) if (other.told !== told) await other.hear(news).catch(() => {})
    }
    const fleet: Fleet = {
      records,
      start() {},
      stop() {},
      tell,
      announce: (news) => void tell(news).catch(() => {}),
      onNews: (listener) => void listeners.push(listener),
    }
    const every = (ms: number, tick: () => void) => {
      const timer = { ms, tick }
      timers.push(timer)
      return () => void timers.splice(timers.indexOf(timer), 1)
    }
    const alarms: { ms: number; run: () => void }[] = []
    const after = (ms: number, run: () => void) => {
      const alarm = { ms, run }
      alarms.push(alarm)
      return () => void alarms.splice(alarms.indexOf(alarm), 1)
    }
    const platform = { now: () => clock.now, randomId: () => `id${ids++}`, after }
    const host = {
      audience: 'test',
      keys,
      platform,
      leaseMs: LEASE_MS,
      log: (event: unknown) => void log.push(event),
      ...more,
    } as unknown as FlowHost
    const settings = resolveSessions(options, { ...platform, every: () => () => {} })
    const table = createSessionTable(settings, createChangeBus())
    const session = (owner = 'alice', secret?: string, id = 's.one'): Session =>
      table.adopt({ id, until: clock.now + 3_600_000, secret }, FACTS, owner)
    return { host, fleet, table, session, every, link, told, reads, writes, log, timers, alarms, hear }
  }
  for (let i = 0; i < count; i++) instances.push(start())
  return { clock, store, key, instances }
}

/** Lets everything settle that can. */
export const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
