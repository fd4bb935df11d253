/**
 * Questions of a task that are shown while its turn still runs, and the answers that arrive meanwhile.
 *
 * The journal names a question before the client can see it. If the process dies in between, the next turn shows it; if it
 * dies later, the next turn finds the question and its answer in the store.
 */

import type { ReplayInput } from '../../replay/replay.ts'
import type { AnsweredSlot } from '../../store/input-slots.ts'
import type { TaskTurn } from '../../store/task-engine.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { eventsOf } from './hook.ts'
import {
  type Folded,
  freeKey,
  openPiece,
  type Parked,
  sealPiece,
  shownAs,
  type TaskRecord,
  withOpened,
} from './journal.ts'

export interface Shown extends Required<Pick<ReplayInput, 'publish' | 'withdraw' | 'onArrival'>> {
  /** What the task asked before this turn and in it. */
  folded(): Folded
  /** The record of a park, with the offers that stay open. */
  keepOffers(record: TaskRecord): TaskRecord
}

export function createShown(host: FlowHost, tasks: TaskHost, turn: TaskTurn, before: Folded): Shown {
  const { task } = turn
  let { parked } = before

  const publish: Shown['publish'] = async (questions, { reasks }) => {
    const mine = turn.slots().filter((slot) => slot.role !== 'hook')
    const taken = new Set(mine.map((slot) => slot.key))
    const asked: Record<string, Parked['asked'][string]> = {}
    const open: { key: string; role?: 'offer'; request: string; until?: number }[] = []
    for (const [key, { request, digest, due: until, standing }] of questions) {
      if (shownAs(parked, mine, key, digest) !== undefined) continue
      const wireKey = freeKey(key, taken)
      taken.add(wireKey)
      asked[wireKey] = { key, digest }
      const sealed = sealPiece(host, task, `input ${wireKey}`, request)
      open.push({ key: wireKey, role: standing ? 'offer' : undefined, request: sealed, until })
    }
    if (open.length === 0) return
    const opened = { asked, reasks }
    parked = withOpened(parked, opened)
    await turn.record(sealPiece(host, task, 'record', { opened } satisfies TaskRecord))
    await turn.publish({ open })
  }

  const toArrival = (slot: AnsweredSlot) => {
    const [event] = eventsOf(host, tasks, task, [slot])
    if (event) return { hook: event[0], value: event[1] }
    const question = Object.hasOwn(parked.asked, slot.key) ? parked.asked[slot.key] : undefined
    if (!question || slot.role === 'hook') return undefined
    const answer: unknown = openPiece(host, tasks, task, `answer ${slot.key}`, slot.answer)
    // Text is a method that the client turned out not to implement: the next turn goes on without it.
    return typeof answer === 'string'
      ? undefined
      : { question: question.key, digest: question.digest, answer }
  }

  return {
    publish,
    onArrival: (arrival) =>
      turn.onAnswers((slot) => {
        const arrived = toArrival(slot)
        return arrived !== undefined && arrival(arrived)
      }),
    async withdraw(key) {
      const close = turn
        .slots()
        .filter(
          (slot) => slot.role === 'offer' && slot.kind === 'open' && parked.asked[slot.key]?.key === key,
        )
      if (close.length > 0) await turn.publish({ close })
    },
    keepOffers(record) {
      if (!('parked' in record)) return record
      const offers = turn.slots().flatMap((slot) => {
        const asked = Object.hasOwn(parked.asked, slot.key) ? parked.asked[slot.key] : undefined
        return slot.role === 'offer' && slot.kind === 'open' && asked ? [[slot.key, asked] as const] : []
      })
      const asked = { ...Object.fromEntries(offers), ...record.parked.asked }
      return { parked: { ...record.parked, asked } }
    },
    folded: () => ({ ...before, parked }),
  }
}
