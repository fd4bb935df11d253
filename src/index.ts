/** Rondo: MCP tools that stop in the middle, ask the user, and go on. */

export type { FlowLimits, LogEvent } from './carry/host.ts'
export { type ErrorCode, InputCancelled, InputDeclined, RondoError, ToolError } from './errors.ts'
export type { Principal } from './protocol/call.ts'
export type {
  ContentBlock,
  ElicitResult,
  InputRequests,
  InputResponses,
  PromptMessage,
  ResourceContents,
} from './protocol/wire.ts'
export type { KeySource } from './seal/key-holder.ts'
export { generateKey, type KeyRing, parseKeys } from './seal/key-ring.ts'
export { keysFromEnv, keysFromFile, keysFromFunction } from './seal/key-source.ts'
export type { Authenticate } from './serve/http/admission.ts'
export type { Listening } from './serve/http/listen.ts'
export type { Change, ChangeBus } from './serve/http/subscription.ts'
export type { ServerOptions } from './serve/options.ts'
export { createServer, type Server } from './serve/server.ts'
export type { EngineEvent } from './store/task-engine.ts'
export type { Context, Outcome, Question, Schema } from './tool/context.ts'
export type {
  PromptDefinition,
  ResourceDefinition,
  TemplateDefinition,
  ToolDefinition,
  ToolResult,
} from './tool/definition.ts'
export { type InputRequired, inputRequired } from './tool/result.ts'
