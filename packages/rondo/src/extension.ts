/** For those who write an extension of a server (`server.use`): `rondo/extension`. */

export type { CallFacts, CallReply } from './carry/around.ts'
export { JsonRpcError } from './errors.ts'
export type { Reply, TaskState, WireError } from './protocol/reply.ts'
export type {
  Extension,
  ExtensionHost,
  MethodCall,
  MethodHandler,
} from './serve/extension.ts'
export type { Route } from './serve/port.ts'
export { type CallRate, type RateLimitOptions, rateLimit } from './serve/rate-limit.ts'
export type {
  Approval,
  ApprovalDesk,
  ApprovalOptions,
  ApprovalRequest,
  ApprovalVerdict,
  ApprovalVote,
  Approver,
  Decision,
  DeskEntry,
  DeskNote,
  DeskOutcome,
  DeskRequest,
  Voter,
} from './tool/approval.ts'
