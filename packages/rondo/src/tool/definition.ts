/**
 * The definitions that an author writes: tools, prompts, resources and resource templates.
 */

import type { Principal } from '../protocol/call.ts'
import type { ContentBlock, PromptMessage, ResourceContents } from '../protocol/wire.ts'
import type { ConcurrencyOptions } from './concurrency.ts'
import type { Context, Infer, Schema, StandardSchema } from './context.ts'
import type { InputRequired } from './target.ts'
import type { TemplateParams, VariableName } from './uri-template.ts'

export interface Described {
  /** A display name. Default: none. */
  title?: string
  /** Its purpose, for the model. Default: none. */
  description?: string
  /** A list of `{ src, mimeType, sizes }`. Default: none. */
  icons?: readonly { src: string; mimeType?: string; sizes?: readonly string[] }[]
  /** Sent to clients unchanged. Default: none. */
  _meta?: Readonly<Record<string, unknown>>
  /** Sealed with every open call, and logged when a call that began under another version continues. Default: none. */
  version?: string
}

/**
 * The scopes that a caller's token must have, all of them: a list, or a function of the arguments that returns one. It sees
 * the arguments as the handler does, and is called before the state of a call is opened, in every round.
 */
export type Scopes<A> = readonly string[] | ((args: A) => readonly string[] | Promise<readonly string[]>)

export interface ToolAnnotations {
  title?: string
  readOnlyHint?: boolean
  destructiveHint?: boolean
  idempotentHint?: boolean
  openWorldHint?: boolean
}

/** The hook for which an event has arrived. */
export interface HookFacts {
  readonly key: string
  /** The value that the handler stored with the hook (`about`). */
  readonly about: unknown
  /** The caller of the tool; absent for an anonymous one. */
  readonly principal?: Principal
}

/**
 * Checks an event that fits the JSON Schema of its hook, before the hook takes it. Only `true` accepts. `false`, or a text that says
 * why, rejects the event and keeps the hook open.
 */
export type AcceptEvent = {
  // As a method, so that a function may name the type of the event.
  accept(event: unknown, hook: HookFacts): boolean | string | Promise<boolean | string>
}['accept']

export interface ToolDefinition<
  I extends Schema | undefined = undefined,
  O extends Schema | undefined = undefined,
> extends Described {
  /** The schema of the arguments, an object; a mismatch is reported in an `isError` result. Default: any object. */
  input?: I
  /** The schema of the structured result; the handler returns a value of it. Default: none. */
  output?: O
  /** `readOnlyHint`, `destructiveHint`, `idempotentHint`, `openWorldHint`, `title`. Default: none. */
  annotations?: ToolAnnotations
  /**
   * The scopes that a caller's token must have, all of them: a list, or a function of the arguments. Not checked over stdio. Default: none.
   *
   * @see docs/guide/protect-a-server.md
   */
  scopes?: Scopes<I extends Schema ? Infer<I> : Record<string, unknown>>
  /** Drops arguments that `input` does not name before it checks them. Default: the server's `dropUnknownArguments`. */
  dropUnknownArguments?: boolean
  /**
   * Accepts each state of a call once; a repeated request gets the same result. Needs a store. Default: `false`.
   *
   * @see docs/guide/14-tasks.md#single-use
   */
  once?: boolean
  /**
   * `auto`: a task if the client supports tasks, else rounds; `always`: only a task; `never`: never a task. Default: rounds, and
   * a task only after `ctx.background()`, or when the call outgrows its rounds.
   *
   * @see docs/guide/14-tasks.md
   */
  task?: 'never' | 'auto' | 'always'
  /** How long a task of this tool lives. Default: `tasks.ttlMs`. */
  taskTtlMs?: number
  /** How often clients should poll a task of this tool. Default: `tasks.pollMs`. */
  taskPollMs?: number
  /**
   * How many calls may run at once, on all instances together: `{ key, limit, otherwise, whileWaiting }`. Needs a store. Default: any number.
   *
   * @see docs/guide/one-at-a-time.md
   */
  concurrency?: ConcurrencyOptions<I extends Schema ? Infer<I> : Record<string, unknown>>
  /**
   * Calls of one caller that return the same text are the same call: while a task of it is open, another call returns that task. Needs a
   * store, and callers that authenticate. Default: every call is another one.
   *
   * @see docs/guide/one-at-a-time.md#the-same-call-twice
   */
  dedupe?: (args: I extends Schema ? Infer<I> : Record<string, unknown>) => string | Promise<string>
  /**
   * Functions that check the events of hooks before they take them, by the name of the hook; `approval` is also for `approval:7`. A
   * function runs where the event is delivered, which may be an instance that does not run the handler: what it needs to know is in
   * `about` of the hook. Default: no check.
   *
   * @see docs/guide/time-and-events.md#refusing-an-event
   */
  accept?: Readonly<Record<string, AcceptEvent>>
}

