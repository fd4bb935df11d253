/** Shows how a task stands while a call waits for it, and notices where waiting is of no use. */

import type { TaskState } from '../protocol/task.ts'
import type { Answerer } from './answerer.ts'
import { CommandError } from './command-error.ts'
import type { Io } from './io.ts'

export interface TaskWatch {
  onTask(task: TaskState): void
  /** It failed or was cancelled: there is nothing to go on with. */
  readonly ended: boolean
  /** Fires where the task asks what only those see who answer at once, and nobody does. */
  readonly stop: AbortSignal
}

export function watchTask(io: Io, answerer: Answerer): TaskWatch {
  const stop = new AbortController()
  let ended = false
  return {
    stop: stop.signal,
    get ended() {
      return ended
    },
    onTask({ status, statusMessage, inputRequests }) {
      ended = status === 'failed' || status === 'cancelled'
      io.status.start(`task ${status}${statusMessage === undefined ? '' : `: ${statusMessage}`}`)
      const isHidden = status === 'input_required' && inputRequests === undefined
      if (isHidden && answerer.isNobody) stop.abort(new CommandError('pending', 'The task asks'))
    },
  }
}
