/**
 * Whether a call may leave its request and continue as a task, and what to say where it may not: to an operation that only
 * a task can do, and to a sleep. A short sleep waits within the request, a longer one leaves it; tasks park instead
 * (`task/turn.ts`). Nothing after a refused operation runs.
 */

import { RondoError } from '../errors.ts'
import type { FlowCall } from '../protocol/call.ts'
import { followsTasks, nameCapabilities } from '../protocol/common/request.ts'
import { TASKS_EXTENSION } from '../protocol/task.ts'
import { needsTask } from '../replay/run-state.ts'
import type { Sleeping } from '../replay/wait.ts'
import type { Round } from './carrier.ts'
import type { TaskHost } from './host.ts'
import { placeOf, subjectOf } from './round-log.ts'

/**
 * Returns the task host if this call may continue as a task: there is one, the tool allows it, and the client follows tasks,
 * or reaches them through tools.
 */
export function taskHostFor({ host, call, target }: Round): TaskHost | undefined {
  if (!host.tasks || target.task.mode === 'never' || call.method !== 'tools/call') return undefined
  return host.tasks.tools || followsTask(call) ? host.tasks : undefined
}

/** True if the client of this call can follow it as a task. */
export function followsTask({ task, capabilities }: FlowCall): boolean {
  return task !== undefined || followsTasks(capabilities)
}

/** Why an operation that only a task can do is impossible in this call. */
export function whyNoTask({ host, call, target }: Round, what: string): RondoError {
  if (call.method !== 'tools/call') return needsTask(what, 'Only a tool can become one.')
  if (!host.tasks)
    return needsTask(what, 'This server has no store for tasks: pass one, createServer({ store }).')
  if (target.task.mode === 'never') return needsTask(what, `"${target.name}" is declared with task: 'never'.`)
  const data = { requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } } }
  const detail =
    `"${target.name}" waits for ${what}, which only a task can do, and this client did not declare the capability ` +
    `${nameCapabilities(data.requiredCapabilities)} to follow one. Nothing after this point was done.`
  return new RondoError('PEER_CAPABILITY', detail, { data })
}

/** What a sleep may do in a request. */
export function sleepingIn(round: Round): Sleeping {
  const { host } = round
  const beyond = taskHostFor(round) ? 'leave' : whyNoSleep(round)
  return { parks: false, inlineMs: host.limits.maxInlineSleepMs, beyond, skip: skipIn(round) }
}

/** In development mode nobody waits for days. */
export function skipIn(round: Round): Sleeping['skip'] {
  const { host } = round
  if (!host.skipSleep) return undefined
  return (ms) => {
    const message = `Development mode skips a sleep of ${Math.ceil(ms)} ms in ${subjectOf(round).target} (skipSleep: false turns that off)`
    host.log({ event: 'warning', message, ...placeOf(round) })
  }
}

function whyNoSleep({ host, target, call }: Round): string {
  if (call.method !== 'tools/call')
    return 'Only a tool can continue as a task: sleep for less, or move the work into a tool.'
  if (!host.tasks)
    return 'The call cannot continue as a task, because this server has no store: pass one to createServer, or sleep for less.'
  if (target.task.mode === 'never')
    return "The call cannot continue as a task, because the tool is declared with task: 'never'."
  return 'This client cannot follow a task: call again from one that supports tasks. Nothing after the sleep was done.'
}
