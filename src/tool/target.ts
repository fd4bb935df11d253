/**
 * What a call runs: a tool, a prompt or a resource, compiled once. A carrier needs no more than this to run it.
 */

import type { RondoError } from '../errors.ts'
import type { FlowMethod } from '../protocol/call.ts'
import type { Context } from './context.ts'

export type Prepared =
  | { readonly kind: 'ready'; run(ctx: Context): unknown }
  /** The arguments do not fit. */
  | { readonly kind: 'refused'; readonly problem: string }

export type Finished = Readonly<Record<string, unknown>>

/** Whether and how a call may go on as a task. */
export interface TaskTerms {
  /** `late`: where the handler asks for it or the call outgrows its rounds. */
  readonly mode: 'never' | 'late' | 'auto' | 'always'
  readonly ttlMs?: number
  readonly pollMs?: number
}

export const NO_TASK: TaskTerms = { mode: 'never' }

export interface Target {
  readonly method: FlowMethod
  readonly name: string
  readonly version?: string
  readonly task: TaskTerms
  /** Each state of a call is used once (B8). */
  readonly once?: boolean
  prepare(args: Readonly<Record<string, unknown>>): Prepared | Promise<Prepared>
  /** Makes a result of what the handler returned. Throws if it is none. */
  finish(value: unknown): Finished | Promise<Finished>
  /** A failure that the caller may read: a result where the method has a form for it, else an error. */
  fail(message: string): { readonly result: Finished } | { readonly error: RondoError }
}
