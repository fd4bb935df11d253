/** The context of a handler, with its schemas and questions. Types only: `replay/` implements them. */

import type { Duration } from '../lib/clock.ts'
import type { Principal } from '../protocol/call.ts'
import type { QuestionKind } from '../protocol/common/request.ts'
import type {
  ClientCapabilities,
  CreateMessageResult,
  ElicitContent,
  InputResponses,
  JsonSchema,
  LogLevel,
  Root,
  SamplingParams,
} from '../protocol/wire.ts'
import type { Approval, ApprovalOptions } from './approval.ts'

/**
 * A schema that validates and converts itself to JSON Schema: zod 4.2 and later, arktype, valibot with its converter.
 * Structurally the Standard Schema and Standard JSON Schema interfaces, version 1 (standardschema.dev).
 */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly '~standard': StandardProps<Input, Output> & { readonly jsonSchema: StandardConverter }
}

interface StandardProps<Input, Output> {
  readonly version: 1
  readonly vendor: string
  readonly types?: { readonly input: Input; readonly output: Output } | undefined
  readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>
}

type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] }

interface StandardIssue {
  readonly message: string
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined
}

interface StandardConverter {
  readonly input: (options: { readonly target: string }) => Record<string, unknown>
  readonly output: (options: { readonly target: string }) => Record<string, unknown>
}

/** A Standard Schema that converts itself to JSON Schema, or plain JSON Schema 2020-12. */
export type Schema = StandardSchema | JsonSchema

/** The type of a schema's values in a handler. Plain JSON Schema becomes a record of unknown values. */
export type Infer<S, Plain = Record<string, unknown>> = S extends {
  readonly '~standard': StandardProps<infer _In, infer Out>
}
  ? Out
  : Plain

/** A time limit. */
export interface Within {
  /**
   * The time for which the question is open: milliseconds, or text such as `'3 days'`. After that it is closed and recorded as
   * expired, and a late response has no effect. Default: as long as the flow lives.
   */
  within?: Duration
}

export interface Question<S extends Schema = Schema> {
  /**
   * The text that the user reads. It must be the same in every replay, or the question is asked again: keep clocks,
   * rates and random values out of it.
   */
  message: string
  /**
   * A flat object of strings, numbers, booleans and choices: a Standard Schema that can produce a JSON Schema, or JSON
   * Schema.
   */
  schema: S
  /**
   * The time for which the question is open: milliseconds, or text such as `'3 days'`. After that it is closed and
   * recorded as expired, and a late response has no effect. Default: as long as the flow lives.
   */
  within?: Duration
  /** The reason why a field that looks like a secret is not one. Without it such a field is refused. */
  allowSecretLike?: string
  /**
   * The arguments that make this question unnecessary. A client that [cannot be
   * asked](docs/guide/02-asking.md#clients-that-cannot-be-asked) is told to send them.
   */
  orArgument?: string | readonly string[]
  /**
   * An app of this server that [draws the form](docs/guide/13-drafts.md#questions-drawn-by-an-app): the `ui://` URI of a resource. Sent to clients that declare it; all
   * others show the form. Default: none.
   */
  ui?: string
}

export type Outcome<T> =
  | { readonly action: 'accept'; readonly content: T }
  | { readonly action: 'decline' }
  | { readonly action: 'cancel' }
  /** The question was not answered in time (`within`). */
  | { readonly action: 'expired' }

export interface ConfirmOptions {
  /** The time for which the question is open, as in `Within`. */
  within?: Duration
  /** The label of the yes-or-no field. */
  label?: string
}

export interface EffectInfo {
  /**
   * Pass it to the other system as the idempotency key. It is the same in every attempt of this effect in this flow after
   * the same answers; other answers to the same state lead to another key.
   */
  readonly key: string
  /** Fires when the attempt should stop: its time is over, or the run of the handler has ended. */
  readonly signal: AbortSignal
  /** 1, and one more for each retry. */
  readonly attempt: number
}

