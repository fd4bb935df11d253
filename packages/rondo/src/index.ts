/** Rondo: MCP tools that stop in the middle, ask the user, and go on. */

export type { FlowLimits } from './carry/host.ts'
export type { MigrationMode, StoredLimits } from './carry/migration.ts'
export type { EventDelivery, HookView } from './carry/task/hook.ts'
export type { TurnsOptions } from './drafts/turns/turn-state.ts'
export type { StateForm } from './drafts/turns/wire.ts'
export {
  type ErrorCode,
  EventExpired,
  EventRejected,
  InputCancelled,
  InputDeclined,
  InputExpired,
  RondoError,
  type RondoErrorOptions,
  ToolError,
} from './errors.ts'
export type { AskEntryKind } from './journal/journal.ts'
export type { Duration, Every } from './lib/clock.ts'
export type {
  CallerRefusedEvent,
  ContinuationEvent,
  DrainEvent,
  FaultEvent,
  Finding,
  LogEvent,
  LogOrigin,
  LogPlace,
  ReadyEvent,
  RefusedEvent,
  RoundEvent,
  SessionEvent,
  SlowEvent,
  StartEvent,
  StateRefusedEvent,
  TaskEvent,
  WarningEvent,
} from './log/event.ts'
export { createJsonLog, type JsonLogOptions, type LogOptions, toLogRecord } from './log/log.ts'
export type { FlowMethod, Listing, Principal, RequestId } from './protocol/call.ts'
export type { QuestionKind } from './protocol/common/request.ts'
export type {
  Observed,
  ObservedEvent,
  ObservedHappening,
  ObservedOperation,
  ObservedQueue,
  Observer,
  OperationEnd,
} from './protocol/observer.ts'
export type {
  Annotations,
  ClientCapabilities,
  ContentBlock,
  CreateMessageResult,
  ElicitContent,
  ElicitFormParams,
  ElicitResult,
  ElicitUrlParams,
  InputRequest,
  InputRequests,
  InputResponse,
  InputResponses,
  JsonSchema,
  ListRootsResult,
  LogLevel,
  PromptMessage,
  ResourceContents,
  Root,
  SamplingParams,
} from './protocol/wire.ts'
export type { MoveReason, ReplayLimits } from './replay/run-state.ts'
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
export type { StateLimits } from './seal/state.ts'
export type { AdmissionOptions, AllowListOptions } from './serve/http/admission.ts'
export type { Authenticate, AuthRefusal, AuthRequest, ProtectedResource } from './serve/http/authenticate.ts'
export type { FetchHandler, FetchOptions } from './serve/http/fetch.ts'
export type { Listening, ListenOptions, NotReady } from './serve/http/listen.ts'
export type { NodeHandler, NodeHandlerOptions } from './serve/http/node.ts'
export type { Change, ChangeBus } from './serve/http/subscription.ts'
export type { WeightOptions } from './serve/limits.ts'
export type { DraftOptions, Era, HttpOptions, ServerOptions, TaskOptions } from './serve/options.ts'
export { createServer, type Server } from './serve/server.ts'
export type { SessionOptions } from './serve/session/options.ts'
export type { StdioOptions } from './serve/stdio/stdio.ts'
export type { AnsweredSlot, InputSlot, SlotChange, SlotName, SlotRole } from './store/input-slots.ts'
export type {
  BlobStore,
  Bus,
  BusListener,
  BusSubscription,
  EngineStore,
  OnceAttempt,
  OnceClaim,
  OnceSlot,
  OnceStore,
  RecordStore,
  RecordWrite,
  Store,
  StoreCheck,
  StoredRecord,
} from './store/store.ts'
export type {
  Cancellation,
  Delivery,
  EmitEngineEvent,
  EngineEvent,
  EngineOptions,
  LossReason,
  NewTask,
  OnEngineEvent,
  RunTurn,
  Sealed,
  ServeOptions,
  Serving,
  TaskEngine,
  TaskHead,
  TaskOwner,
  TaskPage,
  TaskStatus,
  TaskTurn,
  TaskTurnOutcome,
  TaskView,
  WatchTask,
} from './store/task-engine.ts'
export type {
  Creation,
  EndedLimits,
  Fence,
  Handover,
  Hint,
  HookHandover,
  HookOutcome,
  Lease,
  OperatorTasks,
  OwnerTasks,
  Taker,
  TaskEnding,
  TaskQuery,
  TaskStats,
  TaskStore,
  TaskSummary,
  WorkerTasks,
} from './store/task-store.ts'
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
  StandardSchema,
  StepInfo,
  Within,
} from './tool/context.ts'
export type {
  AcceptEvent,
  ArgumentName,
  CachePolicy,
  Completer,
  Described,
  HookFacts,
  PromptDefinition,
  PromptHandler,
  ResourceDefinition,
  ResourceHandler,
  ResourceValue,
  Returned,
  Scopes,
  StructuredValue,
  TemplateDefinition,
  TemplateHandler,
  ToolAnnotations,
  ToolDefinition,
  ToolHandler,
  ToolResult,
} from './tool/definition.ts'
export type { Declarations } from './tool/registry.ts'
export type { TextBounds } from './tool/schema/judge.ts'
export { type InputRequired, inputRequired } from './tool/target.ts'
export type { TemplateParams, VariableName } from './tool/uri-template.ts'
