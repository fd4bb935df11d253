/**
 * Every question that a task has asked, in order, with its answer. Pure, and the same for every store.
 *
 * A slot holds a request while it is open and an answer afterwards. Slots are never removed, so no key is used twice.
 * Stores keep the list as one JSON text of [key, request, answer] rows, which preserves the order and any key.
 */

import { misuse } from '../errors.ts'
import type { Sealed } from './task-engine.ts'

export type InputSlot =
  | { readonly kind: 'open'; readonly key: string; readonly request: Sealed }
  | { readonly kind: 'answered'; readonly key: string; readonly answer: Sealed }

/** True for text that every database stores unchanged: no NUL, no lone surrogate. */
export function isStorable(text: string): boolean {
  return !/\0|[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(text)
}

/** Adds questions; throws if a key was used before. */
export function openSlots(
  slots: readonly InputSlot[],
  requests: ReadonlyMap<string, Sealed>,
): readonly InputSlot[] {
  const used = new Set(slots.map((slot) => slot.key))
  if (requests.size === 0)
    throw misuse('A task cannot wait for nothing: park it with at least one input request')
  for (const key of requests.keys()) {
    if (used.has(key)) throw misuse(`The input key "${key}" was already used in this task`)
    if (!isStorable(key)) throw misuse('An input key must be well-formed text without NUL')
  }
  return [...slots, ...Array.from(requests, ([key, request]): InputSlot => ({ kind: 'open', key, request }))]
}

interface SlotUpdate {
  readonly slots: readonly InputSlot[]
  /** How many answers were accepted, including those already stored with the same bytes. */
  readonly taken: number
  readonly changed: boolean
  readonly open: number
}

/** Fills open slots with the answers to them; all other answers are ignored. */
export function answerSlots(slots: readonly InputSlot[], answers: ReadonlyMap<string, Sealed>): SlotUpdate {
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
