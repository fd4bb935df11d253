/** The client: connect to a server, call its tools, answer its questions, or keep a call for later. */

export type {
  Client,
  CompleteRequest,
  DriveOptions,
  ReadOptions,
  RoundOptions,
  RoundResult,
} from './client/client.ts'
export { type ConnectOptions, connect, type MemoryTarget, type Target } from './client/connect.ts'
export type { Revision } from './client/dialect.ts'
export type { FlowOptions, Step } from './client/flow-options.ts'
export { LIMITS, type Limits } from './client/flow-options.ts'
export type { Mode } from './client/negotiate.ts'
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
export type { Round, RoundPolicy, Verdict } from './client/policy.ts'
export { allowUrlHosts, maxRoundsPerServer, noSecretsInForms, refuseSampling } from './client/policy.ts'
export type { AnswerHandler, Answers, AskInfo, FormHandler, UrlHandler } from './client/question.ts'
export { kindOf, type QuestionKind } from './client/question.ts'
export { inspectLink, type Link } from './client/round.ts'
export { openPending, parsePending, sealPending } from './client/stored-pending.ts'
export type { Change, SubscribeOptions, Subscription } from './client/subscribe.ts'
export type { TaskHandle, TaskRequestOptions } from './client/task/request.ts'
export type { FetchLike } from './client/transport/fetch.ts'
export type { StdioTarget } from './client/transport/stdio.ts'
export { type ErrorCode, RondoError } from './errors.ts'
export { displayText } from './form/clean-text.ts'
export type { Clock } from './lib/clock.ts'
export type { ListenFilter } from './protocol/call.ts'
export type { TaskState } from './protocol/task.ts'
export type {
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
  Tool,
} from './protocol/wire.ts'
