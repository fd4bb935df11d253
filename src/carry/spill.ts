/**
 * A journal that is too large for a token goes into the store; the token carries its id instead. The token is bound and
 * expires as always, and the journal with it.
 */

import { RondoError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import { openEnvelope, sealEnvelope } from '../seal/envelope.ts'
import { narrowJournal } from '../seal/narrow-journal.ts'
import type { BlobStore } from '../store/blob-store.ts'
import type { FlowHost } from './flow-host.ts'

/** The largest journal that is put away. */
const MAX_BYTES = 16 * 1024 * 1024

function placeOf({ audience }: FlowHost, id: string): string {
  return JSON.stringify(['spill', id, audience])
}

/** Puts the journal away until `expiresAt`; gives the one that stands for it in the token. */
export async function spill(
  host: FlowHost,
  blobs: BlobStore,
  journal: Journal,
  expiresAt: number,
): Promise<Journal> {
  const id = host.platform.randomId()
  const { token } = sealEnvelope(host.keys.ring, placeOf(host, id), JSON.stringify(journal))
  if (token.length > MAX_BYTES) {
    throw new RondoError(
      'LIMIT_STATE_BYTES',
      `The journal has more than ${MAX_BYTES} bytes, too many to put away.`,
    )
  }
  await blobs.put(id, token, expiresAt)
  return { ...journal, entries: [], reasks: {}, manual: undefined, spilled: id }
}

/** The journal itself, where the token only names it. What is gone or does not open is a state that does not open. */
export async function unspill(
  host: FlowHost,
  blobs: BlobStore | undefined,
  journal: Journal,
): Promise<Journal> {
  const { spilled: id, moves } = journal
  if (id === undefined) return journal
  const sealed = await blobs?.get(id)
  const opened =
    sealed === undefined ? undefined : openEnvelope(host.keys.ring, placeOf(host, id), sealed, MAX_BYTES)
  const whole =
    opened?.kind === 'open' ? narrowJournal(JSON.parse(opened.plaintext.toString('utf8'))) : undefined
  if (!whole) throw new RondoError('STATE_INVALID', 'The journal that was put away is gone')
  return { ...whole, moves }
}
