/**
 * The port for approvals: requests, what is due for them, and the record.
 *
 * A request is one sealed row that is replaced as a whole, by version. Labels find it again: a list of requests is the list of
 * one label, in the order of their creation. Jobs are what is due for a request, such as a notification. The record is a chain
 * of signed entries for each tenant; the store keeps it and cannot make an entry up, because it has no key.
 *
 * approvals 1: of any number of concurrent writes that replace one version, exactly one is `stored`; the others `conflict`.
 *              The same write again (a retry after a lost connection) is `stored`, and is applied once.
 * approvals 2: the row, its labels, its jobs and its entries in the record change together or not at all.
 * approvals 3: a job is claimed by one worker at a time. A claim counts until its lease ends; a write that completes a job
 *              under an earlier claim is a `conflict`.
 * approvals 4: entries have the numbers 1, 2, 3 … without gaps, and each names the hash of the one before, whoever appends.
 * approvals 5: no method shows or changes anything of another tenant.
 */

import type { Sealed } from './task-engine.ts'

export interface ApprovalRow {
  readonly id: string
  readonly version: number
  readonly sealed: Sealed
  /** When it was first written, as the writer says, ms since the Unix epoch. */
  readonly createdAt: number
}

/** The work that is due for a request. */
export interface ApprovalJob {
  readonly name: string
  /** Ms since the Unix epoch, by the store's clock; null removes the job. */
  readonly dueAt: number | null
  /** How often it was tried. Default: 0. */
  readonly attempts?: number
}

/** A job that a worker holds until its lease ends. */
export interface ClaimedJob {
  readonly request: string
  readonly name: string
  /** How often it was claimed since it was set, this claim included. */
  readonly attempts: number
  /** Identifies the claim. */
  readonly epoch: number
}

/** The end of a chain: the number and the hash of its last entry. */
export interface ChainLink {
  readonly seq: number
  readonly hash: string
}

/** One entry of the record. */
export interface ChainEntry extends ChainLink {
  /** The hash of the entry before it; empty for the first. */
  readonly previous: string
  /** The id of the key that signed it. */
  readonly key: string
  readonly signature: string
  /** Ms since the Unix epoch. */
  readonly at: number
  /** Sealed content, or a checkpoint in the clear. */
  readonly content: string
}

/** Makes the entry that follows `last`. Pure, because a write may be repeated. */
export type ChainEntryAfter = (last: ChainLink) => ChainEntry

export interface ApprovalWrite {
  readonly tenant: string
  readonly id: string
  /** The version that it replaces; 0 if there must be none. */
  readonly version: number
  /** Random, so that a repeated write is recognised. */
  readonly write: string
  readonly sealed: Sealed
  readonly createdAt: number
  /** All labels of the request from now on. */
  readonly labels: readonly string[]
  /** When the row may be deleted, ms since the Unix epoch. Default: never. */
  readonly expiresAt?: number
  /** Jobs to set or to remove. Others stay as they are. */
  readonly jobs?: readonly ApprovalJob[]
  /** The claimed job that this write completes. */
  readonly done?: { readonly name: string; readonly epoch: number }
  /** Entries to append to the record, in this order. */
  readonly entries?: readonly ChainEntryAfter[]
}

export interface ApprovalQuery {
  readonly tenant: string
  readonly label: string
  /** The last request of the page before. */
  readonly after?: { readonly createdAt: number; readonly id: string }
  readonly limit: number
  /** Default: the oldest first. */
  readonly newestFirst?: boolean
}

/** The entries that a write appended: the new end of the chain, if there were any. */
export type ApprovalOutcome =
  | { readonly kind: 'stored'; readonly head?: ChainLink }
  | { readonly kind: 'conflict' }

export interface ApprovalStore {
  /** The time by which jobs are due, ms since the Unix epoch. Processes have other clocks. */
  now(): Promise<number>
  get(tenant: string, id: string): Promise<ApprovalRow | undefined>
  put(write: ApprovalWrite): Promise<ApprovalOutcome>
  list(query: ApprovalQuery): Promise<readonly ApprovalRow[]>
  /** Up to `limit` labels with this prefix that requests have, in their order. */
  labels(tenant: string, prefix: string, limit: number): Promise<readonly string[]>
  /** Claims jobs that are due, the oldest first. They are due again when the lease ends. */
  claim(tenant: string, leaseMs: number, limit: number): Promise<readonly ClaimedJob[]>
  /** The tenants that have a record. */
  tenants(): Promise<readonly string[]>
  /** The end of the chain; undefined if there is no entry. */
  head(tenant: string): Promise<ChainLink | undefined>
  /** Entries after this number, in order. */
  entries(tenant: string, after: number, limit: number): Promise<readonly ChainEntry[]>
  /**
   * Deletes the entries up to the number `through`, and appends one that `checkpoint` makes of the last that was deleted. Returns
   * the new end of the chain; undefined, and nothing changes, if there is no such entry.
   */
  prune(
    tenant: string,
    through: number,
    checkpoint: (pruned: ChainLink) => ChainEntryAfter,
  ): Promise<ChainLink | undefined>
}

/** The end of a chain that has no entry yet. */
export const NO_ENTRY: ChainLink = { seq: 0, hash: '' }

/** Makes the entries that follow `last`, one after the other. */
export function chainAfter(last: ChainLink, entries: readonly ChainEntryAfter[]): readonly ChainEntry[] {
  const made: ChainEntry[] = []
  for (const entry of entries) made.push(entry(made.at(-1) ?? last))
  return made
}
