/**
 * The ports of a store: tasks, single use, blobs, for a fleet records and the bus, approvals, operators, permits and alarms. One database
 * implements all of them and is opened on first use.
 */

import { randomBytes } from 'node:crypto'
import type { AlarmStore } from './alarms.ts'
import type { ApprovalStore } from './approvals.ts'
import type { OperatorStore } from './operator.ts'
import type { PermitStore } from './permits.ts'
import type { EngineOptions, Sealed, TaskEngine } from './task-engine.ts'
import type { OperatorTasks, TaskStore } from './task-store.ts'

interface StorePorts {
  /** The kind of database, for the log. */
  readonly kind?: string
  readonly once: OnceStore
  readonly blobs: BlobStore
  /** The records of older clients' sessions that instances share. Without it such a session needs sticky routing. */
  readonly records?: RecordStore
  /** Carries changes between instances. Without it each instance notifies only its own subscribers. */
  readonly bus?: Bus
  /** Requests for approval and their record. Without it `@rondo/approvals` refuses to start. */
  readonly approvals?: ApprovalStore
  /** An operator's changes to tasks and tools. Without it failed tasks keep no journal, and `rondo tasks` only shows. */
  readonly operator?: OperatorStore
  /** Limits how many calls run at once. Without it a tool with `concurrency` or `dedupe` is refused. */
  readonly permits?: PermitStore
  /** Tasks that are due when another one ends. Without it an effect with `undo` is refused. */
  readonly alarms?: AlarmStore
  /** Opens the database and prepares its tables. Every other method does so too. */
  ready(): Promise<void>
  /** For an operator: what the tables say about themselves, and what is wrong with them. Changes nothing. */
  check?(): Promise<StoreCheck>
  /** Creates or upgrades the tables, and builds all of their indexes. */
  migrate?(): Promise<void>
  /** Deletes up to `limit` expired rows of each kind; returns how many were deleted. */
  sweep(limit: number): Promise<number>
  close(): Promise<void>
}

/** The state of a store's tables. */
export interface StoreCheck {
  /** The version of the tables; 0 if there are none. */
  readonly version: number
  /** The oldest version whose releases can use the tables. */
  readonly minCompatible: number
  /** The version that this release creates. */
  readonly supported: number
  /** Sentences: what is wrong, and what to do. */
  readonly problems: readonly string[]
}

/** A database: `createLeaseEngine` runs its tasks. */
export interface Store extends StorePorts {
  readonly tasks: TaskStore
}

/** A store that runs tasks with an engine of its own. */
export interface EngineStore extends StorePorts {
  readonly tasks: OperatorTasks
  createEngine(options?: EngineOptions): TaskEngine
}

/**
 * Keeps what is too large for a token, which then carries the id. The caller opens the seal and checks what the blob may
 * be used for. A blob is written once: a second `put` under its id has no effect.
 */
export interface BlobStore {
  /** Resolves when the blob is durable. `expiresAt` is in ms since the Unix epoch. */
  put(id: string, sealed: Sealed, expiresAt: number): Promise<void>
  /** Undefined once the blob has expired. */
  get(id: string): Promise<Sealed | undefined>
}

export interface OnceSlot {
  readonly flow: string
  readonly round: number
  /** Distinguishes this request from any other that would use the same slot. */
  readonly digest: string
  /** The epoch under which the round was handed out. */
  readonly epoch: string
  /** From then on claims are refused and the record may be deleted; ms since the Unix epoch. */
  readonly expiresAt: number
}

export interface OnceAttempt {
  /** Random, so that a claim can be repeated after a lost connection. */
  readonly claimant: string
  /** How long the slot is held for a claimant that neither stores a response nor renews its hold. */
  readonly holdMs: number
}

export type OnceClaim =
  | { readonly kind: 'first' }
  | { readonly kind: 'stored'; readonly response: Sealed }
  /** The same request is in progress, or its claimant died. The hold ends in `retryMs`. */
  | { readonly kind: 'busy'; readonly retryMs: number }
  | { readonly kind: 'refused'; readonly reason: 'used' | 'epoch' | 'expired' }

