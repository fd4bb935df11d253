/**
 * The port for `concurrency`: permits, of which a tag has a limited number, and the queue of those who wait for one.
 *
 * A holder is a flow. It names one tag for each key of the server's ring, and holds all of them or none: during a rotation any two
 * instances have a key in common, so they count each other.
 *
 * permit 1: at any time, by the store's clock, a tag has at most `limit` holders whose hold has not ended.
 * permit 2: every grant has an id of its own. A holder that acquires again gets a new one, and the former grant ends: a process that
 *           was frozen meanwhile, or that runs the same flow, finds out with its next `renew`.
 * permit 3: those who wait are served in the order in which they came, and hold nothing.
 * permit 4: a permit of a task ends with the task at the latest, however it ends, and so does its place in the queue. A permit that
 *           was passed on to another task ends with that one.
 * permit 5: what is released makes the task due that has waited longest. A wake that is lost costs a delay, not the place.
 * permit 6: a turn that has lost its task gets nothing: the task may wait for its client by now, and would keep its place meanwhile.
 */

import { randomBytes } from 'node:crypto'

export interface PermitRequest {
  /** The id of the flow that holds the permit. */
  readonly holder: string
  readonly tags: readonly string[]
  readonly limit: number
  /** How long the hold lasts unless it is renewed. */
  readonly holdMs: number
  /** The task of the flow. */
  readonly task?: string
  /** The turn of the task, which is its epoch. */
  readonly turn?: number
  /** The task with which a permit ends instead: the alarm that undoes the flow's effects (`alarms.ts`). */
  readonly endsWith?: string
  /** Waits in the queue if there is no permit. The task is made due when it may be its turn. */
  readonly queues?: boolean
}

export type PermitGrant =
  | { readonly kind: 'held'; readonly grant: string }
  /**
   * `retryMs`: when the first hold ends that is not renewed. `waitedMs`: how long the holder has been in the queue. `task`: that of
   * a holder, if it has one.
   */
  | {
      readonly kind: 'busy'
      readonly retryMs: number
      readonly waitedMs: number
      readonly task?: string
    }

export interface PermitStore {
  acquire(request: PermitRequest): Promise<PermitGrant>
  /** Extends the hold to `holdMs` from now; false, without effect, if the grant has ended. Passes the permit on to `endsWith`. */
  renew(holder: string, grant: string, holdMs: number, endsWith?: string): Promise<boolean>
  /** Ends the grant, if it has not ended, and the holder's place in the queue. */
  release(holder: string, grant?: string): Promise<void>
}

/** How long a permit may be older than its task: it is acquired before the task is created. */
export const GRACE_MS = 60_000

/** The longest time that a place in the queue is kept. */
export const WAIT_MS: number = 366 * 86_400_000

/** The reply to a turn that has lost its task. */
export const LOST: PermitGrant = { kind: 'busy', retryMs: 0, waitedMs: 0 }

/** A row: one tag of one holder. Only rows whose time is not up, and whose task has not ended, count. */
export interface PermitRow {
  readonly tag: string
  readonly holder: string
  readonly held: boolean
  /** When the holder came. */
  readonly since: number
  readonly until: number
  readonly task?: string
}

export type PermitDecision =
  | { readonly kind: 'hold'; readonly grant: string; readonly since: number }
  | { readonly kind: 'wait'; readonly since: number; readonly busy: Extract<PermitGrant, { kind: 'busy' }> }

/** Decides on a request, given the rows of its tags that count. */
export function decidePermit(
  rows: readonly PermitRow[],
  { holder, tags, limit }: PermitRequest,
  now: number,
): PermitDecision {
  const mine = rows.filter((row) => row.holder === holder)
  const since = Math.min(now, ...mine.map((row) => row.since))
  const grant = randomBytes(12).toString('base64url')
  if (mine.some(({ held }) => held)) return { kind: 'hold', grant, since }
  const others = rows.filter((row) => row.holder !== holder)
  const isAhead = (row: PermitRow): boolean =>
    row.held || row.since < since || (row.since === since && row.holder < holder)
  const isFull = tags.some((tag) => others.filter((row) => row.tag === tag && isAhead(row)).length >= limit)
  if (!isFull) return { kind: 'hold', grant, since }
  const held = others.filter((row) => row.held)
  const ends = Math.min(...held.map(({ until }) => until))
  const task = held.find((row) => row.task !== undefined)?.task
  const retryMs = Number.isFinite(ends) ? Math.max(0, ends - now) : 0
  return { kind: 'wait', since, busy: { kind: 'busy', retryMs, waitedMs: now - since, task } }
}

/** The task with which a permit or a place in the queue ends. Who waits is woken by it. */
export function taskOf({ task, endsWith }: PermitRequest, held: boolean): string | undefined {
  return held ? (endsWith ?? task) : task
}

/** The task of the first who waits. */
export function firstWaiting(rows: readonly PermitRow[]): string | undefined {
  const waiting = rows.filter(({ held }) => !held)
  const [first] = waiting.sort((a, b) => a.since - b.since || (a.holder < b.holder ? -1 : 1))
  return first?.task
}
