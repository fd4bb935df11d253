/**
 * Rounds that were sent upstream, for callers that are asked while their call is open. With a store, such a call survives its process:
 * another instance continues it by running its last round again. That must not reach the upstream a second time.
 *
 * Before a round is sent, a record says so; afterwards it has the sealed outcome. Whoever runs the round again gets the outcome, or
 * reads that the call may have had effects. A store that fails stops the round before it is sent.
 */

import { createHash, randomBytes } from 'node:crypto'
import type { RecordStore } from 'rondo/store'
import { HeldEnded } from './held.ts'

/** Seals and opens texts with the server's keys. */
export interface Sealer {
  seal(purpose: string, data: string): Promise<string>
  open(purpose: string, sealed: string): Promise<Uint8Array | undefined>
}

export interface SentRounds {
  /** Runs `send` unless this round was sent before. `owner` is whose share of the store it uses. */
  once<T>(
    round: {
      readonly flow: string
      readonly round: string
      readonly upstream: string
      readonly owner: string
    },
    send: () => Promise<T>,
  ): Promise<T>
}

const PURPOSE = 'sent-round'
const TTL_MS = 86_400_000
/** Bytes of one caller's records. */
const MAX_BYTES = 16 * 1_048_576

export function createSentRounds(records: RecordStore, sealer: Sealer): SentRounds {
  return {
    async once({ flow, round, upstream, owner }, send) {
      const id = `gateway-sent-${flow}-${round}`
      const write = async (version: number, value: object) =>
        records.put({
          id,
          owner: createHash('sha256').update(`gateway ${owner}`).digest('base64url'),
          // Random, so that the same write by another process is not taken for a repetition of ours.
          sealed: await sealer.seal(
            PURPOSE,
            JSON.stringify({ ...value, id, by: randomBytes(9).toString('base64url') }),
          ),
          version,
          ttlMs: TTL_MS,
          maxBytes: MAX_BYTES,
        })
      const claimed = await write(0, {})
      if (claimed === 'limit')
        throw new HeldEnded(
          `The gateway has no room to record this call, so nothing was sent to "${upstream}". Try again later.`,
        )
      if (claimed === 'conflict') {
        const stored = await records.get(id)
        const opened = stored && (await sealer.open(PURPOSE, stored.sealed))
        const value =
          opened && (JSON.parse(new TextDecoder().decode(opened)) as { id?: string; outcome?: unknown })
        if (value?.id === id && value.outcome !== undefined)
          return value.outcome as Awaited<ReturnType<typeof send>>
        throw new HeldEnded(
          `The process of the gateway that sent this round to "${upstream}" has ended, and the reply was lost. The call may have had effects there. It was not sent again.`,
        )
      }
      const outcome = await send()
      // The outcome is in hand: a store that fails now only means that nobody else will find it.
      await write(1, { outcome }).catch(() => {})
      return outcome
    },
  }
}
