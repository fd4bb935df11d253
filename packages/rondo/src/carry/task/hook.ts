/**
 * Events from outside: how a task opens a hook, and how an event reaches it. The id of a hook is sealed: it names the task,
 * its owner and the hook, so that any instance with the keys can deliver to it, and nobody else can make one up.
 *
 * Unknown, altered, foreign and expired ids look alike to the sender; the reason is only in the log.
 */

import { misuse, RondoError } from '../../errors.ts'
import { isRecord, isText, isTime } from '../../lib/json.ts'
import { createRate } from '../../lib/rate.ts'
import type { Principal } from '../../protocol/call.ts'
import type { JsonSchema } from '../../protocol/wire.ts'
import type { Hooks } from '../../replay/input.ts'
import { copyJson, whyNotJson } from '../../replay/work.ts'
import { openEnvelope, sealEnvelope } from '../../seal/envelope.ts'
import { type InputSlot, isStorable } from '../../store/input-slots.ts'
import type { TaskTurn } from '../../store/task-engine.ts'
import { HOOK_MS, inTime } from '../../tool/hook.ts'
import { compilePlainSchema } from '../../tool/schema/judge.ts'
import { describeProblems } from '../../tool/schema/schema.ts'
import { findLongText } from '../../tool/schema/standard.ts'
import { acceptOf, type Target } from '../../tool/target.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { endOfLife, openPiece, type PieceOf, sealPiece } from './journal.ts'

/** The outcome of delivering an event. */
export type EventDelivery =
  /** The hook has it: its task continues with it. */
  | { readonly kind: 'accepted' }
  /** The hook already has an event, and keeps it. */
  | { readonly kind: 'duplicate' }
  /** The hook no longer accepts an event: its time is up, or its task has ended. */
  | { readonly kind: 'closed' }
  /** The event does not fit, or the tool's `accept` refused it. The hook stays open for one that does. */
  | { readonly kind: 'rejected'; readonly problem: string }
  /** There is no such hook, or it has expired. */
  | { readonly kind: 'unknown' }

/** A hook as a page that got its id may see it. */
export type HookView =
  | {
      readonly kind: 'open'
      /** The value that the handler stored with the hook. */
      readonly about?: unknown
      /** The JSON Schema of the event. */
      readonly schema?: JsonSchema
      /** When the hook closes by itself, ms since the epoch. */
      readonly until?: number
    }
  /** The hook has its event. */
  | { readonly kind: 'received' }
  /** The hook no longer accepts an event: its time is up. */
  | { readonly kind: 'closed' }
  /** There is no such hook, it has expired, or its task has ended. */
  | { readonly kind: 'unknown' }

/** The content of a hook's id. */
interface HookName {
  readonly task: string
  readonly principal: string
  readonly key: string
  /** When the task expires at the latest, ms since the epoch. */
  readonly expires: number
}

/** An open hook as its task stores it. */
interface HookRequest {
  readonly schema?: JsonSchema
  readonly about?: unknown
  readonly tool?: string
  readonly principal?: Principal
  /** The tool checked events when the hook was opened: no instance without that check may accept one. */
  readonly checked?: true
}

const PREFIX = 'h.'
const MAX_ID = 4_096

/** The turn that opens hooks. */
interface Opener {
  readonly host: FlowHost
  readonly tasks: TaskHost
  readonly turn: TaskTurn
  readonly target: Target
  readonly principal: Principal | undefined
}

export function hooksOf({ host, tasks, turn, target, principal: caller }: Opener): Hooks {
  const { task } = turn
  return {
    async open(key, { schema, about }, until) {
      if (!isStorable(key)) throw misuse('The name of a hook must be well-formed text without NUL.')
      const isOpen = turn.slots().some((slot) => slot.role === 'hook' && slot.key === key)
      if (!isOpen) {
        const checked = acceptOf(target, key) ? true : undefined
        const kept: HookRequest = { schema, about, tool: target.name, principal: caller, checked }
        const request = sealPiece(host, task, `hook ${key}`, kept)
        await turn.publish({ open: [{ key, role: 'hook', request, until }] })
      }
      const { principal } = task.owner
      return sealId(host, { task: task.id, principal, key, expires: endOfLife(tasks, task) })
    },
    close: (key) => turn.publish({ close: [{ key, role: 'hook' }] }),
  }
}

/** The events that a task has received, by the key of their hooks. */
export function eventsOf(
  host: FlowHost,
  tasks: TaskHost,
  task: PieceOf,
  slots: readonly InputSlot[],
): Map<string, unknown> {
  const events = new Map<string, unknown>()
  for (const slot of slots) {
    if (slot.role === 'hook' && slot.kind === 'answered')
      events.set(slot.key, openPiece(host, tasks, task, `event ${slot.key}`, slot.answer))
  }
  return events
}

const findSlot = async (tasks: TaskHost, { id, owner }: PieceOf, hook: string) =>
  (await tasks.engine.slots(id, owner))?.find(({ key, role }) => role === 'hook' && key === hook)

/**
 * Asks the tool whether the hook may take the event. Rejects if that cannot be found out: whoever delivers tries again, here or on
 * another instance.
 */