export interface ToolResult {
  content?: readonly ContentBlock[]
  structuredContent?: unknown
  isError?: boolean
  _meta?: Readonly<Record<string, unknown>>
}

/** The return value of a handler: the value, or `inputRequired(…)`, or a promise of either. */
export type Returned<T> = T | InputRequired | Promise<T | InputRequired>

/** An object or a list that becomes the structured content of a result: not a promise, not a function. */
export type StructuredValue = object & {
  readonly then?: undefined
  readonly bind?: undefined
  /** The manual form goes through `inputRequired()`, which seals it. */
  readonly resultType?: 'complete'
}

export type ToolHandler<
  I extends Schema | undefined = undefined,
  O extends Schema | undefined = undefined,
> = (
  args: I extends Schema ? Infer<I> : Record<string, unknown>,
  ctx: Context,
) => Returned<
  O extends Schema
    ? Infer<O> | ToolResult
    : // biome-ignore lint/suspicious/noConfusingVoidType: a handler may return nothing
      string | readonly ContentBlock[] | ToolResult | StructuredValue | undefined | void
>

export type Completer = (
  value: string,
  others: Readonly<Record<string, string>>,
) => readonly string[] | Promise<readonly string[]>

export interface PromptDefinition<I extends Schema | undefined = undefined> extends Described {
  /** The schema of the arguments: an object of strings. Default: none. */
  input?: I
  /** The scopes that a caller's token must have, as for tools. Not checked over stdio. Default: none. */
  scopes?: Scopes<I extends Schema ? Infer<I, Record<string, string>> : Record<string, string>>
  /** For each argument, a function `(value, others)` that suggests values while it is typed. Default: none. */
  complete?: Readonly<Partial<Record<ArgumentName<I>, Completer>>>
}

/** The names of the arguments of a schema; any name for plain JSON Schema. */
export type ArgumentName<I> = I extends StandardSchema<infer In, infer _Out> ? keyof In & string : string

export type PromptHandler<I extends Schema | undefined = undefined> = (
  args: I extends Schema ? Infer<I, Record<string, string>> : Record<string, string>,
  ctx: Context,
) => Returned<
  string | readonly PromptMessage[] | { description?: string; messages: readonly PromptMessage[] }
>

export interface CachePolicy {
  /** The time for which a client may keep the result, in ms. */
  ttlMs: number
  /** `public` only if every caller may see the result. */
  scope: 'public' | 'private'
}

export interface ResourceDefinition extends Described {
  /** Its name in lists. */
  name: string
  /** The type of the content, if the handler does not set it. Default: none. */
  mimeType?: string
  /** Its size in bytes. Default: none. */
  size?: number
  /** `audience`, `priority`, `lastModified`. Default: none. */
  annotations?: { audience?: readonly ('user' | 'assistant')[]; priority?: number; lastModified?: string }
  /** `{ ttlMs, scope }`: how long clients may cache what they read, and for whom. Default: not cached. */
  cache?: CachePolicy
  /** The scopes that a caller's token must have to read and to subscribe; a function gets the URI. Not checked over stdio. Default: none. */
  scopes?: Scopes<string>
}

export interface TemplateDefinition<T extends string = string>
  extends Omit<ResourceDefinition, 'size' | 'scopes'> {
  /** The scopes that a caller's token must have to read and to subscribe; a function gets the variables. Not checked over stdio. Default: none. */
  scopes?: Scopes<TemplateParams<T>>
  /** For each variable, a function `(value, others)` that suggests values while it is typed. Default: none. */
  complete?: Readonly<Partial<Record<VariableName<T>, Completer>>>
}

export type ResourceValue = string | Uint8Array | ResourceContents | readonly ResourceContents[]

export type ResourceHandler = (uri: string, ctx: Context) => Returned<ResourceValue>

export type TemplateHandler<T extends string = string> = (
  params: TemplateParams<T>,
  ctx: Context,
  uri: string,
) => Returned<ResourceValue>
