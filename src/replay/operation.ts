/**
 * What all operations of `ctx` have in common: the promise that a handler is handed, and where it may be asked for.
 *
 * O1 A promise that we hand out is never an unhandled rejection: a client decides what an answer is, and must not decide
 * whether the process lives. Promises that an author derives from it are the author's (decision 0012).
 * O2 A handler that returns while an operation that nobody looked at is open or has failed ends with an error that names it.
 * O3 An operation inside a step, an effect or a deferred function is refused at once: the outer one would wait for the
 * inner, which cannot begin before the outer is over.
 */

import { RondoError } from '../errors.ts'
import type { Floating, RunState } from './run-state.ts'

/** What is running where an operation is called. */
export interface Mark {
  readonly run: RunState
  readonly label: string
}

/** Notes when somebody looks at it: `await`, `Promise.all` and the like call `then`. What is derived is an ordinary promise. */
class HandedPromise<T> extends Promise<T> {
  onLook?: () => void

  static override get [Symbol.species](): PromiseConstructor {
    return Promise
  }

  // biome-ignore lint/suspicious/noThenProperty: a promise has one.
  override then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.onLook?.()
    return super.then(onFulfilled, onRejected)
  }
}

/** Hands out the promise of an operation that `begin` starts. */
export function operate<T>(run: RunState, label: string, begin: () => Promise<T>): Promise<T> {
  const nested = nestedError(run, label)
  if (nested) run.turn.refuse(nested)
  const handed = new HandedPromise<T>((resolve, reject) => (nested ? reject(nested) : resolve(begin())))
  const floating: Floating = { label }
  run.floating.add(floating)
  handed.then(
    () => run.floating.delete(floating),
    (error) => {
      floating.failed = { error }
    },
  )
  handed.onLook = () => run.floating.delete(floating)
  return handed
}

/** For what a handler calls without waiting for it. */
export function throwIfNested(run: RunState, label: string): void {
  const error = nestedError(run, label)
  if (error) throw error
}

function nestedError(run: RunState, label: string): RondoError | undefined {
  const outer = run.platform.scope.current() as Mark | undefined
  if (outer?.run !== run) return undefined
  const detail =
    `The ${label} was called inside the ${outer.label}. What runs there runs once and is not replayed, so nothing of ctx ` +
    `can wait in it: call the ${label} in the handler itself, before or after.`
  return new RondoError('REPLAY_NESTED', detail)
}

/** Why a handler must not return yet, if so: an operation that nobody looked at. */
export function notAwaited({ floating }: RunState): RondoError | undefined {
  const [first] = floating
  if (!first) return undefined
  const { label, failed } = first
  const what = failed ? `has failed, and nobody awaited it` : 'was still open'
  const detail = `The handler returned, and the ${label} ${what}. Await it, and everything else it starts.`
  return new RondoError('REPLAY_NOT_AWAITED', detail, { cause: failed?.error })
}
