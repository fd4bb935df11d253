/** All ports in the memory of one process: for tests and first steps. Nothing survives the process. */

import { BUS_LIMITS, type BusRow, createBus } from '../bus.ts'
import {
  type BlobStore,
  createEpoch,
  type OnceClaim,
  type OnceSlot,
  type OnceStore,
  RECORD_BYTES,
  type RecordStore,
  type Store,
} from '../store.ts'
import { createMemoryAlarms } from './alarms.ts'
import { createMemoryApprovals } from './approvals.ts'
import { createMemoryOperator, scrubKept } from './operator.ts'
import { createMemoryPermits } from './permits.ts'
import { createMemoryTable, createMemoryTasks } from './tasks.ts'

export interface MemoryStoreOptions {
  /** Ms since the Unix epoch. */
  now?: () => number
}

interface OnceRow extends OnceSlot {
  claimant: string
  holdUntil: number
  response?: string
}

interface Swept<T> {
  readonly port: T
  sweep(limit: number): number
}

export function createMemoryStore({ now = Date.now }: MemoryStoreOptions = {}): Store {
  const table = createMemoryTable(now)
  const once = createOnce(now)
  const blobs = createBlobs(now)
  const records = createRecords(now)
  const bus = createMemoryBus(now)
  const approvals = createMemoryApprovals(now)
  const permits = createMemoryPermits(table)
  const alarms = createMemoryAlarms(table)
  return {
    kind: 'memory',
    tasks: createMemoryTasks(table),
    once: once.port,
    blobs: blobs.port,
    records: records.port,
    bus: bus.port,
    approvals: approvals.port,
    operator: createMemoryOperator(table),
    permits: permits.port,
    alarms: alarms.port,
    ready: async () => {},
    sweep: async (limit) =>
      [table, once, blobs, records, bus, approvals, permits, alarms].reduce(
        (sum, part) => sum + part.sweep(limit),
        scrubKept(table, limit),
      ),
    close: async () => {},
  }
}

function sweepMap(rows: Map<string, { readonly expiresAt: number }>, now: () => number) {
  return (limit: number): number => {
    const gone = [...rows].filter(([, row]) => row.expiresAt <= now()).slice(0, limit)
    for (const [key] of gone) rows.delete(key)
    return gone.length
  }
}

function createOnce(now: () => number): Swept<OnceStore> {
  const rows = new Map<string, OnceRow>()
  let epoch = createEpoch()
  const keyOf = (slot: OnceSlot) => `${slot.round} ${slot.flow}`
  const claim: OnceStore['claim'] = async (slot, { claimant, holdMs }): Promise<OnceClaim> => {
    if (slot.epoch !== epoch) return { kind: 'refused', reason: 'epoch' }
    if (slot.expiresAt <= now()) return { kind: 'refused', reason: 'expired' }
    const row = rows.get(keyOf(slot))
    if (row !== undefined) {
      if (row.digest !== slot.digest) return { kind: 'refused', reason: 'used' }
      if (row.response !== undefined) return { kind: 'stored', response: row.response }
      if (row.claimant !== claimant && row.holdUntil > now())
        return { kind: 'busy', retryMs: row.holdUntil - now() }
    }
    rows.set(keyOf(slot), { ...slot, claimant, holdUntil: now() + holdMs })
    return { kind: 'first' }
  }
  const port: OnceStore = {
    epoch: async () => epoch,
    async renewEpoch() {
      epoch = createEpoch()
      return epoch
    },
    claim,
    async renew(slot, { claimant, holdMs }) {
      const row = rows.get(keyOf(slot))
      if (row?.claimant !== claimant || row.response !== undefined) return false
      row.holdUntil = now() + holdMs
      return true
    },
    async settle(slot, response) {
      const row = rows.get(keyOf(slot))
      if (row?.digest !== slot.digest) return response
      row.response ??= response
      return row.response
    },
  }
  return { port, sweep: sweepMap(rows, now) }
}

