/** All ports in the memory of one process: for tests and first steps. Nothing survives the process. */

import {
  type BlobStore,
  createEpoch,
  type OnceClaim,
  type OnceSlot,
  type OnceStore,
  type Store,
} from '../store.ts'
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
  return {
    kind: 'memory',
    tasks: createMemoryTasks(table),
    once: once.port,
    blobs: blobs.port,
    ready: async () => {},
    sweep: async (limit) => table.sweep(limit) + once.sweep(limit) + blobs.sweep(limit),
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
