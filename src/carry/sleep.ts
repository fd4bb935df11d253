/**
 * What a sleep does in a request: a short one waits, a longer one has the call continue as a task. Where that is not
 * possible, the sentence here says why and what to do, and nothing later runs. Tasks park instead (`task/turn.ts`).
 */

import type { FlowCall } from '../protocol/call.ts'
import type { Sleeping } from '../replay/wait.ts'
import type { Target } from '../tool/target.ts'
import type { FlowHost, RunningRound } from './host.ts'

interface Sleeper extends Pick<RunningRound, 'beginning' | 'task'> {
  readonly host: FlowHost
  readonly call: FlowCall
  readonly target: Target
}

/** `leaves`: the call can continue as a task. */
export function sleepingIn(round: Sleeper, leaves: boolean): Sleeping {
  const { host } = round
  const beyond = leaves ? 'leave' : whyHere(round)
  return { parks: false, inlineMs: host.limits.maxInlineSleepMs, beyond, skip: skipIn(round) }
}

/** In development mode nobody waits for days. */
export function skipIn({ host, call, target, beginning, task }: Sleeper): Sleeping['skip'] {
  if (!host.skipSleep) return undefined
  return (ms) => {
    const message = `Development mode skips a sleep of ${Math.ceil(ms)} ms in ${target.label ?? call.target} (skipSleep: false turns that off)`
    host.log({ event: 'warning', message, flow: beginning.flow, round: beginning.round, ...task })
  }
}

function whyHere({ host, target, call }: Sleeper): string {
  if (call.method !== 'tools/call')
    return 'Only a tool can continue as a task: sleep for less, or move the work into a tool.'
  if (!host.tasks)
    return 'The call cannot continue as a task, because this server has no store: pass one to createServer, or sleep for less.'
  if (target.task.mode === 'never')
    return "The call cannot continue as a task, because the tool is declared with task: 'never'."
  return 'This client cannot follow a task: call again from one that supports tasks. Nothing after the sleep was done.'
}
