/**
 * The questions of a task, from the first to the last, with their answers: pure, and the same for every store.
 *
 * A slot has a request while it is open and an answer afterwards. Slots are never removed, so a key cannot come
 * back. Stores keep the list as one JSON text of [key, request, answer] rows: order is kept, and no key is special.
 */

import { misuse } from '../errors.ts'
import type { Sealed } from './task-engine.ts'
import type { Hint } from './task-store.ts'

export type InputSlot =
  | { readonly kind: 'open'; readonly key: string; readonly request: Sealed }
  | { readonly kind: 'answered'; readonly key: string; readonly answer: Sealed }

/** True for text that every database keeps as it is: no NUL, no half of a surrogate pair. */
export function isStorable(text: string): boolean {
  return !/\0|[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(text)
}

/** Adds questions. A key that was ever used is a fault of the caller. */
export function openSlots(
  slots: readonly InputSlot[],
  requests: ReadonlyMap<string, Sealed>,
): readonly InputSlot[] {
  const used = new Set(slots.map((slot) => slot.key))
  if (requests.size === 0) throw misuse('A task cannot wait for nothing: park it with at least one input')
  for (const key of requests.keys()) {
    if (used.has(key)) throw misuse(`The input key "${key}" was already used in this task`)
    if (!isStorable(key)) throw misuse('An input key must be well-formed text without NUL')
  }
  return [...slots, ...Array.from(requests, ([key, request]): InputSlot => ({ kind: 'open', key, request }))]
}

export interface Answered {
  readonly slots: readonly InputSlot[]
  /** How many answers landed, counting those that were there already, byte for byte. */
  readonly taken: number
  readonly changed: boolean
  readonly open: number
}

/** Puts answers into the slots that are open for them; all others are ignored. */
export function answerSlots(slots: readonly InputSlot[], answers: ReadonlyMap<string, Sealed>): Answered {
  let taken = 0
  let changed = false
  let open = 0
  const next = slots.map((slot): InputSlot => {
    const answer = answers.get(slot.key)
    if (slot.kind === 'answered') {
      if (answer === slot.answer) taken++
      return slot
    }
    if (answer === undefined) {
      open++
      return slot
    }
    taken++
    changed = true
    return { kind: 'answered', key: slot.key, answer }
  })
  return { slots: next, taken, changed, open }
}

export function openInputs(slots: readonly InputSlot[]): ReadonlyMap<string, Sealed> {
  return new Map(slots.flatMap((slot) => (slot.kind === 'open' ? [[slot.key, slot.request] as const] : [])))
}

export function givenAnswers(slots: readonly InputSlot[]): ReadonlyMap<string, Sealed> {
  return new Map(
    slots.flatMap((slot) => (slot.kind === 'answered' ? [[slot.key, slot.answer] as const] : [])),
  )
}

type SlotRow = readonly [key: string, request: Sealed | null, answer: Sealed | null]

export function encodeSlots(slots: readonly InputSlot[]): string {
  return JSON.stringify(
    slots.map(
      (slot): SlotRow =>
        slot.kind === 'open' ? [slot.key, slot.request, null] : [slot.key, null, slot.answer],
    ),
  )
}

export function decodeSlots(text: string | null): readonly InputSlot[] {
  if (text === null) return []
  return (JSON.parse(text) as SlotRow[]).map(
    ([key, request, answer]): InputSlot =>
      answer === null ? { kind: 'open', key, request: request ?? '' } : { kind: 'answered', key, answer },
  )
}

/** Hands hints to whoever listens. Starts listening outside (`attach`) with the first listener, ends with the last. */
export interface HintBus {
  tell(hint: Hint): void
  onHint(listener: (hint: Hint) => void): () => void
  /** Nobody is told anything any more. */
  close(): void
}

export function createHintBus(attach: () => () => void = () => () => {}): HintBus {
  const listeners = new Set<(hint: Hint) => void>()
  let detach: (() => void) | undefined
  const close = () => {
    listeners.clear()
    detach?.()
    detach = undefined
  }
  return {
    tell(hint) {
      for (const listener of [...listeners]) listener(hint)
    },
    onHint(listener) {
      // Wrapped, so that the same function may listen twice.
      const one = (hint: Hint) => listener(hint)
      listeners.add(one)
      detach ??= attach()
      return () => {
        if (listeners.delete(one) && listeners.size === 0) close()
      }
    },
    close,
  }
}

/**
 * Collects the calls of one moment (everything until the event loop comes round) and runs them together: a thousand
 * small queries become a few. Each caller gets its own result; if the run fails, all of its callers get the error.
 */
export function createMomentBatch<T, R>(
  run: (items: readonly T[]) => Promise<readonly R[]>,
  max = 256,
): (item: T) => Promise<R> {
  interface Waiting {
    readonly item: T
    readonly resolve: (result: R) => void
    readonly reject: (error: unknown) => void
  }
  const waiting: Waiting[] = []
  const flush = async () => {
    const batch = waiting.splice(0, max)
    if (waiting.length > 0) setImmediate(flush)
    try {
      const results = await run(batch.map(({ item }) => item))
      batch.forEach(({ resolve }, i) => {
        resolve(results[i] as R)
      })
    } catch (error) {
      for (const { reject } of batch) reject(error)
    }
  }
  return (item) =>
    new Promise((resolve, reject) => {
      if (waiting.length === 0) setImmediate(flush)
      waiting.push({ item, resolve, reject })
    })
}
