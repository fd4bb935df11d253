/**
 * When an instance lets go of a call in the middle. A move costs one of the client's rounds (it has about ten), so only
 * a process that is about to end moves calls freely; all other moves need work done in this round, and are few.
 */

import type { Line } from '../protocol/call.ts'
import type { MoveReason } from '../replay/outcome.ts'
import type { FlowHost } from './flow-host.ts'

export function movePolicy(
  host: FlowHost,
  line: Line,
  moves: number,
): (executed: number) => MoveReason | undefined {
  const began = host.platform.now()
  return (executed) => {
    // A client that is gone reads no result: nothing new is begun for it.
    if (host.draining || line.closed) return 'drain'
    if (executed === 0 || moves >= host.limits.maxMoves) return undefined
    if (host.platform.now() - began >= host.maxRoundMs) return 'time'
    return host.overloaded() ? 'shed' : undefined
  }
}