async function whyRefused(
  { tool = '', about, principal, checked }: HookRequest,
  key: string,
  find: (tool: string) => Target | undefined,
  event: unknown,
): Promise<string | undefined> {
  const target = find(tool)
  const accept = target && acceptOf(target, key)
  if (!accept) {
    if (!checked) return undefined
    throw new RondoError(
      'SERVER_INTERNAL',
      `This instance cannot check the events of "${key}": it lacks accept`,
    )
  }
  const facts = { key, about, ...(principal && { principal }) }
  const asked = (async () => accept(copyJson(event), facts))()
  const verdict = await inTime(asked, HOOK_MS, `accept of the hook "${key}"`)
  if (verdict === true) return undefined
  return typeof verdict === 'string' && verdict !== '' ? verdict : 'The event was refused'
}

/** Returns the hook with this id, as a page may see it. Rejects only if the store fails. */
export async function viewHook(host: FlowHost, tasks: TaskHost, id: string): Promise<HookView> {
  await host.keys.ready()
  const name = openId(host, id)
  if (name === undefined) return { kind: 'unknown' }
  const of = { id: name.task, owner: { tenant: host.audience, principal: name.principal } }
  const slot = await findSlot(tasks, of, name.key)
  if (slot === undefined) {
    logRefusal(host, 'the task is unknown, has ended or has expired')
    return { kind: 'unknown' }
  }
  if (slot.kind === 'answered') return { kind: 'received' }
  if (slot.kind === 'closed' || (slot.until !== undefined && host.platform.now() >= slot.until))
    return { kind: 'closed' }
  const { about, schema } = openPiece<HookRequest>(host, tasks, of, `hook ${name.key}`, slot.request)
  return { kind: 'open', about, schema, until: slot.until }
}

/** Delivers an event to the hook with this id. Rejects only if the store fails, or the tool's `accept`. */
export async function deliverEvent(
  host: FlowHost,
  tasks: TaskHost,
  find: (tool: string) => Target | undefined,
  id: string,
  given: unknown,
): Promise<EventDelivery> {
  await host.keys.ready()
  const name = openId(host, id)
  if (name === undefined) return { kind: 'unknown' }
  const of = { id: name.task, owner: { tenant: host.audience, principal: name.principal } }
  const notJson = whyNotJson(given) ?? (given === undefined ? 'it is undefined' : undefined)
  if (notJson !== undefined) return rejected(`The event must be plain JSON: ${notJson}`)
  // Read once: what is checked is what the hook takes, whatever the sender does with its object meanwhile.
  const event = copyJson(given)
  const slot = await findSlot(tasks, of, name.key)
  // The time of a hook that is over is for the store to notice.
  if (slot?.kind === 'open') {
    const request = openPiece<HookRequest>(host, tasks, of, `hook ${name.key}`, slot.request)
    const problem =
      findProblem(host, request.schema, copyJson(event)) ?? (await whyRefused(request, name.key, find, event))
    if (problem !== undefined) return rejected(problem)
  }
  const sealed = sealEvent(host, of, name.key, event)
  if (sealed instanceof RondoError) return rejected('The event is too large')
  const kind = await tasks.engine.deliverHook(of.id, of.owner, name.key, sealed)
  if (kind === 'unknown') logRefusal(host, 'the task is unknown or has expired')
  return { kind }
}

function rejected(problem: string): EventDelivery {
  return { kind: 'rejected', problem }
}

function findProblem(
  { limits }: FlowHost,
  schema: JsonSchema | undefined,
  event: unknown,
): string | undefined {
  const long = findLongText(event, limits)
  if (long) return describeProblems([long])
  if (schema === undefined) return undefined
  const result = compilePlainSchema(schema, 'The schema of a hook', limits)(event)
  return result.ok ? undefined : describeProblems(result.problems)
}

function sealEvent(host: FlowHost, of: PieceOf, key: string, event: unknown): string | RondoError {
  try {
    return sealPiece(host, of, `event ${key}`, event)
  } catch (error) {
    if (error instanceof RondoError) return error
    throw error
  }
}

/** Separates hooks from everything else that is sealed with the ring. */
function placeOf({ audience }: FlowHost): string {
  return JSON.stringify(['hook', audience])
}

function sealId(host: FlowHost, name: HookName): string {
  return PREFIX + sealEnvelope(host.keys.ring, placeOf(host), JSON.stringify(name)).token
}

function openId(host: FlowHost, id: unknown): HookName | undefined {
  const isOurs = typeof id === 'string' && id.startsWith(PREFIX)
  const opened = openEnvelope(
    host.keys.ring,
    placeOf(host),
    isOurs ? id.slice(PREFIX.length) : undefined,
    MAX_ID,
  )
  if (opened.kind === 'refused') return logRefusal(host, opened.reason)
  const name: unknown = JSON.parse(opened.plaintext.toString('utf8'))
  if (!isRecord(name) || !isText(name.task) || !isText(name.principal) || !isText(name.key))
    return logRefusal(host, 'shape')
  if (!isTime(name.expires) || host.platform.now() >= name.expires) return logRefusal(host, 'expired')
  return name as unknown as HookName
}

/** Whoever makes up ids must not fill the log. There are only a few reasons. */
const rates = new WeakMap<FlowHost, ReturnType<typeof createRate>>()
const LINES_A_MINUTE = 10

function logRefusal(host: FlowHost, reason: string): undefined {
  const rate = rates.get(host) ?? createRate(60_000, () => host.platform.now(), LINES_A_MINUTE)
  rates.set(host, rate)
  const leftOut = rate(reason)
  if (leftOut === undefined) return undefined
  const more = leftOut > 0 ? `; ${leftOut} others like it were not logged` : ''
  const message = `The id of a hook was refused: it does not open (${reason})${more}`
  host.log({ event: 'warning', message })
  return undefined
}
