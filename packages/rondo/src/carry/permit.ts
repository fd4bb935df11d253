/**
 * One at a time (M3): a call of a tool with `concurrency` runs only while its flow holds a permit of the store, in rounds and as a
 * task alike.
 *
 * While a handler runs, the hold is short and renewed; a process that dies or freezes loses it soon. Before every effect, after
 * everything else that it waits for, and before the result of anything is recorded in a task, the store is asked whether the grant
 * still counts: a former holder is refused there (`STORE_BUSY`). While the call waits for somebody, the hold lasts as long as the wait may, or ends (`whileWaiting: 'release'`).
 *
 * The permit of a task that can be undone passes to its alarm (`undo.ts`): however the task ends, the permit ends once a worker has
 * undone it.
 *
 * A call that finds no permit waits as a task, which holds nothing: no process, no connection, no timer. It is released to the store,
 * which makes it due when it may be its turn.
 */

import { RondoError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import { repeat, type StoreClock, storeClock } from '../lib/clock.ts'
import type { ReplayInput } from '../replay/input.ts'
import { tagsOf } from '../seal/tag.ts'
import type { PermitStore } from '../store/permits.ts'
import type { Concurrency } from '../tool/concurrency.ts'
import type { Pause, Round } from './carrier.ts'
import type { FlowHost } from './host.ts'
import { alarmOf, openAlarm } from './undo.ts'

export interface HeldPermit {
  /** Throws `STORE_BUSY` if another call may hold the permit by now. */
  check(): Promise<void>
  /** The run has stopped before its call was over. False if the permit was lost meanwhile. */
  pause(pause: Pause): Promise<boolean>
  /** The call can be undone from now on: the permit of a task ends with its alarm. */
  guard(journal: Journal): void
  /** A worker undoes the rest of the call, and takes the permit over: `release` leaves it. */
  handOver(): void
  /** Keeps the permit for this time beyond the usual hold, without further renewals. */
  hold(ms: number): Promise<boolean>
  release(): Promise<void>
  /** Ends the renewals. */
  stop(): void
}

export type Taken =
  | { readonly kind: 'held'; readonly permit: HeldPermit }
  /** The task waits in the queue; it is tried again after this time, unless it is woken. */
  | { readonly kind: 'queued'; readonly delayMs: number }
  | { readonly kind: 'busy'; readonly retryMs: number }

/** The hold of a call that runs, or that is on its way to another process. */
const holdOf = ({ leaseMs }: FlowHost): number => 2 * leaseMs

/** How soon a task in the queue is tried again: as long as it has waited already, within bounds, for a wake that got lost. */
const MIN_QUEUE_MS = 500
const MAX_QUEUE_MS = 60_000
/** How long a permit outlasts the wait of its task for a worker that undoes the call. Its alarm ends it before. */
const PATIENCE_MS = 3_600_000
/** After a failure of the store. */
const UNCERTAIN_MS = 5_000

/** Acquires the permit of a round whose tool has `concurrency`. */
export async function takePermit(
  round: Round,
  concurrency: Concurrency,
  permits: PermitStore,
  clock: StoreClock = storeClock,
): Promise<Taken> {
  const { host, call, beginning, principal, task } = round
  await host.keys.ready()
  const key = await concurrency.keyOf(call.args, { principal })
  const tags = tagsOf(host.keys.ring, 'concurrency', JSON.stringify([host.audience, call.target, key]))
  const holder = beginning.flow
  const holdMs = holdOf(host)
  const { limit } = concurrency
  const queues = task !== undefined && concurrency.queues
  try {
    const endsWith = task && (await openAlarm(host, beginning.journal))
    const request = { holder, tags, limit, holdMs, queues, endsWith, ...task }
    const grant = await permits.acquire(request)
    if (grant.kind === 'held') {
      const permit = holdPermit(round, permits, { ...grant, alarm: endsWith }, concurrency, clock)
      return { kind: 'held', permit }
    }
    if (!queues) return { kind: 'busy', retryMs: grant.retryMs }
    const patience = Math.min(MAX_QUEUE_MS, Math.max(MIN_QUEUE_MS, grant.waitedMs))
    return { kind: 'queued', delayMs: patience }
  } catch (error) {
    // The task waits until the store works again, without counting a failure.
    if (task !== undefined && error instanceof RondoError && error.code.startsWith('STORE_'))
      return { kind: 'queued', delayMs: UNCERTAIN_MS }
    throw error
  }
}

function holdPermit(
  round: Round,
  permits: PermitStore,
  { grant, alarm: given }: { readonly grant: string; readonly alarm: string | undefined },
  { releases }: Concurrency,
  clock: StoreClock,
): HeldPermit {
  const { host, beginning, row, task } = round
  const { flow } = beginning
  let lost = false
  let isHandedOver = false
  let alarm = given
  const renewNow = async (holdMs: number): Promise<boolean> => {
    if (lost) return false
    lost = !(await permits.renew(flow, grant, holdMs, alarm))
    return !lost
  }
  let renewing: Promise<unknown> = Promise.resolve()
  /** One after the other: a renewal that is late must not shorten the hold of a wait. */
  const renew = (holdMs: number): Promise<boolean> => {
    const next = renewing.then(() => renewNow(holdMs))
    renewing = next.catch(() => {})
    return next
  }
  const stop = repeat(
    clock,
    () => host.leaseMs / 2,
    // If the store is away, the hold ends by itself, and the next check finds out.
    () => void renew(holdOf(host)).catch(() => {}),
  )
  const release = async (): Promise<void> => {
    stop()
    if (isHandedOver) return
    // If it cannot be released, the hold ends by itself.
    await permits.release(flow, grant).catch(() => {})
  }
  const hold = async (ms: number): Promise<boolean> => {
    stop()
    const patience = alarm === undefined ? 0 : PATIENCE_MS
    // Without the store the call still goes on; its next round acquires again.
    return renew(holdOf(host) + ms + patience).catch(() => true)
  }
  return {
    stop,
    release,
    hold,
    guard(journal) {
      if (task) alarm = alarmOf(host, journal)
    },
    handOver() {
      isHandedOver = true
    },
    async check() {
      const asked = host.platform.now()
      const held = await renew(holdOf(host))
      // A process that froze meanwhile reads a reply that is no longer true.
      const isLate = host.platform.now() - asked >= holdOf(host)
      if (!held || isLate) throw lostPermit(host)
    },
    async pause({ facts, leaves }) {
      const isMoving = facts.moved !== undefined || leaves
      // A task whose owner may never learn of it must not keep others waiting.
      const isUnknown = row !== undefined && facts.moved === 'effect'
      if (isUnknown || (releases && !isMoving)) {
        await release()
        return true
      }
      // A permit ends with its task. The time of this instance does not count here: its clock may be ahead.
      const left = row ? beginning.flowExpires - row.createdAt : host.limits.roundTtlMs
      return hold(isMoving ? 0 : Math.max(0, left))
    },
  }
}

export function lostPermit(host: FlowHost): RondoError {
  const seconds = Math.max(1, Math.ceil(holdOf(host) / 1000))
  const detail = `This call no longer holds its permit: it was not renewed in time, or the call runs elsewhere. Retry in ${seconds} s`
  return new RondoError('STORE_BUSY', detail, { data: { retryAfterMs: seconds * 1000 } })
}

/** The error of a call that is one too many. */
export function tooManyCalls({ target, host }: Round, { queues }: Concurrency, retryMs: number): RondoError {
  const why = !queues
    ? ''
    : host.tasks
      ? ' This call could wait as a task, but this client or this tool does not allow that.'
      : ' This call could wait as a task, but this server runs none.'
  const detail = `"${target.name}" is already running as many calls as it allows.${why} Nothing was done.`
  return new RondoError('LIMIT_CONCURRENCY', detail, { data: { retryAfterMs: retryMs } })
}

/** The input of a run that holds a permit. */
export function withPermit(input: ReplayInput, permit: HeldPermit): ReplayInput {
  const { persist, undoing } = input
  return {
    ...input,
    admit: permit.check,
    ...(undoing &&
      'keep' in undoing && {
        undoing: {
          ...undoing,
          keep: async (journal, news) => {
            await undoing.keep(journal, news)
            permit.guard(journal)
          },
        },
      }),
    ...(persist && {
      persist: async (entry) => {
        await permit.check()
        await persist(entry)
      },
    }),
  }
}

/** Ends the permit of a flow that ended without another run, unless a worker has to undo it first. */
export async function leavePermit({ host, target, beginning }: Round, journal: Journal): Promise<void> {
  if (target.concurrency && alarmOf(host, journal) === undefined)
    await host.store?.permits?.release(beginning.flow).catch(() => {})
}
