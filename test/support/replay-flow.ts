/**
 * A flow without seal or socket: each `round` passes the journal of the last one to the next, as a carrier would.
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import type { Journal } from '../../packages/rondo/src/journal/journal.ts'
import { idle } from '../../packages/rondo/src/lib/clock.ts'
import type { ClientCapabilities } from '../../packages/rondo/src/protocol/wire.ts'
import type { ReplayInput, ReplayLimits, Scope, Sleeping } from '../../packages/rondo/src/replay/input.ts'
import { replay } from '../../packages/rondo/src/replay/replay.ts'
import type { MoveReason, RunReport } from '../../packages/rondo/src/replay/run-state.ts'
import { verify } from '../../packages/rondo/src/replay/verify.ts'
import { deriveBytes, digest } from '../../packages/rondo/src/seal/envelope.ts'
import type { Context } from '../../packages/rondo/src/tool/context.ts'
import { TEXT_BOUNDS } from '../../packages/rondo/src/tool/schema/judge.ts'

export type Handler = (ctx: Context) => unknown

export interface FlowOptions {
  capabilities?: ClientCapabilities
  limits?: Partial<ReplayLimits>
  dev?: boolean
  journal?: Partial<Journal>
  /** As if a sealed state had come with the first request. */
  anchored?: boolean
  progressToken?: string
}

export interface RoundOptions {
  handler?: Handler
  mayMove?: (executed: number) => MoveReason | undefined
  persist?: ReplayInput['persist']
  persistDeadline?: ReplayInput['persistDeadline']
  sleeping?: Partial<Sleeping>
  arrivedAt?: number
  /** Events from outside, by the key of their hook. */
  events?: ReadonlyMap<string, unknown>
  onArrival?: ReplayInput['onArrival']
  onOutrun?: ReplayInput['onOutrun']
  /** Replaces members of the platform. */
  platform?: Partial<ReplayInput['platform']>
  /** Replaces members of the input. */
  input?: Partial<ReplayInput>
}

export interface ReplayFlow {
  round(answers?: Record<string, unknown>, options?: RoundOptions): Promise<RunReport>
  journal: Journal
  asked: Record<string, string>
  readonly clock: { now: number }
  /** Errors of functions passed to `ctx.defer`. */
  readonly faults: unknown[]
  /** The questions of each advice of development mode. */
  readonly advised: (readonly string[])[]
  readonly notified: { method: string; params: Record<string, unknown> }[]
}

const EVERYTHING: ClientCapabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} }
const LIMITS: ReplayLimits = {
  maxEntries: 100,
  maxQuestions: 16,
  maxReasks: 3,
  maxDeferMs: 10_000,
  ...TEXT_BOUNDS,
}

export const scope: Scope = { storage: new AsyncLocalStorage<object>(), running: 0 }

export function replayFlow(handler: Handler, options: FlowOptions = {}): ReplayFlow {
  const clock = { now: 1_000_000 }
  const notified: ReplayFlow['notified'] = []
  const faults: unknown[] = []
  const advised: ReplayFlow['advised'] = []
  let anchored = options.anchored ?? false
  let rounds = 0
  const flow: ReplayFlow = {
    clock,
    faults,
    advised,
    notified,
    journal: { startedAt: clock.now, seed: 'seed', entries: [], reasks: {}, moves: 0, ...options.journal },
    asked: {},
    async round(
      answers,
      {
        handler: other = handler,
        mayMove = () => undefined,
        persist,
        persistDeadline,
        sleeping,
        arrivedAt,
        events,
        onArrival,
        onOutrun,
        platform,
        input: more,
      } = {},
    ) {
      rounds += 1
      const input: ReplayInput = {
        handler: other,
        journal: flow.journal,
        incoming: {
          anchored,
          asked: flow.asked,
          answers,
          capabilities: options.capabilities ?? EVERYTHING,
          resumed: rounds > 1,
          arrivedAt,
          events,
        },
        onArrival,
        onOutrun,
        persist,
        persistDeadline,
        sleeping: () => ({ parks: false, inlineMs: 10_000, beyond: 'Not here.', ...sleeping }),
        flow: 'flow',
        round: rounds,
        principal: undefined,
        client: { capabilities: options.capabilities ?? EVERYTHING },
        protocolVersion: '2026-07-28',
        line: {
          notify: (method, params) => void notified.push({ method, params }),
          closed: false,
          onClose: () => () => {},
        },
        progressToken: options.progressToken,
        background: {
          possible: false,
          setStatus: (message) => void notified.push({ method: 'status', params: { message } }),
        },
        inputResponses: () => undefined,
        requestState: undefined,
        platform: {
          now: () => clock.now,
          idle,
          digest,
          derive: deriveBytes,
          after(ms, fn) {
            const timer = setTimeout(fn, Math.min(ms, 2 ** 31 - 1))
            return () => clearTimeout(timer)
          },
          // The time of a run that only sleeps passes at once.
          rest(ms, fn) {
            const timer = setImmediate(() => {
              clock.now += ms
              fn()
            })
            return () => clearImmediate(timer)
          },
          scope,
          ...platform,
        },
        limits: { ...LIMITS, ...options.limits },
        mayMove,
        onAsideError: (error) => void faults.push(error),
        ...more,
      }
      const first = await replay(input)
      const report = options.dev ? await verify(input, first, (keys) => void advised.push(keys)) : first
      const { ending } = report
      if (ending.kind === 'asking' || ending.kind === 'moved' || ending.kind === 'sleeping') {
        anchored = true
        flow.journal = JSON.parse(JSON.stringify(report.journal))
        flow.asked =
          ending.kind === 'asking'
            ? Object.fromEntries([...ending.questions].map(([key, { digest }]) => [key, digest]))
            : {}
      }
      return report
    },
  }
  return flow
}

/** Returns the keys of the open questions; fails if there are none. */
export function askedKeys({ ending }: RunReport): string[] {
  if (ending.kind !== 'asking') throw new Error(`expected questions, got ${JSON.stringify(ending)}`)
  return [...ending.questions.keys()]
}

/** Returns what the handler returned; fails if it did not return. */
export function returned({ ending }: RunReport): unknown {
  if (ending.kind !== 'returned') throw new Error(`expected a result, got ${describe(ending)}`)
  return ending.value
}

/** Returns the code of the refusal; fails if there was none. */
export function refusal({ ending }: RunReport): string {
  if (ending.kind !== 'refused') throw new Error(`expected a refusal, got ${describe(ending)}`)
  return ending.error.code
}

function describe(ending: RunReport['ending']): string {
  return ending.kind === 'refused' ? ending.error.message : JSON.stringify(ending)
}

export function accept(content: Record<string, unknown>): {
  action: 'accept'
  content: Record<string, unknown>
} {
  return { action: 'accept', content }
}

/** A question for one string field named `value`. */
export function textQuestion(message = 'Say something'): {
  message: string
  schema: Record<string, unknown>
} {
  return {
    message,
    schema: { type: 'object', properties: { value: { type: 'string' } }, required: ['value'] },
  }
}

/** A promise that the test settles. */
export function deferredPromise<T = void>(): {
  promise: Promise<T>
  resolve(value: T): void
  reject(error: Error): void
} {
  let resolve: (value: T) => void = () => {}
  let reject: (error: Error) => void = () => {}
  const promise = new Promise<T>((res, rej) => {
    resolve = res
    reject = rej
  })
  return { promise, resolve, reject }
}
