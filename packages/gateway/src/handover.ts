/**
 * Hand-over of held calls between instances that share a store. The instance that holds a call announces it in a record, which it
 * touches while it lives. An instance that gets the next round writes the sealed answers under the call and its step, wakes the holder
 * over the bus, and waits for the sealed outcome.
 *
 * K3 The first answers of a step win, and every repetition gets the same outcome. If the holder is silent, the call is lost, and is not
 *    sent again.
 */

import { createHash } from 'node:crypto'
import type { Clock, InputResponses } from 'rondo/client'
import type { Bus, RecordStore } from 'rondo/store'
import { HeldEnded, type HeldStep } from './held.ts'
import type { Sealer } from './sent.ts'

/** How a step of a held call ended, as another instance gets it. */
export type HandedStep =
  | { readonly kind: 'step'; readonly step: HeldStep }
  | { readonly kind: 'failed'; readonly message: string }

export interface Handover {
  /** Announces a call that this instance holds, with the step that is open now. */
  hold(id: string, caller: string, step: number): Promise<void>
  /** The call is over. */
  release(id: string): void
  /** Has the instance that holds the call end it. */
  end(id: string): Promise<void>
  /** Delivers answers to the instance that holds the call. Undefined if no instance does. */
  deliver(
    id: string,
    caller: string,
    step: number,
    answers: InputResponses,
    signal: AbortSignal,
  ): Promise<HandedStep | undefined>
  close(): void
}

export type HandoverResume = (id: string, caller: string, answers: InputResponses) => Promise<HandedStep>

interface HandoverParts {
  readonly records: RecordStore
  readonly bus: Bus
  readonly sealer: Sealer
  readonly clock: Clock
  /** How long a held call waits for an answer. */
  readonly waitMs: number
  /** A holder that is silent for this long is gone. */
  readonly leaseMs: number
  /** Continues a call that is held here with answers that reached another instance. */
  readonly resume: HandoverResume
  /** Ends a call that is held here. */
  end(id: string): void
  /** Whether this instance is stopping: its requests then end without having been cancelled. */
  isStopping(): Promise<boolean>
  warn(message: string): void
}

const PREFIX = 'gateway-held '
const POLL_MS = 500
/** Ended calls whose outcome other instances still get. */
const MAX_PAST = 256
/** Bytes of one caller's records. */
const MAX_BYTES = 16 * 1_048_576

