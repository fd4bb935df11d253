/** A call whose task has been told its answers: nobody is asked for them again, unless the revision asks a key twice. */

import { delivered } from '../client/operation.ts'
import type { PendingCall } from '../client/pending.ts'

export function markDelivered(pending: PendingCall): PendingCall {
  const { task, protocolVersion } = pending
  return task === undefined ? pending : delivered(pending, task, protocolVersion === '2026-07-28')
}
