/**
 * Held calls: calls at an upstream that pushes its questions. The upstream waits while a person thinks, so its request and its
 * session stay open in this process between the rounds of our caller.
 *
 * K3 A held call ends once: with the upstream's outcome, or with a reason that names the upstream. It is never sent again.
 * R9 Held calls are bounded in number, per caller, in characters and in time.
 * The first answer to a question wins; a retry that comes again gets the same reply for as long as the outcome is kept.
 */

import { randomBytes } from 'node:crypto'
import type {
  Clock,
  InputRequest,
  InputRequests,
  InputResponse,
  InputResponses,
  LogLevel,
} from 'rondo/client'
import type { HoldLimits } from './options.ts'
import type { TakeQuestion } from './upstream.ts'

type Result = Readonly<Record<string, unknown>>

/** The next step of a call: the upstream's result, or the questions that are open now. */
export type HeldStep =
  | { readonly kind: 'result'; readonly result: Result }
  | { readonly kind: 'asks'; readonly id: string; readonly step: number; readonly questions: InputRequests }
  /** The call is not held here any more. `reason` says why, if this process knows. */
  | { readonly kind: 'lost'; readonly reason?: string }

/** The destination of a call's progress and log messages: the round that is open now. */
export interface HeldLine {
  progress(progress: number, total?: number, message?: string): void
  log(level: LogLevel, data: unknown, logger?: string): void
}

/** The round of our caller in which a call is waited for. */
interface HeldRound {
  readonly line: HeldLine
  readonly signal: AbortSignal
}

interface HeldStart {
  readonly upstream: string
  readonly caller: string
  /** Sends the call. Its questions go to `take`, its notifications to the current `line`. */
  send(take: TakeQuestion, line: HeldLine, signal: AbortSignal): Promise<Result>
}

export interface HeldCalls {
  /** Sends a call and waits until it asks or ends. Rejects with the error of the call. */
  begin(start: HeldStart, round: HeldRound): Promise<HeldStep>
  /** Delivers answers and waits again. */
  resume(id: string, caller: string, answers: InputResponses | undefined, round: HeldRound): Promise<HeldStep>
  /** Ends a call whose client has gone. Returns false if it is not held here. */
  cancel(id: string): boolean
  readonly size: number
  close(): void
}

interface Held {
  readonly id: string
  readonly upstream: string
  readonly caller: string
  readonly abort: AbortController
  readonly open: Map<
    string,
    { readonly request: InputRequest; readonly size: number; answer(response: InputResponse): void }
  >
  readonly waiting: Set<() => void>
  outcome?: { readonly result: Result } | { readonly error: unknown }
  asked: number
  /** How often the call has asked our caller. */
  steps: number
  line: HeldLine
  stopTimer(): void
}

/** How long questions that arrive together are gathered into one round. */
const GATHER_MS = 10
/** Ended calls whose outcome is kept for a retry that comes again, and the longest outcome that is kept. */
const MAX_ENDED = 256
const MAX_ENDED_CHARACTERS = 65_536

