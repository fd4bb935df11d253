/** Single use and blobs as virtual objects: `RondoOnce/<round and flow>`, `RondoEpoch/current`, `RondoBlob/<id>`. */

import type { ObjectContext } from '@restatedev/restate-sdk'
import {
  type BlobStore,
  createEpoch,
  type OnceAttempt,
  type OnceClaim,
  type OnceSlot,
  type OnceStore,
} from '../store.ts'
import type { Sealed } from '../task-engine.ts'
import type { ServiceNames } from './task-object.ts'

interface OnceRow {
  readonly digest: string
  readonly claimant: string
  readonly holdUntil: number
  readonly response?: string
}

interface Attempted {
  readonly at: number
  readonly slot: OnceSlot
  readonly attempt: OnceAttempt
}

const ROW = 'row'

/** The handlers of a slot. Its row is deleted by a call that it sends to itself, for the time at which it expires. */
export function createOnceObject(names: ServiceNames) {
  return {
    async claim(ctx: ObjectContext, { at, slot, attempt }: Attempted): Promise<OnceClaim> {
      if (slot.expiresAt <= at) return { kind: 'refused', reason: 'expired' }
      const row = await ctx.get<OnceRow>(ROW)
      if (row !== null) {
        if (row.digest !== slot.digest) return { kind: 'refused', reason: 'used' }
        if (row.response !== undefined) return { kind: 'stored', response: row.response }
        if (row.claimant !== attempt.claimant && row.holdUntil > at)
          return { kind: 'busy', retryMs: row.holdUntil - at }
      }
      const { claimant, holdMs } = attempt
      ctx.set<OnceRow>(ROW, { digest: slot.digest, claimant, holdUntil: at + holdMs })
      if (row === null) deleteLater(ctx, names.once, slot.expiresAt - at)
      return { kind: 'first' }
    },
    async renew(ctx: ObjectContext, { at, attempt: { claimant, holdMs } }: Attempted): Promise<boolean> {
      const row = await ctx.get<OnceRow>(ROW)
      if (row === null || row.claimant !== claimant || row.response !== undefined) return false
      ctx.set<OnceRow>(ROW, { ...row, holdUntil: at + holdMs })
      return true
    },
    async settle(
      ctx: ObjectContext,
      { slot, response }: { readonly slot: OnceSlot; readonly response: Sealed },
    ): Promise<Sealed> {
      const row = await ctx.get<OnceRow>(ROW)
      if (row === null || row.digest !== slot.digest) return response
      if (row.response !== undefined) return row.response
      ctx.set<OnceRow>(ROW, { ...row, response })
      return response
    },
    delete: (ctx: ObjectContext): Promise<null> => deleteAll(ctx),
  }
}

const EPOCH_KEY = 'current'

export function createEpochObject() {
  return {
    async current(ctx: Pick<ObjectContext, 'get'>): Promise<string | null> {
      return await ctx.get<string>(ROW)
    },
    /** Starts the given epoch, unless there is one and `replace` is false; returns the current one. */
    async start(
      ctx: ObjectContext,
      input: { readonly epoch: string; readonly replace: boolean },
    ): Promise<string> {
      const current = input.replace ? null : await ctx.get<string>(ROW)
      if (current === null) ctx.set(ROW, input.epoch)
      return current ?? input.epoch
    },
  }
}

interface BlobRow {
  readonly sealed: Sealed
  readonly expiresAt: number
}

export function createBlobObject(names: ServiceNames) {
  return {
    async put(
      ctx: ObjectContext,
      { at, sealed, expiresAt }: BlobRow & { readonly at: number },
    ): Promise<null> {
      if ((await ctx.get<BlobRow>(ROW)) !== null) return null
      ctx.set<BlobRow>(ROW, { sealed, expiresAt })
      deleteLater(ctx, names.blob, expiresAt - at)
      return null
    },
    async read(ctx: Pick<ObjectContext, 'get'>, { at }: { readonly at: number }): Promise<Sealed | null> {
      const row = await ctx.get<BlobRow>(ROW)
      return row !== null && row.expiresAt > at ? row.sealed : null
    },
    delete: (ctx: ObjectContext): Promise<null> => deleteAll(ctx),
  }
}

async function deleteAll(ctx: ObjectContext): Promise<null> {
  ctx.clearAll()
  return null
}

function deleteLater(ctx: ObjectContext, service: string, delay: number): void {
  ctx.genericSend({
    service,
    method: 'delete',
    key: ctx.key,
    parameter: Buffer.from('{}'),
    delay: Math.max(delay, 1),
  })
}

/** Calls a handler of an object. */
export type CallObject = (
  service: string,
  key: string,
  handler: string,
  input: unknown,
  once?: boolean,
) => Promise<unknown>

export function createOnce(names: ServiceNames, call: CallObject, now: () => number): OnceStore {
  const onSlot = (slot: OnceSlot, handler: string, input: object) =>
    call(names.once, `${slot.round} ${slot.flow}`, handler, { at: now(), slot, ...input }, true)
  const start = async (replace: boolean) =>
    String(await call(names.epoch, EPOCH_KEY, 'start', { epoch: createEpoch(), replace }, true))
  const epoch = async () =>
    ((await call(names.epoch, EPOCH_KEY, 'current', {})) as string | null) ?? (await start(false))
  return {
    epoch,
    renewEpoch: () => start(true),
    async claim(slot, attempt) {
      if (slot.epoch !== (await epoch())) return { kind: 'refused', reason: 'epoch' }
      return (await onSlot(slot, 'claim', { attempt })) as OnceClaim
    },
    renew: async (slot, attempt) => (await onSlot(slot, 'renew', { attempt })) as boolean,
    settle: async (slot, response) => (await onSlot(slot, 'settle', { response })) as Sealed,
  }
}

export function createBlobs(names: ServiceNames, call: CallObject, now: () => number): BlobStore {
  return {
    async put(id, sealed, expiresAt) {
      await call(names.blob, id, 'put', { at: now(), sealed, expiresAt }, true)
    },
    async get(id) {
      return ((await call(names.blob, id, 'read', { at: now() })) as Sealed | null) ?? undefined
    },
  }
}
