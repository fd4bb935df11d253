/**
 * How a round is kept where there is a store. A call that took long or many rounds, or whose journal does not fit a token,
 * continues as a task if its client can follow one. Otherwise the journal is stored and the token carries its id instead;
 * that token is bound and expires like any other, and the stored journal expires with it.
 */

import { RondoError } from '../errors.ts'
import { type Journal, narrowJournal } from '../journal/journal.ts'
import type { RunReport } from '../replay/run-state.ts'
import { openEnvelope, sealEnvelope } from '../seal/envelope.ts'
import type { BlobStore, Store } from '../store/store.ts'
import type { Pause, Round } from './carrier.ts'
import type { FlowHost } from './host.ts'
import { taskHostFor } from './leave.ts'
import { placeOf as placeOfRound } from './round-log.ts'
import { continueAsTask } from './task/begin.ts'
import type { Kept } from './token.ts'

/** `keep` seals a journal in the way of the carrier. */
export async function keepWithStore(
  round: Round,
  pause: Pause,
  { once, blobs }: Pick<Store, 'once' | 'blobs'>,
  keep: (journal: Journal) => Kept | Promise<Kept>,
): Promise<Kept> {
  const { host, beginning, line } = round
  const { report, facts } = pause
  const follows = taskHostFor(round) !== undefined
  if (facts.moved === 'time' && follows) {
    const task = await tryAsTask(round, report)
    if (task) return task
  }
  // A client that has gone would never learn of the task.
  const mayLeave = follows && pause.journal.manual === undefined && !line.closed
  const isLate = beginning.round >= host.limits.promoteRounds
  const promoted = mayLeave && isLate ? await tryAsTask(round, report) : undefined
  if (promoted) return promoted
  const journal = { ...pause.journal, epoch: pause.journal.epoch ?? (await once.epoch()) }
  const kept = await keep(journal)
  if (kept.kind !== 'too-large') return kept
  const task = mayLeave && !isLate ? await tryAsTask(round, report) : undefined
  return task ?? (await keep(await spill(host, blobs, journal, beginning.flowExpires)))
}

/** Returns nothing if the caller has too many tasks: the call then continues in rounds. */
async function tryAsTask(round: Round, report: RunReport): Promise<Kept | undefined> {
  try {
    return { kind: 'task', reply: await continueAsTask(round, report) }
  } catch (error) {
    if (error instanceof RondoError && error.code === 'LIMIT_TASKS') return undefined
    throw error
  }
}

/** The largest journal that is stored. */
const MAX_BYTES = 16 * 1024 * 1024

function placeOf({ audience }: FlowHost, id: string): string {
  return JSON.stringify(['spill', id, audience])
}

/** Stores the journal until `expiresAt`; returns the one that stands for it in the token. */
async function spill(
  host: FlowHost,
  blobs: BlobStore,
  journal: Journal,
  expiresAt: number,
): Promise<Journal> {
  const id = host.platform.randomId()
  const { token } = sealEnvelope(host.keys.ring, placeOf(host, id), JSON.stringify(journal))
  if (token.length > MAX_BYTES) {
    const detail = `The sealed journal has ${token.length} bytes; at most ${MAX_BYTES} can be stored. Return less from steps.`
    throw new RondoError('LIMIT_STATE_BYTES', detail)
  }
  await blobs.put(id, token, expiresAt)
  return { ...journal, entries: [], reasks: {}, manual: undefined, spilled: id }
}

/** Replaces a journal that the token only names by the stored one. Throws `STATE_INVALID` if it is gone or does not open. */
export async function unspill(round: Round): Promise<Round> {
  const { host, beginning } = round
  const { spilled: id = '', moves } = beginning.journal
  const sealed = await host.store?.blobs.get(id)
  const opened = sealed && openEnvelope(host.keys.ring, placeOf(host, id), sealed, MAX_BYTES)
  const stored =
    opened && opened.kind === 'open'
      ? narrowJournal(JSON.parse(opened.plaintext.toString('utf8')))
      : undefined
  if (!stored) throw new RondoError('STATE_INVALID', 'The stored journal is gone or does not open')
  return { ...round, beginning: { ...beginning, journal: { ...stored, moves } } }
}

/** The error of a state that is too large for a client, and cannot be stored. */
export function tooLarge(bytes: number, { limits }: FlowHost): RondoError {
  const detail =
    `The sealed journal has ${bytes} bytes; at most ${limits.maxBytes} are allowed (limits.maxBytes). ` +
    'Record less (return ids from steps instead of documents), or give the server a store.'
  return new RondoError('LIMIT_STATE_BYTES', detail)
}

export function warnSize(round: Round, bytes: number): void {
  const { host, target } = round
  const message = `The requestState of ${target.name} has ${bytes} bytes; some proxies and clients refuse bodies of that size`
  host.log({ event: 'warning', message, ...placeOfRound(round) })
}