function createBlobs(now: () => number): Swept<BlobStore> {
  const rows = new Map<string, { sealed: string; expiresAt: number }>()
  const port: BlobStore = {
    async put(id, sealed, expiresAt) {
      if (!rows.has(id)) rows.set(id, { sealed, expiresAt })
    },
    async get(id) {
      const row = rows.get(id)
      return row !== undefined && row.expiresAt > now() ? row.sealed : undefined
    },
  }
  return { port, sweep: sweepMap(rows, now) }
}

interface RecordRow {
  readonly owner: string
  readonly sealed: string
  readonly version: number
  readonly expiresAt: number
  touchedAt: number
}

function createRecords(now: () => number): Swept<RecordStore> {
  const rows = new Map<string, RecordRow>()
  /** At least the bytes of an owner's records, until the last of them has expired. */
  const bounds = new Map<string, { readonly bytes: number; readonly expiresAt: number }>()
  const find = (id: string): RecordRow | undefined => {
    const row = rows.get(id)
    return row !== undefined && row.expiresAt > now() ? row : undefined
  }
  const bytesOf = (owner: string, besides: string): number => {
    let bytes = 0
    for (const [id, row] of rows)
      if (row.owner === owner && id !== besides && row.expiresAt > now())
        bytes += row.sealed.length + RECORD_BYTES
    return bytes
  }
  const port: RecordStore = {
    async get(id) {
      const row = find(id)
      return row && { sealed: row.sealed, version: row.version, quietMs: now() - row.touchedAt }
    },
    async put({ id, owner, sealed, version, ttlMs, maxBytes }) {
      const row = find(id)
      if ((row?.version ?? 0) !== version) return row?.sealed === sealed ? 'stored' : 'conflict'
      const bound = bounds.get(owner)
      const size = sealed.length + RECORD_BYTES
      const replaced = row?.owner === owner ? row.sealed.length + RECORD_BYTES : 0
      let bytes = (bound?.bytes ?? bytesOf(owner, id) + replaced) - replaced + size
      if (bytes > maxBytes) bytes = bytesOf(owner, id) + size
      if (bytes > maxBytes) return 'limit'
      const expiresAt = now() + ttlMs
      bounds.set(owner, { bytes, expiresAt: Math.max(expiresAt, bound?.expiresAt ?? 0) })
      rows.set(id, { owner, sealed, version: version + 1, expiresAt, touchedAt: now() })
      return 'stored'
    },
    async touch(ids) {
      for (const id of ids) {
        const row = find(id)
        if (row) row.touchedAt = now()
      }
    },
    async remove(id) {
      rows.delete(id)
    },
  }
  const sweepRows = sweepMap(rows, now)
  const sweepBounds = sweepMap(bounds, now)
  return {
    port,
    sweep(limit) {
      sweepBounds(limit)
      return sweepRows(limit)
    },
  }
}

function createMemoryBus(now: () => number) {
  let rows: (BusRow & { readonly at: number })[] = []
  let last = 0
  const listeners = new Set<() => void>()
  const port = createBus({
    pollMs: 60_000,
    async append(messages) {
      for (const message of messages) rows.push({ position: ++last, message, at: now() })
      if (rows.length > BUS_LIMITS.keepRows) rows = rows.slice(-BUS_LIMITS.keepRows)
      for (const listener of [...listeners]) listener()
    },
    async read(after, limit) {
      const oldest = rows[0]?.position
      const from = oldest === undefined ? 0 : Math.max(0, after + 1 - oldest)
      return { rows: rows.slice(from, from + limit), oldest }
    },
    newest: async () => last,
    onHint(listener) {
      const wrapped = (): void => listener()
      listeners.add(wrapped)
      return () => void listeners.delete(wrapped)
    },
  })
  const sweep = (limit: number): number => {
    const gone = rows.findIndex(({ at }) => now() - at < BUS_LIMITS.keepMs)
    const count = Math.min(gone === -1 ? rows.length : gone, limit)
    rows.splice(0, count)
    return count
  }
  return { port, sweep }
}
