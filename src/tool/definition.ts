/**
 * What an author declares: tools, prompts, resources and resource templates.
 */

import type { ContentBlock, PromptMessage, ResourceContents } from '../protocol/wire.ts'
import type { Context, Infer, Schema } from './context.ts'
import type { InputRequired } from './result.ts'

export interface Described {
  title?: string
  description?: string
  icons?: readonly { src: string; mimeType?: string; sizes?: readonly string[] }[]
  _meta?: Readonly<Record<string, unknown>>
  /** Sealed with every open call, and logged when a call that began under another version goes on. */
  version?: string
}

export interface ToolAnnotations {
  title?: string
  readOnlyHint?: boolean
  destructiveHint?: boolean
  idempotentHint?: boolean
  openWorldHint?: boolean
}

export interface ToolDefinition<
  I extends Schema | undefined = undefined,
  O extends Schema | undefined = undefined,
> extends Described {
  /** The arguments: an object schema. */
  input?: I
  /** The structured result. The handler then returns a value of this schema. */
  output?: O
  annotations?: ToolAnnotations
  /** Drops arguments that the schema does not name before it checks them. Default: what the server says. */
  dropUnknownArguments?: boolean
  /** Each state of a call is taken once; the same request again gets the same reply. Needs a store. */
  once?: boolean
  /**
   * `auto`: a task where the client can follow one, rounds elsewhere. `always`: only as a task. Default: rounds, and a task
   * only from `ctx.background()` on or where the call outgrows its rounds; `never` rules that out too.
   */
  task?: 'never' | 'auto' | 'always'
  /** How long a task of this tool lives. */
  taskTtlMs?: number
  /** How often clients should look at a task of this tool. */
  taskPollMs?: number
}

export interface ToolResult {
  content?: readonly ContentBlock[]
  structuredContent?: unknown
  isError?: boolean
  _meta?: Readonly<Record<string, unknown>>
}

type Returned<T> = T | InputRequired | Promise<T | InputRequired>

export type ToolHandler<I extends Schema | undefined, O extends Schema | undefined> = (
  args: I extends Schema ? Infer<I> : Record<string, unknown>,
  ctx: Context,
) => Returned<
  O extends Schema
    ? Infer<O> | ToolResult
    : string | readonly ContentBlock[] | ToolResult | object | undefined
>

export type Completer = (
  value: string,
  others: Readonly<Record<string, string>>,
) => readonly string[] | Promise<readonly string[]>

export interface PromptDefinition<I extends Schema | undefined = undefined> extends Described {
  /** The arguments: an object of strings. */
  input?: I
  /** Suggests values for an argument while it is typed. */
  complete?: Readonly<Record<string, Completer>>
}

export type PromptHandler<I extends Schema | undefined> = (
  args: I extends Schema ? Infer<I, Record<string, string>> : Record<string, string>,
  ctx: Context,
) => Returned<
  string | readonly PromptMessage[] | { description?: string; messages: readonly PromptMessage[] }
>

export interface CacheHint {
  /** How long a client may keep the result, in ms. */
  ttlMs: number
  /** `public` only if every caller may see it. */
  scope: 'public' | 'private'
}

export interface ResourceDefinition extends Described {
  name: string
  mimeType?: string
  size?: number
  annotations?: { audience?: readonly ('user' | 'assistant')[]; priority?: number; lastModified?: string }
  cache?: CacheHint
}

export interface TemplateDefinition extends Omit<ResourceDefinition, 'size'> {
  complete?: Readonly<Record<string, Completer>>
}

export type ResourceValue = string | Uint8Array | ResourceContents | readonly ResourceContents[]

export type ResourceHandler = (uri: string, ctx: Context) => Returned<ResourceValue>

export type TemplateHandler = (
  params: Readonly<Record<string, string>>,
  ctx: Context,
  uri: string,
) => Returned<ResourceValue>