export interface RetryOptions {
  /** Attempts after the first one. Default: 3. */
  times?: number
  /** The delay before the second attempt: milliseconds, or text such as `'90 s'`. Default: 1 s. */
  delay?: Duration
  /** Each further delay is this many times as long as the one before. Default: 2. */
  factor?: number
  /** No delay is longer, unless a `RetryLater` asks for it. Default: 1 min. */
  maxDelay?: Duration
}

interface UndoInfo {
  /** The idempotency key of the undo: its own, and the same in every attempt. */
  readonly key: string
  /** The idempotency key that the effect was given: with it the other system finds what it did. */
  readonly effectKey: string
  /** `maybe`: the effect threw, or was interrupted, so it may have happened. Undo what you find, and do not fail if there is nothing. */
  readonly ran: 'yes' | 'maybe'
  /** Fires when the attempt should stop. */
  readonly signal: AbortSignal
}

export interface EffectOptions<T = unknown> {
  /**
   * Runs it again if it fails. `ToolError` and `Fatal` are final; `RetryLater` chooses the delay of the next attempt. Default:
   * the first failure is final.
   */
  retry?: RetryOptions
  /**
   * The time that one attempt may take: milliseconds, or text such as `'90 s'`. Then its signal fires and it counts as failed, even
   * if its function continues. Default: as long as it takes.
   */
  timeout?: Duration
  /** Claims the effect in the store before it runs, so that a repeated request finds its result. Needs a store. */
  once?: boolean
  /**
   * Takes the effect back if the call ends without success, and in `ctx.undo()`. It may run more than once, always under
   * `info.key`. `result` is absent if nobody knows whether the effect ran (`info.ran` is `'maybe'`). Needs a store.
   */
  undo?: (result: T | undefined, info: UndoInfo) => unknown
}

/**
 * `T` where its values survive JSON. A `Date`, a `Map`, a `bigint`, a function or a class with methods does not: the journal
 * would return something else. Values of type `unknown` are checked at run time.
 */
export type Jsonable<T> = unknown extends T
  ? T
  : // biome-ignore lint/suspicious/noConfusingVoidType: the result of a function that returns nothing
    T extends string | number | boolean | null | undefined | void
    ? T
    : T extends bigint | symbol | ((...args: never) => unknown)
      ? never
      : { [K in keyof T]: Jsonable<T[K]> }

/** Refuses a function whose result does not survive JSON. */
export type ReturnsJson<T> = [T] extends [Jsonable<T>] ? unknown : { readonly 'Return plain JSON': never }

/** A standing question: it stays open while the handler works on. */
export interface Offer<T> extends PromiseLike<Outcome<T>> {
  /** The response, if one was recorded before the last result that the handler received. Always nothing in rounds. */
  peek(): Outcome<T> | undefined
  /** Closes the question, also in the view of the client. Whoever awaits it gets `{ action: 'cancel' }`. */
  withdraw(): void
}

export interface HookOptions<S extends Schema = Schema> {
  /** The time for which the hook takes an event, from now on: milliseconds, or text such as `'3 days'`. Default: as long as its task lives. */
  within?: Duration
  /** The schema of the event. Default: an event may be anything. */
  schema?: S
  /**
   * JSON that is stored with the hook, sealed. A page that gets the id reads it with `server.hook(id)`, and the tool's `accept`
   * gets it with each event.
   */
  about?: unknown
}

/** Waits for one event from outside. */
export interface Hook<T> {
  /**
   * Whoever holds this string can deliver the event, once, with `server.deliver(id, event)`. Hand it to the system that reports
   * the event, and keep it secret from everybody else. The same in every replay.
   */
  readonly id: string
  /** The event. An event that passed its JSON Schema but not the schema itself throws `EventRejected`, the end of its time `EventExpired`. */
  received(): Promise<T>
}

export interface StepInfo {
  /** Aborted when the client is gone, or when the `timeout` of this attempt is over. */
  readonly signal: AbortSignal
  /** 1, and one more for each retry. */
  readonly attempt: number
}

