/// <reference lib="esnext.disposable" preserve="true" />

import type { CompleteCall, ListenFilter } from '../protocol/call.ts'
import type {
  CallToolResult,
  Completion,
  Discovery,
  GetPromptResult,
  Prompt,
  ReadResourceResult,
  Resource,
  ResourceTemplate,
  Tool,
} from '../protocol/result.ts'
import type { InputRequests, InputResponses } from '../protocol/wire.ts'
import type { FlowOptions, Step } from './flow-options.ts'
import type { FlowRequest, FlowResult } from './flow-request.ts'
import type { PendingCall, PendingServer } from './pending.ts'
import type { QuestionKind } from './question.ts'
import type { SubscribeOptions, Subscription } from './subscribe.ts'
import type { TaskHandle } from './task-request.ts'

export interface ReadOptions {
  readonly signal?: AbortSignal
  readonly timeout?: number
  /** Ask the server even if an earlier answer may still be used. */
  readonly fresh?: boolean
}

export interface DriveOptions extends FlowOptions {
  /** What the server may ask in this call. Default: forms, URLs and whatever has a handler. */
  readonly accepts?: readonly QuestionKind[]
  /** Give every round back, also those in which the server only wants to be called again. */
  readonly everyRound?: boolean
}

export interface RoundOptions
  extends Pick<
    FlowOptions,
    'signal' | 'timeout' | 'countHumanTime' | 'onProgress' | 'onLog' | 'logLevel' | 'trace'
  > {
  /** Sent as it is, under the keys of the last round's `inputRequests`. */
  readonly inputResponses?: InputResponses
  /** The one of the last round, byte for byte. Leave it out where that had none. */
  readonly requestState?: string
  /** What the server may ask in this round. Default: forms, URLs and whatever has a handler. */
  readonly accepts?: readonly QuestionKind[]
}

/** What one round gives. */
export type RoundResult<R extends FlowRequest = FlowRequest> =
  | { readonly resultType: 'complete'; readonly result: FlowResult<R> }
  | {
      readonly resultType: 'input_required'
      /** Empty where the server only wants to be called again. */
      readonly inputRequests: InputRequests
      readonly requestState?: string
    }

export interface CompleteRequest {
  readonly ref: CompleteCall['ref']
  readonly argument: CompleteCall['argument']
  /** The arguments that are already known. */
  readonly known?: Readonly<Record<string, string>>
}

export interface Client extends AsyncDisposable {
  /** Who is on the other side, as it says itself. */
  readonly server: PendingServer &
    Pick<Discovery, 'capabilities' | 'instructions'> & { readonly title?: string }
  readonly protocolVersion: string

  /** Calls a tool, has every question answered, gives the final result (C6). */
  callTool(
    name: string,
    args?: Readonly<Record<string, unknown>>,
    options?: FlowOptions,
  ): Promise<CallToolResult>
  getPrompt(
    name: string,
    args?: Readonly<Record<string, string>>,
    options?: FlowOptions,
  ): Promise<GetPromptResult>
  readResource(uri: string, options?: FlowOptions & { readonly fresh?: boolean }): Promise<ReadResourceResult>

  /** Sends a request and stops where the server asks something or makes a task of it (C10). No handler is called. */
  start<R extends FlowRequest>(request: R, options?: DriveOptions): Promise<Step<R>>
  /**
   * Goes on with a call, from this process or another (C11). `answers` are added to those it has. A task is waited for
   * until it asks or has ended; to stop waiting does not end it.
   */
  resume<R extends FlowRequest>(
    pending: PendingCall<R>,
    answers?: InputResponses,
    options?: DriveOptions,
  ): Promise<Step<R>>

  /** Goes on with a call to its end; handlers answer what is still open. */
  finish<R extends FlowRequest>(pending: PendingCall<R>, options?: FlowOptions): Promise<FlowResult<R>>

  /**
   * Sends one round of a call and gives what comes back: the caller holds state and responses, and runs the loop (C10).
   * No handler is called, no policy looks, nothing is counted, and the call never becomes a task.
   */
  round<R extends FlowRequest>(request: R, options?: RoundOptions): Promise<RoundResult<R>>

  /** A task by its id, to look at it, answer it or cancel it. */
  task(taskId: string): TaskHandle

  listTools(options?: ReadOptions): Promise<readonly Tool[]>
  listPrompts(options?: ReadOptions): Promise<readonly Prompt[]>
  listResources(options?: ReadOptions): Promise<readonly Resource[]>
  listResourceTemplates(options?: ReadOptions): Promise<readonly ResourceTemplate[]>
  /** Suggestions for an argument of a prompt or a resource template. */
  complete(request: CompleteRequest, options?: ReadOptions): Promise<Completion>
  discover(options?: ReadOptions): Promise<Discovery>
  /** Changes on the server, until the iteration is left or the subscription closed. */
  subscribe(filter: ListenFilter, options?: SubscribeOptions): Subscription

  /** Ends what is under way and lets go of sockets and processes. */
  close(): Promise<void>
}