export function createHandover(parts: HandoverParts): Handover {
  const { records, bus, sealer, clock } = parts
  const own = new Map<string, { readonly caller: string; readonly step: number; readonly version: number }>()
  /** Callers of calls that were held here and have ended: their outcome is repeated for a while. */
  const past = new Map<string, string>()
  /** The steps whose answers are being taken. */
  const taking = new Set<string>()
  const wakers = new Map<string, Set<() => void>>()
  let stopTouching = (): void => {}
  const closed = new AbortController()

  const idOf = (id: string, step: number, what: 'answers' | 'outcome'): string =>
    `gateway-held-${id}-${step}-${what}`
  /** Each caller has a share of the store of its own. */
  const write = async (
    id: string,
    caller: string,
    value: unknown,
    version = 0,
  ): Promise<'stored' | 'conflict' | 'limit'> => {
    const sealed = await sealer.seal(id, JSON.stringify(value))
    const owner = createHash('sha256').update(`gateway-held ${caller}`).digest('base64url')
    return records.put({ id, owner, sealed, version, ttlMs: parts.waitMs, maxBytes: MAX_BYTES })
  }
  const read = async <T>(id: string): Promise<T | undefined> => {
    const stored = await records.get(id)
    const opened = stored && (await sealer.open(id, stored.sealed))
    return opened && (JSON.parse(new TextDecoder().decode(opened)) as T)
  }
  const touch = (): void => {
    stopTouching = clock.after(parts.leaseMs / 3, () => {
      if (own.size === 0) return touch()
      records.touch([...own.keys()].map((id) => `gateway-held-${id}`)).then(touch, touch)
    })
  }
  /**
   * Continues a call of ours with the answers that another instance has written. Two retries of one round may have got states of
   * different steps, and either may be answered; a question that has its answer takes no other.
   */
  const takeAnswers = async (id: string, step: number): Promise<void> => {
    const caller = own.get(id)?.caller ?? past.get(id)
    const key = `${id} ${step}`
    if (caller === undefined || taking.has(key)) return
    taking.add(key)
    try {
      const given = await read<{ caller: string; answers: InputResponses }>(idOf(id, step, 'answers'))
      if (given === undefined || given.caller !== caller) return
      // Whoever repeats a step gets its outcome, and the call does not move on.
      if ((await records.get(idOf(id, step, 'outcome'))) === undefined)
        await write(idOf(id, step, 'outcome'), caller, await parts.resume(id, caller, given.answers))
    } finally {
      taking.delete(key)
    }
    await bus.publish(`${PREFIX}${key} done`)
  }
  const receive = (message: string): void => {
    if (!message.startsWith(PREFIX)) return
    const [id = '', step = '', what] = message.slice(PREFIX.length).split(' ')
    if (what === 'end') parts.end(id)
    else if (what === 'done') for (const wake of wakers.get(`${id} ${step}`) ?? []) wake()
    else
      takeAnswers(id, Number(step)).catch((error) =>
        parts.warn(`Handing over a held call failed: ${String(error)}`),
      )
  }
  const recheck = (): void => {
    for (const [id, { step }] of own) receive(`${PREFIX}${id} ${step}`)
    for (const set of wakers.values()) for (const wake of set) wake()
  }
  const subscription = bus.subscribe({
    receive: (messages) => void messages.forEach(receive),
    lost: recheck,
  })
  touch()

  const end = async (id: string): Promise<void> => bus.publish(`${PREFIX}${id} 0 end`)
  /** Waits for a message about the step, or for a while. */
  const pause = (key: string, signal: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      const set = wakers.get(key) ?? new Set()
      wakers.set(key, set)
      const done = (): void => {
        stop()
        set.delete(done)
        if (set.size === 0) wakers.delete(key)
        signal.removeEventListener('abort', done)
        resolve()
      }
      const stop = clock.after(POLL_MS, done)
      set.add(done)
      signal.addEventListener('abort', done)
    })

  return {
    async hold(id, caller, step) {
      // Written again for every step, because it must not expire before the answers to the step may come.
      const version = own.get(id)?.version ?? 0
      own.set(id, { caller, step, version: version + 1 })
      if ((await write(`gateway-held-${id}`, caller, { caller }, version)) === 'limit')
        parts.warn('A held call could not be announced to other instances: the store is full.')
    },
    release(id) {
      const held = own.get(id)
      if (held === undefined) return
      own.delete(id)
      past.set(id, held.caller)
      const [oldest] = past.keys()
      if (past.size > MAX_PAST && oldest !== undefined) past.delete(oldest)
    },
    end,
    async deliver(id, caller, step, answers, signal) {
      const holder = `gateway-held-${id}`
      const announced = await read<{ caller: string }>(holder)
      if (announced === undefined || announced.caller !== caller) return undefined
      if ((await write(idOf(id, step, 'answers'), caller, { caller, answers })) === 'limit')
        return {
          kind: 'failed',
          message:
            'The gateway has no room to pass these answers on to the instance that holds the call, so nothing was answered. Send them again later.',
        }
      await bus.publish(`${PREFIX}${id} ${step}`)
      while (!signal.aborted && !closed.signal.aborted) {
        const outcome = await read<HandedStep>(idOf(id, step, 'outcome'))
        if (outcome !== undefined) return outcome
        const stored = await records.get(holder)
        if (stored === undefined || stored.quietMs > parts.leaseMs) return undefined
        await pause(`${id} ${step}`, signal)
      }
      if (!closed.signal.aborted && !(await parts.isStopping())) await end(id)
      throw new HeldEnded('The call was cancelled while another instance of the gateway worked on it.')
    },
    close() {
      closed.abort()
      stopTouching()
      subscription.stop()
    },
  }
}