export function createHeldCalls(
  limits: Required<HoldLimits>,
  clock: Clock,
  onEnd: (id: string) => void = () => {},
): HeldCalls {
  const calls = new Map<string, Held>()
  const ended = new Map<
    string,
    { readonly caller: string; readonly step?: HeldStep; readonly reason?: string; readonly error?: unknown }
  >()
  let characters = 0

  const keep = (held: Held): void => {
    const { outcome } = held
    const [first] = ended.keys()
    if (ended.size >= MAX_ENDED && first !== undefined) ended.delete(first)
    if (outcome === undefined) return
    const isShort = 'error' in outcome || JSON.stringify(outcome.result).length <= MAX_ENDED_CHARACTERS
    const reason = `The call at "${held.upstream}" has ended, and its result was returned before`
    if (!isShort) ended.set(held.id, { caller: held.caller, reason })
    else if ('error' in outcome) ended.set(held.id, { caller: held.caller, error: outcome.error })
    else ended.set(held.id, { caller: held.caller, step: { kind: 'result', result: outcome.result } })
  }
  /** Two retries may wait at once; each waits again by itself. */
  const wakeAll = (held: Held): void => {
    for (const wake of held.waiting) wake()
    held.waiting.clear()
  }
  const settle = (held: Held, outcome: NonNullable<Held['outcome']>): void => {
    if (held.outcome !== undefined) return
    held.outcome = outcome
    held.stopTimer()
    for (const { size } of held.open.values()) characters -= size
    held.open.clear()
    calls.delete(held.id)
    onEnd(held.id)
    if (held.asked > 0) keep(held)
    wakeAll(held)
  }
  const give = (held: Held, why: string): void => {
    settle(held, { error: new HeldEnded(why) })
    held.abort.abort(new HeldEnded(why))
  }

  const take =
    (held: Held): TakeQuestion =>
    (request, { signal }) =>
      new Promise<InputResponse>((resolve, reject) => {
        const size = JSON.stringify(request).length
        const full = overLimit(held, size)
        if (full !== undefined) {
          give(held, full)
          return reject(new HeldEnded(full))
        }
        held.asked += 1
        const key = `ask-${held.asked}`
        characters += size
        const close = (): void => {
          if (!held.open.delete(key)) return
          characters -= size
        }
        const answer = (response: InputResponse): void => {
          close()
          resolve(response)
        }
        held.open.set(key, { request, size, answer })
        signal.addEventListener('abort', () => {
          close()
          reject(signal.reason)
        })
        wakeAll(held)
      })

  const overLimit = ({ upstream, caller, asked }: Held, size: number): string | undefined => {
    const own = [...calls.values()].filter((one) => one.caller === caller && one.asked > 0).length
    const all = [...calls.values()].filter((one) => one.asked > 0).length
    const ends = `so the call at "${upstream}" was ended. It may have had effects there.`
    if (asked === 0 && all >= limits.maxCalls)
      return `The gateway holds ${all} calls that wait for an answer, ${ends} Try again later (hold.maxCalls).`
    if (asked === 0 && own >= limits.maxCallsPerCaller)
      return `${own} of your calls wait for an answer already, ${ends} Answer or cancel one (hold.maxCallsPerCaller).`
    if (characters + size > limits.maxBytes)
      return `The questions that wait for an answer are too large together, ${ends} (hold.maxBytes)`
    return undefined
  }

  const wait = async (held: Held, signal: AbortSignal): Promise<HeldStep> => {
    const onAbort = (): void => give(held, `The client cancelled the call at "${held.upstream}".`)
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
    held.stopTimer()
    try {
      for (;;) {
        if (held.outcome === undefined && held.open.size === 0)
          await new Promise<void>((resolve) => {
            held.waiting.add(resolve)
          })
        if (held.outcome === undefined && held.open.size > 0)
          await new Promise<void>((resolve) => void clock.after(GATHER_MS, resolve))
        const { outcome } = held
        if (outcome !== undefined) {
          if ('error' in outcome) throw outcome.error
          return { kind: 'result', result: outcome.result }
        }
        if (held.open.size === 0) continue
        const late = `Nobody answered "${held.upstream}" within ${Math.round(limits.waitMs / 1000)} s, so the call was ended. It may have had effects there.`
        // Another retry may have set it.
        held.stopTimer()
        held.stopTimer = clock.after(limits.waitMs, () => give(held, late))
        const questions = Object.fromEntries(Array.from(held.open, ([key, { request }]) => [key, request]))
        held.steps += 1
        // Its round ends now, and is not kept.
        held.line = SILENT
        return { kind: 'asks', id: held.id, step: held.steps, questions }
      }
    } finally {
      signal.removeEventListener('abort', onAbort)
    }
  }

  return {
    get size() {
      return calls.size
    },
    begin({ upstream, caller, send }, { line, signal }) {
      const held: Held = {
        id: randomBytes(16).toString('base64url'),
        upstream,
        caller,
        abort: new AbortController(),
        open: new Map(),
        waiting: new Set(),
        asked: 0,
        steps: 0,
        line,
        stopTimer() {},
      }
      calls.set(held.id, held)
      const current: HeldLine = {
        progress: (...args) => held.line.progress(...args),
        log: (...args) => held.line.log(...args),
      }
      send(take(held), current, held.abort.signal).then(
        (result) => settle(held, { result }),
        (error: unknown) => settle(held, { error }),
      )
      return wait(held, signal)
    },
    async resume(id, caller, answers, { line, signal }) {
      const held = calls.get(id)
      if (held === undefined || held.caller !== caller) {
        const past = ended.get(id)
        if (past === undefined || past.caller !== caller) return { kind: 'lost' }
        if (past.error !== undefined) throw past.error
        return past.step ?? { kind: 'lost', reason: past.reason }
      }
      held.line = line
      for (const [key, response] of Object.entries(answers ?? {})) {
        const open = held.open.get(key)
        const answer = open && toAnswer(open.request, response)
        // An invalid answer is asked for again.
        if (answer) open.answer(answer)
      }
      return wait(held, signal)
    },
    cancel(id) {
      const held = calls.get(id)
      if (held) give(held, `The client cancelled the call at "${held.upstream}".`)
      return held !== undefined
    },
    close() {
      for (const held of [...calls.values()])
        give(
          held,
          `The gateway is stopping, so the call at "${held.upstream}" was ended. It may have had effects there.`,
        )
    },
  }
}

/** For notifications that reach nobody. */
export const SILENT: HeldLine = { progress() {}, log() {} }

const ACTIONS = new Set<unknown>(['accept', 'decline', 'cancel'])

/** The response as our client passes it on; undefined if it is none to this question. */
function toAnswer(request: InputRequest, response: InputResponse): InputResponse | undefined {
  const given = response as Readonly<Record<string, unknown>>
  if (typeof given !== 'object' || given === null) return undefined
  if (request.method === 'roots/list') return Array.isArray(given.roots) ? response : undefined
  if (request.method === 'sampling/createMessage')
    return typeof given.role === 'string' ? response : undefined
  if (!ACTIONS.has(given.action)) return undefined
  const isForm = request.params.mode !== 'url'
  if (!isForm || given.action !== 'accept') return { action: given.action as 'accept' }
  return typeof given.content === 'object' && given.content !== null ? response : undefined
}

/** A held call was ended by the gateway. The message is for the caller. */
export class HeldEnded extends Error {}
