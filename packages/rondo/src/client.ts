/** The client: connects to a server, calls its tools, answers its questions, or stores a call for later. */

export type { AuthorizedRequest, ClientAuth, Credential, Refusal, RequestAuth } from './client/auth.ts'
export type { Client, DriveOptions, RoundOptions } from './client/client.ts'
export type { Mode } from './client/connect.ts'
export { type ConnectOptions, type ConnectTarget, connect, type MemoryTarget } from './client/connect.ts'
export type { Revision } from './client/dialect.ts'
export type { RoundResult, RoundTask } from './client/flow.ts'
export type { DriveResult, FlowOptions, LogNotice, ProgressNotice } from './client/flow-options.ts'
export { type CallLimits, LIMITS, type Limits } from './client/limits.ts'
export { PeerError } from './client/peer.ts'
export type {
  FlowRequest,
  FlowResult,
  PromptRequest,
  ResourceRequest,
  ToolRequest,
} from './client/pending.ts'
export {
  abandon,
  answer,
  openQuestions,
  type PendingCall,
  type PendingServer,
  type PendingTask,
} from './client/pending.ts'
export type { PolicyRound, PolicyVerdict, RoundBudget, RoundPolicy } from './client/policy.ts'
export { allowUrlHosts, maxRoundsPerServer, noSecretsInForms, refuseSampling } from './client/policy.ts'
export type { ClientInfo, HeaderSource, SeenTask } from './client/port.ts'
export type { AnswerHandler, Answers, AskInfo, FormHandler, UrlHandler } from './client/question.ts'
export type { CompleteRequest, ReadOptions } from './client/reader.ts'
export { inspectLink, type Link } from './client/round.ts'
export { openPending, parsePending, sealPending } from './client/stored-pending.ts'
export type { ServerChange, SubscribeOptions, Subscription } from './client/subscribe.ts'
export type { TaskHandle, TaskRequestOptions } from './client/task/strategy.ts'
export type { Challenge } from './client/transport/response-reader.ts'
export type { StdioTarget } from './client/transport/stdio.ts'
export type { FetchLike } from './client/transport/transport.ts'
export type { RondoErrorOptions } from './errors.ts'
export { type ErrorCode, RondoError } from './errors.ts'
export { displayText } from './form/clean-text.ts'
export type { Clock } from './lib/clock.ts'
export type { CompleteRef, ListenFilter, RequestId } from './protocol/call.ts'
export { kindOf, type QuestionKind } from './protocol/common/request.ts'
export type {
  Observed,
  ObservedEvent,
  ObservedHappening,
  ObservedOperation,
  ObservedQueue,
  Observer,
  OperationEnd,
} from './protocol/observer.ts'
export type { Notice, TaskState, WireError } from './protocol/reply.ts'
export type {
  Annotations,
  CacheHint,
  CallToolResult,
  Completion,
  ContentBlock,
  CreateMessageResult,
  Discovery,
  ElicitContent,
  ElicitFormParams,
  ElicitResult,
  ElicitUrlParams,
  GetPromptResult,
  InputRequest,
  InputRequests,
  InputResponse,
  InputResponses,
  JsonSchema,
  ListRootsResult,
  LogLevel,
  Prompt,
  PromptMessage,
  ReadResourceResult,
  Resource,
  ResourceContents,
  ResourceTemplate,
  Root,
  SamplingParams,
  ServerInfo,
  Tool,
} from './protocol/wire.ts'
