/** For those who write a gateway: `rondo/forward`. Serves what other servers offer. */

export type { TaskState, WireError } from './protocol/reply.ts'
export type { Completion } from './protocol/wire.ts'
export { type Forwarding, forwarding } from './serve/forwarding.ts'
export {
  type Forwarded,
  type ForwardedTasks,
  type RowsFor,
  type TaskCaller,
  type TaskCreated,
  taskCreated,
  UpstreamError,
} from './tool/forward.ts'
