/** What an engine tells its operator: counters and gauges are made from these, content is in none of them. */

export type LossReason = 'cancelled or taken over' | 'lease ran out' | 'draining' | 'store failed'

export type EngineEvent =
  | { readonly kind: 'claimed'; readonly count: number }
  | { readonly kind: 'turn'; readonly id: string; readonly outcome: string; readonly ms: number }
  /** The turn was stopped from outside: what it does from now on has no effect. */
  | { readonly kind: 'lost'; readonly id: string; readonly reason: LossReason }
  | { readonly kind: 'retry'; readonly id: string; readonly failures: number; readonly error: unknown }
  /** The task failed because its turns died or threw too often. */
  | { readonly kind: 'gave-up'; readonly id: string; readonly failures: number }
  | {
      readonly kind: 'queue'
      readonly due: number
      readonly oldestDueMs: number
      readonly running: number
      readonly parked: number
    }
  | { readonly kind: 'swept'; readonly count: number }
  | { readonly kind: 'store-error'; readonly during: string; readonly error: unknown }

export type OnEngineEvent = (event: EngineEvent) => void
