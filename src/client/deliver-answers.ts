/**
 * Hands answers to a task, and again while its server is away: the task outlives that, and whoever answered need not answer
 * twice. Doing it twice does no harm, for the first answer to a key counts (E3).
 */

import type { InputResponses } from '../protocol/wire.ts'
import { sleep } from './clock.ts'
import type { Peer, SendOptions } from './peer.ts'
import type { PendingTask } from './pending.ts'
import { updateTask } from './task-request.ts'
import { isPassing, MAX_LOST } from './task-watch.ts'

const SHORTEST_MS = 50

export async function deliverAnswers(
  peer: Peer,
  { taskId, pollIntervalMs }: PendingTask,
  answers: InputResponses,
  sending: SendOptions & { readonly signal: AbortSignal; readonly requestState?: string },
): Promise<void> {
  for (let lost = 0; ; lost++) {
    try {
      return await updateTask(peer, taskId, answers, sending)
    } catch (error) {
      if (!isPassing(error) || lost >= MAX_LOST || sending.signal.aborted) throw error
    }
    await sleep(peer.clock, Math.max(SHORTEST_MS, pollIntervalMs) * 2 ** lost, sending.signal)
  }
}
