/**
 * Everything that a task waits for or has waited for, in order: its questions, its offers, and its hooks for events from
 * outside. Pure, and the same for every store.
 *
 * A slot holds a request while it is open, an answer afterwards, and nothing if it was closed without one. Slots are never
 * removed, so no key is used twice. Hooks have keys of their own: no client sees or answers them.
 * A slot with an `until` takes no answer from that time on: a late one is acknowledged and changes nothing.
 * Stores keep the list as one JSON text of [key, request, answer, role, until] rows, which preserves the order and any key.
 */

import { misuse } from '../errors.ts'
import type { Sealed } from './task-engine.ts'

/**
 * A question (the default) wakes a parked task together with the other questions that are open; an offer or a hook wakes it
 * alone. A hook is answered by the server, never by a client.
 */
export type SlotRole = 'offer' | 'hook'

export type InputSlot =
  | {
      readonly kind: 'open'
      readonly key: string
      readonly role?: SlotRole
      readonly request: Sealed
      /** Takes no answer from this time on, ms since the Unix epoch. */
      readonly until?: number
    }
  | { readonly kind: 'answered'; readonly key: string; readonly role?: SlotRole; readonly answer: Sealed }
  | { readonly kind: 'closed'; readonly key: string; readonly role?: SlotRole }

export type AnsweredSlot = Extract<InputSlot, { kind: 'answered' }>

/** The name of a slot among all slots of its task. */
export type SlotName = Pick<InputSlot, 'key' | 'role'>

export interface SlotChange {
  readonly open?: readonly {
    readonly key: string
    readonly role?: SlotRole
    readonly request: Sealed
    readonly until?: number
  }[]
  readonly close?: readonly SlotName[]
}

/** Opens and closes slots; throws if a key was used before. */
export function changeSlots(
  slots: readonly InputSlot[],
  { open = [], close = [] }: SlotChange,
): readonly InputSlot[] {
  let next = slots
  for (const { key, role, request, until } of open) {
    const times = until === undefined ? undefined : new Map([[key, until]])
    next = openSlots(next, new Map([[key, request]]), role, times)
  }
  return closeSlots(next, close)
}

