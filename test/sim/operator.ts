/**
 * Operators, with a connection of their own to the store. Each cancels the task of a call, or fails it and retries it later. What
 * an operator has done is known to the judge at once; what workers and clients make of it is theirs.
 */

import type { Store } from 'rondo/store'
import type { Judge } from './judge.ts'
import type { CallPlan, Plan } from './plan.ts'
import type { World } from './world.ts'

export interface Operators {
  /** A client has a task: the operator of its call knows it from now on. */
  found(call: CallPlan, taskId: string): void
  /** True while an operator has something left to do to the task of this call. */
  isBusy(call: CallPlan): boolean
}

/** How long a task lives after it was retried, and how long a failed one keeps its journal. */
const LIVE_MS = 20 * 60_000
const WHO = 'operator'

export function startOperators(world: World, plan: Plan, store: Store, judge: Judge): Operators {
  const busy = new Set<string>()

  const act = async (
    call: CallPlan,
    change: { readonly kind: 'cancel' | 'fail' | 'retry'; readonly id: string },
  ): Promise<boolean> => {
    const outcome = await store.operator?.act({ ...change, keepMs: LIVE_MS, liveMs: LIVE_MS }, WHO)
    if (outcome === 'done') judge.operated(call, change.kind)
    return outcome === 'done'
  }

  const operate = async (call: CallPlan, id: string): Promise<void> => {
    const { kind, afterMs, retryMs } = call.operator ?? { kind: 'cancel', afterMs: 0, retryMs: 0 }
    await world.sleep(afterMs)
    const isDone = await act(call, { kind, id })
    if (!isDone || kind === 'cancel') return
    await world.sleep(retryMs)
    await act(call, { kind: 'retry', id })
  }

  for (const { id, operator } of plan.calls) if (operator) busy.add(id)
  return {
    found(call, taskId) {
      if (call.operator) void operate(call, taskId).finally(() => busy.delete(call.id))
    },
    isBusy: ({ id }) => busy.has(id),
  }
}
