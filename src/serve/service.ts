/**
 * The seam between the entrances (HTTP, fetch, stdio) and what is served. An entrance turns bytes into a `Call`, asks
 * the service, and turns the `Reply` into bytes; it knows nothing of tools, journals or seals.
 */

import type { Call, Line, ListenCall, Principal } from '../protocol/call.ts'
import type { ParamHeader } from '../protocol/param-header.ts'
import type { Reply } from '../protocol/reply.ts'
import type { TaskState } from '../protocol/task.ts'
import type { ClientCapabilities } from '../protocol/wire.ts'
import type { Change, ChangeBus } from './change-bus.ts'
import type { Older } from './session/older.ts'

/** Tells of tasks as they change; gives what ends it. */
export type WatchTasks = (
  taskIds: readonly string[],
  principal: Principal | undefined,
  capabilities: ClientCapabilities,
  listener: (task: TaskState) => void,
) => Promise<() => void>

export interface Service {
  readonly serverInfo: { readonly name: string; readonly version: string; readonly title?: string }
  readonly supportedVersions: readonly string[]
  /** What a client of another version is told to speak. */
  readonly namedVersions?: readonly string[]
  readonly changes: ChangeBus
  /** The changes a subscriber may be told of: those whose capability is declared. */
  readonly changeKinds: readonly Change['kind'][]
  /** Answers everything but `subscriptions/listen`, which the entrances serve from `changes`. Never rejects. */
  answer(
    call: Exclude<Call, ListenCall>,
    principal: Principal | undefined,
    line: Line,
  ): Reply | Promise<Reply>
  /** Serves clients of earlier eras. Absent where these are closed. */
  readonly older?: Older
  paramHeaders(tool: string): readonly ParamHeader[]
  /** There is a store for tasks. */
  readonly tasks?: boolean
  readonly watchTasks?: WatchTasks
  /** True from the moment the process was told to stop. */
  readonly draining: boolean
  /** Told to stop: from now on `draining` is true. */
  drain(): void
}