/** True for text that every database stores unchanged: no NUL, no lone surrogate. */
export function isStorable(text: string): boolean {
  return !/\0|[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(text)
}

/** A text that names the slot among all slots of its task. */
export function nameOf({ key, role }: SlotName): string {
  return `${role === 'hook' ? 'hook' : 'input'} ${key}`
}

/** Adds slots of one role; throws if a key was used before. */
export function openSlots(
  slots: readonly InputSlot[],
  requests: ReadonlyMap<string, Sealed>,
  role?: SlotRole,
  until?: ReadonlyMap<string, number>,
): readonly InputSlot[] {
  const used = new Set(slots.map(nameOf))
  for (const key of requests.keys()) {
    if (used.has(nameOf({ key, role }))) throw misuse(`The input key "${key}" was already used in this task`)
    if (!isStorable(key)) throw misuse('An input key must be well-formed text without NUL')
  }
  const added = Array.from(
    requests,
    ([key, request]): InputSlot => ({
      kind: 'open',
      key,
      request,
      ...(role === undefined ? {} : { role }),
      ...(until?.has(key) ? { until: until.get(key) } : {}),
    }),
  )
  return [...slots, ...added]
}

/** Closes open slots without an answer. */
export function closeSlots(slots: readonly InputSlot[], closing: readonly SlotName[]): readonly InputSlot[] {
  const names = new Set(closing.map(nameOf))
  return slots.map((slot) => (slot.kind === 'open' && names.has(nameOf(slot)) ? closed(slot) : slot))
}

function closed({ key, role }: InputSlot): InputSlot {
  return role === undefined ? { kind: 'closed', key } : { kind: 'closed', key, role }
}

function answered({ key, role }: InputSlot, answer: Sealed): InputSlot {
  return role === undefined ? { kind: 'answered', key, answer } : { kind: 'answered', key, role, answer }
}

interface SlotUpdate {
  readonly slots: readonly InputSlot[]
  /** How many answers were accepted, including those already stored with the same bytes. */
  readonly taken: number
  readonly changed: boolean
  /** How many slots are open that a client may answer. */
  readonly open: number
  /** A parked task is due: an offer or a hook was answered, or no question is left. */
  readonly wakes: boolean
}

/**
 * Fills open slots with the answers of a client that arrived `at` a time; all other answers are ignored, late ones too, and
 * hooks are never touched.
 */
export function answerSlots(
  slots: readonly InputSlot[],
  answers: ReadonlyMap<string, Sealed>,
  at: number = Number.NEGATIVE_INFINITY,
): SlotUpdate {
  return fill(slots, (slot) => (slot.role === 'hook' || isLate(slot, at) ? undefined : answers.get(slot.key)))
}

function isLate(slot: InputSlot, at: number): boolean {
  return slot.kind === 'open' && slot.until !== undefined && at >= slot.until
}

/** Fills the hook with its event, if it is open and its time is not up. */
export function answerHook(
  slots: readonly InputSlot[],
  key: string,
  event: Sealed,
  at: number = Number.NEGATIVE_INFINITY,
): SlotUpdate {
  return fill(slots, (slot) =>
    slot.role === 'hook' && slot.key === key && !isLate(slot, at) ? event : undefined,
  )
}

/** The reason why a hook did not take an event. */
export function refusedHook(slots: readonly InputSlot[], key: string): 'duplicate' | 'closed' {
  const hook = slots.find((slot) => slot.role === 'hook' && slot.key === key)
  return hook?.kind === 'answered' ? 'duplicate' : 'closed'
}

function fill(slots: readonly InputSlot[], answerTo: (slot: InputSlot) => Sealed | undefined): SlotUpdate {
  let taken = 0
  let changed = false
  let alone = false
  let questions = 0
  const next = slots.map((slot): InputSlot => {
    const answer = answerTo(slot)
    if (slot.kind === 'answered' && answer === slot.answer) taken++
    if (slot.kind !== 'open') return slot
    if (answer === undefined) {
      if (slot.role === undefined) questions++
      return slot
    }
    taken++
    changed = true
    if (slot.role !== undefined) alone = true
    return answered(slot, answer)
  })
  return { slots: next, taken, changed, open: openInputs(next).size, wakes: alone || questions === 0 }
}

/**
 * The slots of a worker, with the answers that the store took meanwhile: these win, even over a slot that the worker
 * closes. `news`: there are such answers.
 */
export function mergeSlots(
  stored: readonly InputSlot[],
  given: readonly InputSlot[],
): { readonly slots: readonly InputSlot[]; readonly news: boolean } {
  const taken = new Map(stored.flatMap((slot) => (slot.kind === 'answered' ? [[nameOf(slot), slot]] : [])))
  let news = false
  const slots = given.map((slot) => {
    const known = taken.get(nameOf(slot))
    if (known === undefined || slot.kind === 'answered') return slot
    news = true
    return known
  })
  return { slots, news }
}

/** The answers in `slots` that `before` does not have. */
export function newAnswers(
  before: readonly InputSlot[],
  slots: readonly InputSlot[],
): readonly AnsweredSlot[] {
  const known = new Set(before.flatMap((slot) => (slot.kind === 'answered' ? [nameOf(slot)] : [])))
  return slots.filter((slot) => slot.kind === 'answered').filter((slot) => !known.has(nameOf(slot)))
}

/** The slots that a client may answer. */
export function openInputs(slots: readonly InputSlot[]): ReadonlyMap<string, Sealed> {
  return new Map(
    slots.flatMap((slot) =>
      slot.kind === 'open' && slot.role !== 'hook' ? [[slot.key, slot.request] as const] : [],
    ),
  )
}

/** The keys of the hooks that wait for an event. */
export function openHooks(slots: readonly InputSlot[]): readonly string[] {
  return slots.flatMap((slot) => (slot.kind === 'open' && slot.role === 'hook' ? [slot.key] : []))
}

/** The answers of clients. */
export function givenAnswers(slots: readonly InputSlot[]): ReadonlyMap<string, Sealed> {
  return new Map(
    slots.flatMap((slot) =>
      slot.kind === 'answered' && slot.role !== 'hook' ? [[slot.key, slot.answer] as const] : [],
    ),
  )
}

/** The status of an unfinished task with these slots. */
export function waitingStatus(slots: readonly InputSlot[]): 'working' | 'input_required' {
  return openInputs(slots).size > 0 ? 'input_required' : 'working'
}

type SlotRow = readonly [
  key: string,
  request: Sealed | null,
  answer: Sealed | null,
  role?: SlotRole | null,
  until?: number,
]

/** A closed slot has neither a request nor an answer. */
export function encodeSlots(slots: readonly InputSlot[]): string {
  return JSON.stringify(
    slots.map((slot): SlotRow => {
      const request = slot.kind === 'open' ? slot.request : null
      const answer = slot.kind === 'answered' ? slot.answer : null
      if (slot.kind === 'open' && slot.until !== undefined)
        return [slot.key, request, answer, slot.role ?? null, slot.until]
      return slot.role === undefined ? [slot.key, request, answer] : [slot.key, request, answer, slot.role]
    }),
  )
}

export function decodeSlots(text: string | null): readonly InputSlot[] {
  if (text === null) return []
  return (JSON.parse(text) as SlotRow[]).map(([key, request, answer, role, until]): InputSlot => {
    const slot = role === undefined || role === null ? { key } : { key, role }
    if (answer !== null) return { ...slot, kind: 'answered', answer }
    if (request === null) return { ...slot, kind: 'closed' }
    return until === undefined
      ? { ...slot, kind: 'open', request }
      : { ...slot, kind: 'open', request, until }
  })
}
