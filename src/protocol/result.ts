/**
 * What a server gives back when a request is done, as a client sees it. The codec of a revision checks the fields that
 * the types promise; everything else a server adds is kept.
 */

import type { ContentBlock, JsonSchema, PromptMessage, ResourceContents } from './wire.ts'

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

/** How long an answer may be kept, and whether anyone else may have it. */
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
  /** What the server says about the tool. Not to be trusted. */
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

/** One page of a list. An empty `nextCursor` is a cursor like any other. */
export interface Page extends CacheHint {
  readonly items: readonly Readonly<Record<string, unknown>>[]
  readonly nextCursor?: string
}