export interface Context {
  /**
   * Asks the user and returns the validated content. A decline throws `InputDeclined`, a dismissal `InputCancelled`,
   * the end of its time `InputExpired`. Uncaught, they end the call politely.
   */
  ask<S extends Schema>(key: string, question: Question<S>): Promise<Infer<S, ElicitContent>>
  /**
   * Asks the user and returns the whole outcome: `{ action: 'accept', content }`, or the action `decline`, `cancel` or
   * `expired`.
   */
  elicit<S extends Schema>(key: string, question: Question<S>): Promise<Outcome<Infer<S, ElicitContent>>>
  /**
   * Returns true only on an explicit yes to exactly this question. If nobody can be asked, the call ends unconfirmed.
   */
  confirm(key: string, message: string, options?: ConfirmOptions): Promise<boolean>
  /**
   * Asks the user to open a URL. Resolving means consent to open it, not that anything was completed there. Throws
   * like `ask`.
   */
  visit(key: string, page: { message: string; url: string } & Within): Promise<void>
  /**
   * Asks the client's model for a completion. Throws `InputExpired` if it takes too long.
   * [Deprecated](docs/reference/compatibility.md#deprecated-in-2026-07-28) in 2026-07-28.
   */
  sample(key: string, params: SamplingParams, options?: Within): Promise<CreateMessageResult>
  /**
   * Asks the client for its roots. The key defaults to `roots`.
   * [Deprecated](docs/reference/compatibility.md#deprecated-in-2026-07-28) in 2026-07-28.
   */
  roots(key?: string): Promise<readonly Root[]>

  /**
   * Runs `fn` and records its result (JSON). A replay returns the recorded result. `fn` may run again after a crash, and
   * with [`retry`](docs/guide/retries.md) after a failure.
   */
  step<T>(
    key: string,
    fn: ((info: StepInfo) => T | Promise<T>) & ReturnsJson<T>,
    options?: Pick<EffectOptions, 'retry' | 'timeout'>,
  ): Promise<T>
  /**
   * Runs a step that changes something outside. `fn` receives an idempotency key that is the same in every attempt,
   * derived from the call, the name and the answers so far. The options `once` and `undo` need a [store](docs/reference/stores.md).
   */
  effect<T>(
    key: string,
    fn: ((info: EffectInfo) => T | Promise<T>) & ReturnsJson<T>,
    options?: EffectOptions<NoInfer<T>>,
  ): Promise<T>
  /**
   * Undoes the effects with [`undo`](docs/guide/undo.md) that ran so far, or may have run, in reverse order of their beginning. Call
   * it after a No, before the handler returns. Returns their names; a worker goes on trying with those that failed.
   */
  undo(): Promise<{ readonly undone: readonly string[]; readonly failed: readonly string[] }>
  /**
   * Continues after a time: milliseconds, or text such as `'3 days'`. A task is parked until then and survives
   * restarts. A request waits for up to `limits.maxInlineSleepMs`; after a longer sleep the call continues as a task.
   */
  sleep(key: string, duration: Duration): Promise<void>
  /** Continues at a time: a Date, milliseconds since 1970, or an ISO date. At once if it is past. */
  sleepUntil(key: string, date: Date | number | string): Promise<void>
  /**
   * Opens a [question that does not block](docs/guide/14-tasks.md#offers): `await` it, poll it with `peek`, or
   * `withdraw` it. In a task it is visible at once and until the handler returns; in rounds it is asked when it is
   * awaited.
   */
  offer<S extends Schema>(key: string, question: Question<S>): Offer<Infer<S, ElicitContent>>
  /**
   * Opens a hook for one [event from outside](docs/guide/time-and-events.md), such as a webhook. Needs a task: a call
   * in rounds continues as one from here on. When this resolves, the hook is durable and its id can be handed out. It
   * uses the names `key` and `key.received`.
   */
  hook<S extends Schema = JsonSchema>(key: string, options?: HookOptions<S>): Promise<Hook<Infer<S, unknown>>>
  /**
   * Waits for a [decision by somebody other than the caller](docs/guide/approvals.md). Resolves only if the request
   * was approved; a denial throws `ApprovalDenied`, the end of its time `ApprovalExpired`. Needs a task, and a server
   * that uses `@rondo/approvals`.
   */
  approve(key: string, options: ApprovalOptions): Promise<Approval>
  /**
   * Marks a place where the call may move to another instance. Steps and questions are such places already.
   */
  checkpoint(): Promise<void>
  /**
   * Continues as a [task](docs/guide/14-tasks.md) from here on, if the client can follow one; otherwise does nothing.
   */
  background(): Promise<void>
  /**
   * Sets the [status message](docs/guide/14-tasks.md#what-a-task-says-about-itself) of the task, in place of the
   * automatic one. Ignored in rounds, and not repeated by a replay.
   */
  status(message: string): void
  /**
   * Sets [labels](docs/guide/operate-tasks.md#labels) by which an operator with the keys finds the task of this call, such as
   * `{ order: '4711' }`. They merge by name, and the last value wins. Clients never see them. Checked and otherwise ignored where
   * nothing is stored: in rounds, and for older clients.
   */
  label(labels: Readonly<Record<string, string>>): void

