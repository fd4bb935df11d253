/**
 * What a task is begun with: the call, who made it, and the flow it belongs to. Kept sealed as the head of the task.
 */

import type { FlowCall, Principal } from '../protocol/call.ts'
import type { Incoming } from '../replay/run-state.ts'
import type { Noted } from './task-journal.ts'

export interface TaskPlan {
  readonly flow: string
  readonly seed: string
  readonly startedAt: number
  /** The round in which the flow became a task. */
  readonly round: number
  readonly toolVersion?: string
  /** The life of the store under which the task began, for effects of single use. */
  readonly epoch?: string
  readonly principal?: Principal
  /** What was noted in rounds before. */
  readonly noted?: Noted
  /** Answers that came with the request that made the task. */
  readonly brought?: Pick<Incoming, 'answers' | 'asked' | 'unasked'>
  readonly call: Pick<
    FlowCall,
    'method' | 'target' | 'args' | 'protocolVersion' | 'capabilities' | 'clientInfo'
  >
}

/** The request as a worker sees it; there is nobody on the line. */
export function toFlowCall({ call }: TaskPlan, id: string): FlowCall {
  return { kind: 'flow', id, ...call }
}
