/** The client: connect to a server, call its tools, answer its questions, or keep a call for later. */

export type { AnswerHandler, Answers, AskInfo, FormHandler, UrlHandler } from './client/answers.ts'
export type {
  Client,
  CompleteRequest,
  DriveOptions,
  ReadOptions,
  RoundOptions,
  RoundResult,
} from './client/client.ts'
export type { Clock } from './client/clock.ts'
export { type ConnectOptions, connect, type MemoryTarget, type Target } from './client/connect.ts'
export type { Revision } from './client/dialect.ts'
export type { FlowOptions, Step } from './client/flow-options.ts'
export type {
  FlowRequest,
  FlowResult,
  PromptRequest,
  ResourceRequest,
  ToolRequest,
} from './client/flow-request.ts'
export { LIMITS, type Limits } from './client/limits.ts'
export type { Mode } from './client/negotiate.ts'
export { parsePending } from './client/parse-pending.ts'
export { PeerError } from './client/peer-error.ts'
export {
  abandon,
  answer,
  openQuestions,
  type PendingCall,
  type PendingServer,
  type PendingTask,
} from './client/pending.ts'
export { allowUrlHosts } from './client/policy/allow-url-hosts.ts'
export { maxRoundsPerServer } from './client/policy/max-rounds-per-server.ts'
export { noSecretsInForms } from './client/policy/no-secrets-in-forms.ts'
export { refuseSampling } from './client/policy/refuse-sampling.ts'
export { kindOf, type QuestionKind } from './client/question.ts'
export type { Round, RoundPolicy, Verdict } from './client/round-policy.ts'
export { inspectLink, type Link } from './client/safe-link.ts'
export { openPending, sealPending } from './client/seal-pending.ts'
export type { Change, SubscribeOptions, Subscription } from './client/subscribe.ts'
export type { TaskHandle, TaskRequestOptions } from './client/task-request.ts'
export type { FetchLike } from './client/transport/fetch.ts'
export type { StdioTarget } from './client/transport/stdio.ts'
export { type ErrorCode, RondoError } from './errors.ts'
export { displayText } from './form/clean-text.ts'
export type { ListenFilter } from './protocol/call.ts'
export type {
  CallToolResult,
  Completion,
  Discovery,
  GetPromptResult,
  Prompt,
  ReadResourceResult,
  Resource,
  ResourceTemplate,
  Tool,
} from './protocol/result.ts'
export type { TaskState } from './protocol/task.ts'
export type {
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
