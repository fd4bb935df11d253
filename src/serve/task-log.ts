/**
 * What an operator sees of the engine behind tasks without having asked for it: turns that threw, tasks given up, a store
 * that cannot be reached. The last comes with every look, so it is told once a minute.
 */

import { isThenable } from '../lib/is-thenable.ts'
import type { EngineEvent, OnEngineEvent } from '../store/engine-event.ts'
import type { Log } from './log.ts'

const AGAIN_MS = 60_000

/** Logs what matters, and hands every event to the operator's own listener, which cannot break anything. */
export function logTaskEvents(
  log: Log,
  listener: OnEngineEvent = () => {},
  now: () => number = Date.now,
): OnEngineEvent {
  const toldAt = new Map<string, number>()
  const isNew = ({ during }: Extract<EngineEvent, { kind: 'store-error' }>): boolean => {
    const last = toldAt.get(during)
    if (last !== undefined && now() - last < AGAIN_MS) return false
    toldAt.set(during, now())
    return true
  }
  return (event) => {
    const message = event.kind === 'store-error' && !isNew(event) ? undefined : messageOf(event)
    if (message !== undefined) log({ event: 'warning', message, error: errorOf(event) })
    const onFailure = (error: unknown): void =>
      log({ event: 'warning', message: 'The listener tasks.onEvent threw or rejected', error })
    try {
      const outcome: unknown = listener(event)
      if (isThenable(outcome)) Promise.resolve(outcome).catch(onFailure)
    } catch (error) {
      onFailure(error)
    }
  }
}

function messageOf(event: EngineEvent): string | undefined {
  switch (event.kind) {
    case 'store-error':
      return `The store of tasks failed (${event.during})`
    case 'retry':
      return `A turn of the task ${event.id} threw and will be run again (${event.failures})`
    case 'gave-up':
      return `The task ${event.id} was given up after ${event.failures} turns that threw or died`
    default:
      return undefined
  }
}

function errorOf(event: EngineEvent): unknown {
  return 'error' in event ? event.error : undefined
}
