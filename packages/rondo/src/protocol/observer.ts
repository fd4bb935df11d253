/**
 * The port for telemetry: what a server or a client does, as it happens. The log is an observer of events
 * (`log/log.ts`); `rondo/otel` observes operations too. Without such an observer nothing of this runs.
 *
 * Nothing here contains content: no argument, no answer, no result, no token, no header.
 *
 * An observer cannot break what it observes: whatever it throws is reported, and everything continues (R11).
 */

import { misuse } from '../errors.ts'
import { quietly } from '../lib/quietly.ts'
import { createRate } from '../lib/rate.ts'
import type { RequestId } from './call.ts'

export interface Observer {
  /** Something happened that is worth a line in the log. Its other members depend on `event`: see `LogEvent`. */
  event?(event: ObservedEvent): void
  /** An operation begins. Returns what observes it, or nothing. */
  begin?(operation: ObservedOperation): Observed | undefined
  /** The queue of tasks, from time to time, in processes that run tasks. */
  queue?(queue: ObservedQueue): void
  /** Something happened that is worth counting, each time: the log sums such things up. */
  count?(happening: ObservedHappening): void
}

export type ObservedHappening =
  /** A request was refused before anything ran. */
  | { readonly kind: 'refused'; readonly code: string; readonly status: number }
  /** A turn threw and will be retried, lost its lease, or began because another worker died. */
  | {
      readonly kind: 'turn'
      readonly trouble: 'retried' | 'lost' | 'taken_over'
      /** The tool, if it is known. */
      readonly target?: string
    }
  /** A task ended, and the store has its end. */
  | {
      readonly kind: 'ended'
      /** As in the `round` event of the log, or `given_up`: too many of its turns threw or died. */
      readonly outcome: string
      /** Code of the error, if it failed. */
      readonly code?: string
      /** The tool, if it is known. */
      readonly target?: string
      /** The age of the task. */
      readonly ageMs: number
    }
  /** An attempt of a step or an effect failed and will be retried. */
  | { readonly kind: 'retry'; readonly work: string; readonly method: string; readonly target?: string }
  /** The store failed while a worker used it. */
  | { readonly kind: 'store'; readonly during: string }

export interface ObservedEvent {
  readonly event: string
  readonly level: 'info' | 'warn' | 'error'
  /** The process in which it happened. */
  readonly instance: string
}

export interface ObservedQueue {
  /** Tasks that wait for a worker. */
  readonly due: number
  readonly oldestDueMs: number
  readonly running: number
  /** Tasks that wait for an answer. */
  readonly parked: number
  /** Turns that this process runs at the same time, at most. */
  readonly slots: number
}

export interface ObservedOperation {
  /**
   * `client`: a request that is sent. `request`: one that runs no handler. `round`, `turn`: a run of a handler.
   * `question`: a client has a question answered.
   */
  readonly kind: 'client' | 'request' | 'round' | 'turn' | 'question'
  readonly method: string
  /** The name of a tool or prompt that exists; absent for resources, whose URIs contain arguments. */
  readonly target?: string
  readonly requestId?: RequestId
  readonly protocolVersion: string
  /** Of a gateway's request: the server to which it goes. */
  readonly peer?: string
  /** `traceparent`, `tracestate` and `baggage` as the other side sent them: claims, not checked. */
  readonly trace?: Readonly<Record<string, string>>
  /** When it began, ms since the epoch. */
  readonly began: number
  readonly flow?: string
  readonly round?: number
  readonly task?: string
  readonly turn?: number
  /** The first and the last round of the flow before this one, as `Observed.span` named them; of a question, the request that brought it. */
  readonly spans?: readonly [first: string, last: string]
  /** The request whose answers woke this turn. */
  readonly wokenBy?: string
  /** How long the flow waited for its answers. */
  readonly waitedMs?: number
}

export interface Observed {
  /** Names this operation for those that follow, on other instances too. */
  readonly span?: string
  /** Trace context to send with a client's request, or with a question that a round pushes. Read when it is needed. */
  readonly trace?: Readonly<Record<string, string>>
  /** Runs the operation inside its context. */
  run<T>(fn: () => T): T
  /** Runs an attempt of a step or an effect, counted from 1. Must call `fn` once and return what it returns. */
  work(kind: string, key: string, fn: () => unknown, attempt: number): unknown
  /** A step or an effect had its result in the journal. */
  replayed(kind: string, key: string): void
  end(end: OperationEnd): void
}

