/**
 * Which task a person means, and where it is. A call that is kept here knows its server, so its own id or that of its task
 * is enough; any other task is named after its server.
 */

import { openStore, targetOf } from './call-session.ts'
import type { Invocation } from './command.ts'
import { CommandError, usageError } from './command-error.ts'
import type { PendingStore, StoredCall } from './pending-store.ts'
import { type NamedTarget, takeTarget } from './target.ts'

export interface FoundTask {
  readonly taskId: string
  readonly target: NamedTarget
  /** The call that became this task, if it is kept here. */
  readonly call?: StoredCall
  /** What follows. */
  readonly words: readonly string[]
}

/** `words` are those after the action. */
export function findTask(invocation: Invocation, action: string, words: readonly string[]): FoundTask {
  const { io, rest } = invocation
  const [first, ...others] = words
  if (first === undefined) throw usageError(`Name a task: rondo task ${action} <id>, or <server> <taskId>`)
  if (rest === undefined) {
    const store = openStore(invocation)
    const id = lookUp(
      store,
      first,
      others[0] === undefined || (action === 'answer' && others[0].includes('=')),
    )
    if (id !== undefined) return fromStore(invocation, store.load(id), others)
    if (others.length === 0) {
      const how = `Name its server first: rondo task ${action} <server> <taskId>`
      throw new CommandError(
        'stored',
        `No call that is kept here is, or has become, the task ${first}. ${how}`,
      )
    }
  }
  const { target, words: left } = takeTarget(words, rest, io.cwd)
  const [taskId, ...more] = left
  if (taskId === undefined) throw usageError('Name the task by its id, after the server')
  return { taskId, target, words: more }
}

/** The id of the kept call. `starts`: the beginning of it is enough. */
function lookUp(store: PendingStore, name: string, starts: boolean): string | undefined {
  const listed = store.list()
  const found = listed.find(({ id, call }) => id === name || call?.pending.task?.taskId === name)
  if (found !== undefined) return found.id
  return starts && listed.some(({ id }) => id.startsWith(name)) ? store.find(name) : undefined
}

function fromStore(invocation: Invocation, call: StoredCall, words: readonly string[]): FoundTask {
  const { id, task } = call.pending
  if (task === undefined) {
    throw new CommandError('stored', `The call ${id} is not a task. "rondo resume ${id}" goes on with it`)
  }
  return { taskId: task.taskId, target: targetOf(invocation, call.target), call, words }
}
