/** The plan of a task of the crash tests, and the messages between its worker and the test. */

import type { HookOutcome } from '../../../packages/rondo/src/store/task-store.ts'
import type { StoreAddress } from './store-harness.ts'

/** The head of such a task, as JSON. */
export interface Plan {
  readonly steps: number
  /** The time that each step takes, before and after its effect. */
  readonly stepMs: number
  /** The step before which it asks a question. */
  readonly askAt?: number
  /** The step before which it sleeps, and the step before which it asks a question that nobody answers in time. */
  readonly sleepAt?: number
  readonly expireAt?: number
  /** The time of the sleep at `sleepAt`, and of the question at `expireAt`. */
  readonly waitMs?: number
  /** The step before which it waits for an event from outside. */
  readonly hookAt?: number
  /** Kills its process in every attempt. */
  readonly poison?: true
}

export interface WorkerOptions {
  readonly address: StoreAddress
  readonly leaseMs: number
  readonly concurrency: number
  readonly maxFailures: number
  /** False: the store is weakened and accepts every write, whoever sends it. */
  readonly fenced: boolean
  /** False: connections to PostgreSQL have no listener for errors of their own. */
  readonly guarded?: boolean
}

export type ToWorker =
  | { readonly kind: 'applied'; readonly n: number; readonly value: number }
  | { readonly kind: 'create'; readonly id: string; readonly plan: Plan }
  | { readonly kind: 'answer'; readonly id: string; readonly late?: true }
  | { readonly kind: 'deliver'; readonly n: number; readonly id: string; readonly event: string }
  | { readonly kind: 'stop' }

export type FromWorker =
  | { readonly kind: 'ready' }
  /** `notBefore`: when the wait before this effect was over. */
  | { readonly kind: 'apply'; readonly n: number; readonly key: string; readonly notBefore?: number }
  | { readonly kind: 'created' | 'failed'; readonly id: string }
  | { readonly kind: 'delivered'; readonly n: number; readonly outcome: HookOutcome | 'lost' }
  | { readonly kind: 'began'; readonly id: string; readonly step: number }

/** The time until which a task waits, recorded before it parks. */
export interface WaitEntry {
  readonly due: number
  readonly pid: number
}

/** The event that a task has received. */
export interface EventEntry {
  readonly event: string
  readonly pid: number
}

/** One entry of the journal. `pid` is the process that wrote it. */
export interface Entry {
  readonly step: number
  readonly value: number
  readonly pid: number
}