export interface OperationEnd {
  /** As in the `round` event of the log. */
  readonly outcome?: string
  /** Code of the error, if it failed. */
  readonly code?: string
  /** JSON-RPC code of the error. */
  readonly rpc?: number
  readonly asks?: number
  readonly moved?: string
  /** The task that the call became. */
  readonly task?: string
  readonly replayed?: number
  readonly executed?: number
  readonly stateBytes?: number
}

const METHODS = ['begin', 'event', 'queue', 'count'] as const

/** Returns an observer that never throws. What it threw is reported at most once a minute. */
export function guardObserver(
  observer: Observer | undefined,
  now: () => number,
  onThrown: (error: unknown) => void,
): Observer | undefined {
  if (observer === undefined) return undefined
  if (typeof observer !== 'object' || observer === null)
    throw misuse("telemetry must be an observer, such as otel() from 'rondo/otel'.")
  if (!METHODS.some((name) => typeof observer[name] === 'function'))
    throw misuse(
      'telemetry must be an observer with at least one of the methods begin, event, queue and count.',
    )
  const rate = createRate(60_000, now)
  const report = (error: unknown): void => {
    if (rate() !== undefined) onThrown(error)
  }
  return {
    event: observer.event && quietly((event) => observer.event?.(event), report),
    queue: observer.queue && quietly((queue) => observer.queue?.(queue), report),
    count: observer.count && quietly((happening) => observer.count?.(happening), report),
    begin(operation) {
      try {
        const begun = observer.begin?.(operation)
        if (begun === undefined) return undefined
        if (typeof begun.run === 'function') return new GuardedObserved(begun, report)
        // An async function: nobody else would handle its rejection, which could end the process.
        Promise.resolve(begun).catch(report)
        report(misuse('begin of telemetry must return what observes the operation, not a promise of it'))
      } catch (error) {
        report(error)
      }
      return undefined
    },
  }
}

type Report = (error: unknown) => void

/** A class, because one is created for every operation, and getters in an object literal would give each a shape of its own. */
class GuardedObserved implements Observed {
  readonly #observed: Observed
  readonly #report: Report
  #ended = false

  constructor(observed: Observed, report: Report) {
    this.#observed = observed
    this.#report = report
  }

  get span(): string | undefined {
    try {
      return this.#observed.span
    } catch (error) {
      this.#report(error)
      return undefined
    }
  }

  get trace(): Observed['trace'] {
    try {
      return this.#observed.trace
    } catch (error) {
      this.#report(error)
      return undefined
    }
  }

  run<T>(fn: () => T): T {
    return runGuarded(fn, (once) => this.#observed.run(once), this.#report)
  }

  work(kind: string, key: string, fn: () => unknown, attempt: number): unknown {
    return runGuarded(fn, (once) => this.#observed.work(kind, key, once, attempt), this.#report)
  }

  replayed(kind: string, key: string): void {
    quietly(() => this.#observed.replayed(kind, key), this.#report)(undefined)
  }

  end(how: OperationEnd): void {
    if (this.#ended) return
    this.#ended = true
    quietly(() => this.#observed.end(how), this.#report)(undefined)
  }
}

/** Calls `fn` once, whatever the observer does with it. */
function runGuarded<T>(fn: () => T, observe: (once: () => T) => T, report: Report): T {
  let ran: { readonly value: T } | undefined
  let threw: { readonly error: unknown } | undefined
  const once = (): T => {
    if (threw) throw threw.error
    if (ran) return ran.value
    try {
      ran = { value: fn() }
      return ran.value
    } catch (error) {
      threw = { error }
      throw error
    }
  }
  try {
    const outcome: unknown = observe(once)
    if (outcome !== ran?.value) handleOutcome(outcome, ran?.value, report)
  } catch (error) {
    if (threw?.error !== error) report(error)
  }
  return once()
}

/** An async observer: its rejection would be unhandled. The one that it passes on from the operation is not its own. */
function handleOutcome(outcome: unknown, value: unknown, report: Report): void {
  Promise.resolve(outcome).catch(async (error) => {
    const isOwn = await Promise.resolve(value).then(
      () => true,
      (reason) => reason !== error,
    )
    if (isOwn) report(error)
  })
}
