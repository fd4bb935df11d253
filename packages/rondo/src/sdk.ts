/** Rondo for an existing server: with `rondo/sdk`, the tools of an official `McpServer` can ask. */

export type { EventDelivery, HookView } from './carry/task/hook.ts'
export {
  ApprovalDenied,
  ApprovalExpired,
  EventExpired,
  EventRejected,
  Fatal,
  InputCancelled,
  InputDeclined,
  InputExpired,
  RetryLater,
  RondoError,
  ToolError,
} from './errors.ts'
export type { LogEvent } from './log/event.ts'
export type { VerifyState } from './mount/call.ts'
export type { CallbackOptions, FindPrincipal, Implies, RondoOptions, SdkContext } from './mount/definition.ts'
export { type ArgsCallback, createRondo, type ReadCallback, type Rondo } from './mount/mount.ts'
export type { Principal } from './protocol/call.ts'
export { generateKey, keysFromEnv, keysFromFile, keysFromFunction } from './seal/key-ring.ts'
export type { HostOptions } from './serve/host.ts'