  /**
   * Returns the time of the last recorded event of this call, in ms since the epoch; the same in every replay.
   */
  now(): number
  /**
   * Returns a UUID that is the same in every replay. With a name it does not depend on how many were drawn before.
   */
  uuid(name?: string): string
  /**
   * Returns a number in [0, 1) that is the same in every replay. With a name it does not depend on how many were drawn
   * before.
   */
  random(name?: string): number

  /** Reports progress to the client, if it asked for that. The number must increase with every call. */
  progress(progress: number, total?: number, message?: string): void
  /**
   * Sends a log message to the client, if it asked for this level. Not repeated by a replay.
   * [Deprecated](docs/reference/compatibility.md#deprecated-in-2026-07-28) in 2026-07-28.
   */
  log(level: LogLevel, data: unknown, logger?: string): void
  /** Fires when the client disconnects, or when this run of the handler is suspended or has ended. */
  readonly signal: AbortSignal
  /**
   * Runs `fn` when this run of the handler is suspended or ends, the last registered first. The call waits for it for
   * at most `limits.maxDeferMs`. `fn` cannot ask.
   */
  defer(fn: () => void | Promise<void>): void

  /**
   * The caller as `authenticate` returned it: `subject`, `issuer`, `client`, `claims`, `scopes`. Undefined if
   * unauthenticated.
   */
  readonly principal: Principal | undefined
  /** The client's name, version and capabilities, as it declares them. */
  readonly client: {
    readonly name?: string
    readonly version?: string
    readonly capabilities: ClientCapabilities
  }
  /** The protocol revision of this request. */
  readonly protocolVersion: string
  /** The number of this round; 1 for the first request of the call. */
  readonly round: number
  /** The id of the call, the same in every round: use it in your own logs. */
  readonly flow: string
  /**
   * Tasks of this caller that the request names as related, with the option `tasks.related`. A retry may name others: record with
   * `ctx.step` what you conclude from them.
   */
  readonly relatedTaskIds: readonly string[]
  /**
   * The `_meta` of this request as the client sent it: unchecked, and possibly different in every round. Empty in a task, and in a
   * call that another instance continues.
   */
  readonly meta: Readonly<Record<string, unknown>>
  /**
   * Returns whether the client can be asked for `form`, `url`, `sampling` or `roots`, or with `app` whether it has forms [drawn by an
   * app](docs/guide/13-drafts.md#questions-drawn-by-an-app).
   */
  can(kind: QuestionKind | 'app'): boolean

  /**
   * The responses as the client sent them, for the [manual form](docs/guide/02-asking.md#by-hand). They are kept while the handler
   * asks something else.
   */
  readonly inputResponses: InputResponses | undefined
  /**
   * The string that this handler returned as its state, for the [manual form](docs/guide/02-asking.md#by-hand).
   */
  readonly requestState: string | undefined
}
