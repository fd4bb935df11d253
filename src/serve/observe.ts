/**
 * What a server tells its observer. An observer cannot break what it observes: whatever it throws is logged, at most once a
 * minute, and everything continues (R11).
 */

import type { FlowHost } from '../carry/host.ts'
import { misuse, RondoError } from '../errors.ts'
import { isThenable } from '../lib/json.ts'
import type { Call, ListenCall, OlderCall } from '../protocol/call.ts'
import type { Observed, ObservedOperation, Observer } from '../protocol/observer.ts'
import type { OlderReply } from '../protocol/reply.ts'
import type { Log } from './log.ts'

const REPORT_MS = 60_000

/** Returns an observer that never throws. */
export function guardObserver(
  observer: Observer | undefined,
  log: Log,
  now: () => number,
): Observer | undefined {
  if (observer === undefined) return undefined
  if (typeof observer !== 'object' || observer === null)
    throw misuse("telemetry must be an observer, such as otel() from 'rondo/otel'.")
  let reportedAt = Number.NEGATIVE_INFINITY
  const report = (error: unknown): void => {
    if (now() - reportedAt < REPORT_MS) return
    reportedAt = now()
    log({ event: 'warning', message: 'The telemetry threw; something was not observed', error })
  }
  const attempt = <T>(fn: () => T): T | undefined => {
    try {
      return fn()
    } catch (error) {
      report(error)
      return undefined
    }
  }
  return {
    event: observer.event && ((event) => attempt(() => observer.event?.(event))),
    queue: observer.queue && ((queue) => attempt(() => observer.queue?.(queue))),
    begin(operation) {
      const observed = attempt(() => observer.begin?.(operation))
      return observed && guardObserved(observed, attempt, report)
    },
  }
}

function guardObserved(
  observed: Observed,
  attempt: <T>(fn: () => T) => T | undefined,
  report: (error: unknown) => void,
): Observed {
  /** Calls `fn` once, whatever the observer does with it. */
  const around = <T>(fn: () => T, observe: (once: () => T) => T): T => {
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
      observe(once)
    } catch (error) {
      if (threw?.error !== error) report(error)
    }
    return once()
  }
  let ended = false
  return {
    span: attempt(() => observed.span),
    trace: attempt(() => observed.trace),
    run: (fn) => around(fn, (once) => observed.run(once)),
    work: (kind, key, fn) => around(fn, (once) => observed.work(kind, key, once)),
    replayed: (kind, key) => void attempt(() => observed.replayed(kind, key)),
    end(how) {
      if (ended) return
      ended = true
      attempt(() => observed.end(how))
    },
  }
}

type PlainCall = Exclude<Call | OlderCall, ListenCall>

/** Answers a request that runs no handler, observed. `answer` gets the name of its span. */
export function observeRequest<R extends OlderReply>(
  { observer, platform }: Pick<FlowHost, 'observer' | 'platform'>,
  call: PlainCall,
  answer: (span?: string) => R | Promise<R>,
): R | Promise<R> {
  const observed = observer?.begin?.(toOperation(call, platform.now()))
  if (!observed) return answer()
  const done = (reply: R): R => {
    observed.end(endOf(reply))
    return reply
  }
  const failed = (error: unknown): never => {
    observed.end(errorEnd(error))
    throw error
  }
  try {
    const reply = observed.run(() => answer(observed.span))
    return isThenable(reply) ? Promise.resolve(reply).then(done, failed) : done(reply)
  } catch (error) {
    return failed(error)
  }
}

function toOperation(call: PlainCall, began: number): ObservedOperation {
  const { id: requestId, protocolVersion, trace } = call
  const task = call.kind === 'task' ? { task: call.taskId } : {}
  return { kind: 'request', method: methodOf(call), requestId, protocolVersion, trace, began, ...task }
}

function methodOf(call: PlainCall): string {
  switch (call.kind) {
    case 'flow':
      return call.method
    case 'list':
      return call.listing === 'templates' ? 'resources/templates/list' : `${call.listing}/list`
    case 'discover':
      return 'server/discover'
    case 'complete':
      return 'completion/complete'
    case 'task':
      return `tasks/${call.action}`
    case 'tasks':
      return 'tasks/list'
  }
}

function endOf(reply: OlderReply): Parameters<Observed['end']>[0] {
  if (reply.kind === 'error') return errorEnd(reply.error)
  return reply.kind === 'task_failed' ? { code: 'task_failed', rpc: reply.error.code } : {}
}

function errorEnd(error: unknown): Parameters<Observed['end']>[0] {
  return error instanceof RondoError ? { code: error.code, rpc: error.rpc } : { code: 'SERVER_INTERNAL' }
}
