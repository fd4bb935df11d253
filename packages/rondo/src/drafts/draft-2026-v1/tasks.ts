/** The client's requests about tasks in DRAFT-2026-v1, where `tasks/result` returns the questions of a task. */

import type { TaskStrategy } from '../../client/port.ts'
import { errorOf, fetchContent, hasContent, NO_TASKS, taskField } from '../../client/task/strategy.ts'

/** The error for responses to a task that asks nothing: it has its answers or has ended, as the next poll will show. */
const ASKS_NOTHING = -32602

/** A call may become a task later, whatever its tool declares. */
export const DRAFT_TASKS: TaskStrategy = {
  ...NO_TASKS,
  async request({ tools }, tool, { taskTtlMs }) {
    return tools.taskSupport(tool) === 'required' || taskTtlMs !== undefined
      ? taskField(taskTtlMs)
      : undefined
  },
  fill: async (peer, task, options) =>
    hasContent(task) || task.status === 'input_required' ? fetchContent(peer, task, options) : task,
  async answer(peer, taskId, inputResponses, { requestState, ...options }) {
    const state = requestState !== undefined && { requestState }
    const error = await errorOf(peer, { action: 'update', taskId, inputResponses, ...state }, options)
    if (error && error.peer.code !== ASKS_NOTHING) throw error
  },
}
