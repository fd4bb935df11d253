/** Rondo: MCP tools that stop in the middle, ask the user, and go on. */

export type { EventDelivery, HookView } from './carry/task/hook.ts'
export {
  ApprovalDenied,
  ApprovalExpired,
  type ErrorCode,
  EventExpired,
  EventRejected,
  Fatal,
  InputCancelled,
  InputDeclined,
  InputExpired,
  RetryLater,
  RondoError,
  type RondoErrorOptions,
  ToolError,
} from './errors.ts'
export type { Duration } from './lib/clock.ts'
export type { LogEvent } from './log/event.ts'
export { createJsonLog, type JsonLogOptions, toLogRecord } from './log/json.ts'
export type { Listing, Principal } from './protocol/call.ts'
export type { QuestionKind } from './protocol/common/request.ts'
export type { Observer } from './protocol/observer.ts'
export type {
  ContentBlock,
  CreateMessageResult,
  ElicitContent,
  ElicitResult,
  InputRequests,
  InputResponses,
  LogLevel,
  PromptMessage,
  Root,
  SamplingParams,
} from './protocol/wire.ts'
export type { KeySource } from './seal/key-ring.ts'
export {
  generateKey,
  type KeyRing,
  keysFromEnv,
  keysFromFile,
  keysFromFunction,
  parseKeys,
  type RefreshOptions,
  type RingKey,
} from './seal/key-ring.ts'
export type { Authenticate, AuthRequest } from './serve/http/authenticate.ts'
export type { FetchHandler } from './serve/http/fetch.ts'
export type { Listening, ListenOptions } from './serve/http/listen.ts'
export type { NodeHandler, NodeHandlerOptions } from './serve/http/node.ts'
export type { ServerOptions, TaskOptions } from './serve/options.ts'
export type { Change, NotReady } from './serve/port.ts'
export { createServer, type Server } from './serve/server.ts'
export type { StdioOptions } from './serve/stdio/stdio.ts'
export type { Store } from './store/store.ts'
export type {
  ConfirmOptions,
  Context,
  EffectInfo,
  EffectOptions,
  Hook,
  HookOptions,
  Infer,
  Jsonable,
  Offer,
  Outcome,
  Question,
  ReturnsJson,
  Schema,
  StepInfo,
  Within,
} from './tool/context.ts'
export type {
  Completer,
  HookFacts,
  PromptDefinition,
  PromptHandler,
  ResourceDefinition,
  ResourceHandler,
  ResourceValue,
  Returned,
  StructuredValue,
  TemplateDefinition,
  TemplateHandler,
  ToolDefinition,
  ToolHandler,
  ToolResult,
} from './tool/definition.ts'
export { type InputRequired, inputRequired } from './tool/target.ts'
export type { TemplateParams } from './tool/uri-template.ts'
