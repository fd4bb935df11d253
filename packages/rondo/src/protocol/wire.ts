/**
 * Shapes that are the same in every revision: input requests and responses, content, capabilities, results. The codec of a
 * revision checks the fields that these types promise; additional fields are kept.
 */

export type LogLevel = 'debug' | 'info' | 'notice' | 'warning' | 'error' | 'critical' | 'alert' | 'emergency'

export const LOG_LEVELS: readonly LogLevel[] = [
  'debug',
  'info',
  'notice',
  'warning',
  'error',
  'critical',
  'alert',
  'emergency',
]

export interface ClientCapabilities {
  readonly elicitation?: { readonly form?: object; readonly url?: object }
  readonly sampling?: { readonly tools?: object; readonly context?: object }
  readonly roots?: object
  readonly extensions?: Readonly<Record<string, unknown>>
  readonly [other: string]: unknown
}

export type JsonSchema = { readonly [keyword: string]: unknown }

export interface ElicitFormParams {
  readonly mode: 'form'
  readonly message: string
  readonly requestedSchema: JsonSchema
  readonly _meta?: Readonly<Record<string, unknown>>
}

export interface ElicitUrlParams {
  readonly mode: 'url'
  readonly message: string
  readonly url: string
  /** Defined only at 2025-11-25, but some clients of 2026-07-28 refuse a request without it. */
  readonly elicitationId?: string
}

export interface SamplingParams {
  readonly messages: readonly unknown[]
  readonly maxTokens: number
  readonly [other: string]: unknown
}

export type InputRequest =
  | { readonly method: 'elicitation/create'; readonly params: ElicitFormParams | ElicitUrlParams }
  | { readonly method: 'sampling/createMessage'; readonly params: SamplingParams }
  | { readonly method: 'roots/list'; readonly params?: Readonly<Record<string, unknown>> }

export type InputRequests = Readonly<Record<string, InputRequest>>

export type ElicitContent = Readonly<Record<string, string | number | boolean | readonly string[]>>

export interface ElicitResult {
  readonly action: 'accept' | 'decline' | 'cancel'
  readonly content?: ElicitContent
}

export interface CreateMessageResult {
  readonly role: 'user' | 'assistant'
  readonly content: unknown
  readonly model: string
  readonly stopReason?: string
  readonly [other: string]: unknown
}

export interface Root {
  readonly uri: string
  readonly name?: string
}

export interface ListRootsResult {
  readonly roots: readonly Root[]
}

export type InputResponse = ElicitResult | CreateMessageResult | ListRootsResult

export type InputResponses = Readonly<Record<string, InputResponse>>

export interface Annotations {
  readonly audience?: readonly ('user' | 'assistant')[]
  readonly priority?: number
  readonly lastModified?: string
}

interface ContentCommon {
  readonly annotations?: Annotations
  readonly _meta?: Readonly<Record<string, unknown>>
}

export type ResourceContents =
  | {
      readonly uri: string
      readonly mimeType?: string
      readonly text: string
      readonly _meta?: Readonly<Record<string, unknown>>
    }
  | {
      readonly uri: string
      readonly mimeType?: string
      readonly blob: string
      readonly _meta?: Readonly<Record<string, unknown>>
    }

export type ContentBlock =
  | ({ readonly type: 'text'; readonly text: string } & ContentCommon)
  | ({ readonly type: 'image' | 'audio'; readonly data: string; readonly mimeType: string } & ContentCommon)
  | ({ readonly type: 'resource'; readonly resource: ResourceContents } & ContentCommon)
  | ({
      readonly type: 'resource_link'
      readonly uri: string
      readonly name: string
      readonly title?: string
      readonly description?: string
      readonly mimeType?: string
    } & ContentCommon)

export interface PromptMessage {
  readonly role: 'user' | 'assistant'
  readonly content: ContentBlock
}

export interface CallToolResult {
  readonly content: readonly ContentBlock[]
  readonly structuredContent?: unknown
  readonly isError?: boolean
  readonly _meta?: Readonly<Record<string, unknown>>
}

export interface GetPromptResult {
  readonly description?: string
  readonly messages: readonly PromptMessage[]
  readonly _meta?: Readonly<Record<string, unknown>>
}

/** How long a result may be cached, and whether it may be shared. */
export interface CacheHint {
  readonly ttlMs?: number
  readonly cacheScope?: 'public' | 'private'
}

export interface ReadResourceResult extends CacheHint {
  readonly contents: readonly ResourceContents[]
  readonly _meta?: Readonly<Record<string, unknown>>
}

export interface Tool {
  readonly name: string
  readonly title?: string
  readonly description?: string
  readonly inputSchema: JsonSchema
  readonly outputSchema?: JsonSchema
  /** The server's claims about the tool. Not to be trusted. */
  readonly annotations?: Readonly<Record<string, unknown>>
  readonly [other: string]: unknown
}

export interface Prompt {
  readonly name: string
  readonly title?: string
  readonly description?: string
  readonly arguments?: readonly {
    readonly name: string
    readonly description?: string
    readonly required?: boolean
  }[]
  readonly [other: string]: unknown
}

export interface Resource {
  readonly uri: string
  readonly name: string
  readonly title?: string
  readonly description?: string
  readonly mimeType?: string
  readonly [other: string]: unknown
}

export interface ResourceTemplate {
  readonly uriTemplate: string
  readonly name: string
  readonly title?: string
  readonly description?: string
  readonly mimeType?: string
  readonly [other: string]: unknown
}

export interface Completion {
  readonly values: readonly string[]
  readonly total?: number
  readonly hasMore?: boolean
}

export interface ServerInfo {
  readonly name: string
  readonly version: string
  readonly title?: string
}

export interface Discovery extends CacheHint {
  readonly supportedVersions: readonly string[]
  readonly capabilities: Readonly<Record<string, unknown>>
  readonly instructions?: string
  readonly serverInfo?: ServerInfo
}

/** One page of a list. An empty `nextCursor` is a valid cursor. */
export interface Page extends CacheHint {
  readonly items: readonly Readonly<Record<string, unknown>>[]
  readonly nextCursor?: string
}
