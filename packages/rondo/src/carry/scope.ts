/**
 * The scopes that a request needs in its caller's token. The scopes of a task are those of the call that began it. They are part of
 * the task's id: whoever changes them names a task that does not exist, and nothing has to be read to check them.
 */

import type { Call, CompleteCall, FlowMethod, SessionCall, TaskListCall } from '../protocol/call.ts'
import { noteOf } from '../store/task-engine.ts'
import { assertTaskScopes, isScope, type RequiredScopes, type Target } from '../tool/target.ts'

export interface Need {
  readonly scopes: readonly string[]
  /** Why the arguments do not fit, if they had to be checked to find the scopes. */
  readonly badArguments?: string
}

interface Offered {
  find(method: FlowMethod, target: string): Target | undefined
  completionScopes(
    ref: CompleteCall['ref'],
    known: Readonly<Record<string, unknown>>,
  ): Promise<RequiredScopes | undefined>
}

const NOTHING: Need = { scopes: [] }

export async function needOf(
  { find, completionScopes }: Offered,
  call: Call | SessionCall | TaskListCall,
): Promise<Need> {
  switch (call.kind) {
    case 'flow':
      return needOfTarget(find(call.method, call.target), call.args)
    case 'task':
      return { scopes: scopesOfTask(call.taskId) }
    case 'listen': {
      const { resourceSubscriptions = [], taskIds = [] } = call.filter
      const read = resourceSubscriptions.map((uri) => needOfTarget(find('resources/read', uri), {}))
      return union([...(await Promise.all(read)), { scopes: taskIds.flatMap(scopesOfTask) }])
    }
    case 'watch':
      return needOfTarget(find('resources/read', call.uri), {})
    case 'complete':
      return toNeed(
        await completionScopes(call.ref, { ...call.context, [call.argument.name]: call.argument.value }),
      )
    default:
      return NOTHING
  }
}

export async function needOfTarget(
  target: Target | undefined,
  args: Readonly<Record<string, unknown>>,
): Promise<Need> {
  return toNeed(await target?.scopes?.(args))
}

function toNeed(required: RequiredScopes | undefined): Need {
  if (required === undefined) return NOTHING
  return required.kind === 'scopes' ? required : { scopes: [], badArguments: required.problem }
}

export function union(needs: readonly Need[]): Need {
  return { scopes: [...new Set(needs.flatMap(({ scopes }) => scopes))] }
}

/** The call, with what was found out about its arguments. */
export function withNeed<C extends { readonly kind: string }>(call: C, { badArguments }: Need): C {
  return badArguments === undefined || call.kind !== 'flow' ? call : { ...call, badArguments }
}

/** Returns the scopes as `createTaskId` writes them into the id of a task. */
export function noteScopes({ scopes }: Need): string {
  assertTaskScopes('this call', scopes)
  return scopes.join(' ')
}

/** Of an id that somebody made up, only what can stand in a challenge: the id is unknown anyway. */
export function scopesOfTask(id: string): readonly string[] {
  return noteOf(id).split(' ').filter(isScope)
}
