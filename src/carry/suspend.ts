/**
 * The end of a round that is not the end of its call: what happened so far is kept for the next one, sealed in the client's
 * hands unless the carrier has another way; where it has outgrown that, it goes on as a task or is put away in the store.
 */

import { RondoError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import type { Reply } from '../protocol/reply.ts'
import type { InputRequests } from '../protocol/wire.ts'
import type { RunReport } from '../replay/outcome.ts'
import type { Claims } from '../seal/claims.ts'
import type { SealedState } from '../seal/state.ts'
import type { Store } from '../store/store.ts'
import type { Target } from '../tool/target.ts'
import { beginTask } from './begin-task.ts'
import { concludeRefused } from './conclude.ts'
import { keepState } from './continuation.ts'
import type { FlowHost, RoundEvent } from './flow-host.ts'
import { bind } from './open-round.ts'
import { type Keep, type Kept, logRound, type Round } from './round.ts'
import { spill } from './spill.ts'
import { taskHostFor } from './task-host.ts'

interface Suspension {
  readonly journal: Journal
  readonly asked: Readonly<Record<string, string>>
  readonly inputRequests?: InputRequests
}

type Facts = Pick<RoundEvent, 'outcome' | 'asks' | 'moved'>

/** Keeps what happened so far and tells the client. */
export function suspend(
  round: Round,
  report: RunReport,
  suspension: Suspension,
  facts: Facts,
): Reply | Promise<Reply> {
  const { store } = round.host
  if (store) return suspendWithStore(round, report, suspension, facts, store)
  const keeping = keep(round, suspension)
  if (!(keeping instanceof Promise)) return told(round, report, facts, keeping)
  return keeping.then((kept) => told(round, report, facts, kept))
}

/** Goes on as a task. Only for calls whose client can follow one. */
export function leave(round: Round, { journal }: RunReport): Promise<Reply> {
  const tasks = taskHostFor(round)
  if (!tasks) throw new RondoError('SERVER_INTERNAL', 'A call was to go on as a task that cannot')
  // Answers are in the journal by now; the manual form reads them again from the request.
  return beginTask(round, tasks, journal, journal.manual !== undefined)
}

/** The same, unless the caller has too many tasks: then the call goes on as it did. */
export async function tryToLeave(round: Round, report: RunReport): Promise<Reply | undefined> {
  try {
    return await leave(round, report)
  } catch (error) {
    if (error instanceof RondoError && error.code === 'LIMIT_TASKS') return undefined
    throw error
  }
}

async function suspendWithStore(
  round: Round,
  report: RunReport,
  { journal: given, ...rest }: Suspension,
  facts: Facts,
  { once, blobs }: Pick<Store, 'once' | 'blobs'>,
): Promise<Reply> {
  const { host, beginning, line } = round
  // A client that has gone would never hear of the task.
  const mayLeave = taskHostFor(round) !== undefined && given.manual === undefined && !line.closed
  const isLate = beginning.round >= host.limits.promoteRounds
  const left = mayLeave && isLate ? await tryToLeave(round, report) : undefined
  if (left) return left
  const journal = { ...given, epoch: given.epoch ?? (await once.epoch()) }
  const kept = await keep(round, { ...rest, journal })
  if (kept.kind === 'kept') return told(round, report, facts, kept)
  const task = mayLeave && !isLate ? await tryToLeave(round, report) : undefined
  if (task) return task
  const spilled = await spill(host, blobs, journal, beginning.flowExpires)
  return told(round, report, facts, await keep(round, { ...rest, journal: spilled }))
}

function keep(round: Round, { journal, asked, inputRequests }: Suspension): Kept | Promise<Kept> {
  return (round.keep ?? keepInToken)(round, claimsOf(round, journal, asked), inputRequests)
}

const keepInToken: Keep = ({ host }, claims, inputRequests) => {
  const hand = (sealed: SealedState): Kept =>
    sealed.kind === 'too-large'
      ? sealed
      : {
          kind: 'kept',
          reply: { kind: 'input_required', inputRequests, requestState: sealed.token },
          bytes: sealed.bytes,
          keyId: sealed.keyId,
        }
  const keeping = keepState(host, claims)
  return keeping instanceof Promise ? keeping.then(hand) : hand(keeping)
}

/** What is sealed at the end of a round. */
export function claimsOf(
  { host, call, target, principal, beginning }: Round,
  journal: Journal,
  asked: Readonly<Record<string, string>>,
): Claims {
  const now = host.platform.now()
  const { flow, flowExpires, round } = beginning
  return {
    issuedAt: now,
    roundExpires: Math.min(now + host.limits.roundTtlMs, flowExpires),
    flowExpires,
    flow,
    round,
    method: call.method,
    toolVersion: target.version,
    protocolVersion: call.protocolVersion,
    asked,
    journal,
    ...bind(call, principal),
  }
}

function told(round: Round, report: RunReport, facts: Facts, kept: Kept): Reply {
  const { host, target } = round
  if (kept.kind === 'too-large') return concludeRefused(round, report, tooLarge(kept.bytes, host))
  const { bytes, keyId, reply } = kept
  if (bytes > host.limits.warnBytes) warnSize(host, target, bytes)
  logRound(round, report, {
    outcome: facts.outcome,
    asks: facts.asks,
    moved: facts.moved,
    stateBytes: bytes,
    keyId,
  })
  return reply
}

function tooLarge(bytes: number, { limits }: FlowHost): RondoError {
  const detail =
    `The sealed journal would have ${bytes} bytes; ${limits.maxBytes} are allowed (limits.maxBytes). ` +
    'Remember less (return ids from steps instead of documents), or give the server a store.'
  return new RondoError('LIMIT_STATE_BYTES', detail)
}

function warnSize(host: FlowHost, { name }: Target, bytes: number): void {
  const message = `requestState of ${name} has ${bytes} bytes; some proxies and clients refuse bodies of that size`
  host.log({ event: 'warning', message })
}