/**
 * Single use: one request per round of a flow is processed, and a repetition of it gets the same response.
 *
 * The slot is (flow, round). The first request claims it with its digest, renews its hold while it works, and stores its
 * response. If it vanishes, only the same request can claim the slot again, `holdMs` after the last renewal.
 *
 * once 1: of any number of concurrent claims, exactly one is `first`.
 * once 2: the first response stored is final; every other request gets its bytes.
 * once 3: a request with another digest is refused for good.
 * once 4: a store cannot tell that it lost records, so it has an epoch. Callers seal the epoch into what they hand out,
 *         and a claim that names another epoch, or comes after its expiry, is refused.
 */
export interface OnceStore {
  /** Changes when the store is emptied and, where that can be detected, when a backup is restored. */
  epoch(): Promise<string>
  /** Starts a new epoch, for after a backup was restored in place. Everything handed out before is refused. */
  renewEpoch(): Promise<string>
  claim(slot: OnceSlot, attempt: OnceAttempt): Promise<OnceClaim>
  /** Extends the hold to `holdMs` from now, or releases it with 0; false if the claimant no longer holds the slot. */
  renew(slot: OnceSlot, attempt: OnceAttempt): Promise<boolean>
  /** Stores the response unless there is one already; returns the one that is stored. */
  settle(slot: OnceSlot, response: Sealed): Promise<Sealed>
}

/**
 * Returns a new random epoch, for a store to keep when its database is created and in `renewEpoch`.
 *
 * @example
 * ```ts
 * if (!values.has('epoch')) values.set('epoch', createEpoch())
 * ```
 */
export function createEpoch(): string {
  return randomBytes(12).toString('base64url')
}

export interface RecordWrite {
  readonly id: string
  /** Whose share of the limits it uses. */
  readonly owner: string
  readonly sealed: Sealed
  /** The version that it replaces; 0 if there must be none. */
  readonly version: number
  /** How long it lives from now on. */
  readonly ttlMs: number
  /** Bytes that all records of the owner may have together, each with `RECORD_BYTES` more. */
  readonly maxBytes: number
}

export interface StoredRecord {
  readonly sealed: Sealed
  readonly version: number
  /** How long ago it was last written or touched, by the store's clock. */
  readonly quietMs: number
}

/** The bytes that a record counts for besides its sealed text. */
export const RECORD_BYTES = 256

/**
 * Small sealed records that several instances change.
 *
 * record 1: of any number of concurrent writes that replace one version, exactly one is `stored`; the others `conflict`. The
 *           same write again (a retry after a lost connection) is `stored`.
 * record 2: a write that would take its owner over `maxBytes` is refused with `limit` and changes nothing.
 * record 3: expired records are invisible at once, and do not count.
 *
 * A write does not add up all records of its owner: a store keeps an upper bound of their bytes, which only writes raise, and
 * adds up when the bound exceeds `maxBytes`.
 */
export interface RecordStore {
  get(id: string): Promise<StoredRecord | undefined>
  put(record: RecordWrite): Promise<'stored' | 'conflict' | 'limit'>
  /** Says that whoever holds these records is alive. Does not change their versions. */
  touch(ids: readonly string[]): Promise<void>
  remove(id: string): Promise<void>
}

export interface BusSubscription {
  /** Resolves when every message that is published from now on will arrive. */
  readonly started: Promise<void>
  stop(): void
}

/** Receives what is on the bus, one batch after the other. */
export interface BusListener {
  receive(messages: readonly string[]): void | Promise<void>
  /** Messages were lost: anything may have happened. */
  lost(): void | Promise<void>
}

/**
 * Carries short messages to every process that shares the store, this one included, in one order.
 *
 * bus 1: a message that was published after a listener subscribed reaches it once, after every message before it, also if
 *        the connection was lost meanwhile.
 * bus 2: if messages are lost, because a listener was away for too long or more came than it can take, it is told so.
 * bus 3: bounded: a process has one write to the bus under way, and the queue before it, a message, a batch and the rate at
 *        which a listener reads are limited, whatever others publish.
 */
export interface Bus {
  /** Resolves when the message is durable. A message that is already queued is sent once. */
  publish(message: string): Promise<void>
  subscribe(listener: BusListener): BusSubscription
}
