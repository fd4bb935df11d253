/**
 * What a call runs: a tool, a prompt or a resource, compiled once. A carrier needs no more than this to run it.
 */

import { misuse, RondoError } from '../errors.ts'
import type { FlowMethod } from '../protocol/call.ts'
import type { ResourceContents } from '../protocol/wire.ts'
import type { Context } from './context.ts'
import type { CachePolicy } from './definition.ts'
import { assertNoLiteral, errorResult, toToolResult } from './result.ts'
import type { Compiled, Problem } from './schema/schema.ts'

export type Prepared =
  | { readonly kind: 'ready'; run(ctx: Context): unknown }
  /** The arguments do not fit. */
  | { readonly kind: 'refused'; readonly problem: string }

export type Finished = Readonly<Record<string, unknown>>

/** Whether and how a call may go on as a task. */
export interface TaskTerms {
  /** `late`: where the handler asks for it or the call outgrows its rounds. */
  readonly mode: 'never' | 'late' | 'auto' | 'always'
  readonly ttlMs?: number
  readonly pollMs?: number
}

const NO_TASK: TaskTerms = { mode: 'never' }

export interface Target {
  readonly method: FlowMethod
  readonly name: string
  readonly version?: string
  readonly task: TaskTerms
  /** Each state of a call is used once (B8). */
  readonly once?: boolean
  prepare(args: Readonly<Record<string, unknown>>): Prepared | Promise<Prepared>
  /** Makes a result of what the handler returned. Throws if it is none. */
  finish(value: unknown): Finished | Promise<Finished>
  /** A failure that the caller may read: a result where the method has a form for it, else an error. */
  fail(message: string): { readonly result: Finished } | { readonly error: RondoError }
}

/*
 * Turns definitions and handlers into targets: schemas compiled once, results brought into form.
 */

type AnyHandler = (args: never, ctx: Context, uri: string) => unknown

function describe(problems: readonly Problem[]): string {
  return problems.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`)).join('; ')
}

/** Runs `args` through the schema; stays synchronous where the schema does. */
function prepare(
  input: Compiled | undefined,
  args: unknown,
  ready: (args: unknown) => Prepared,
): Prepared | Promise<Prepared> {
  if (!input) return ready(args)
  const settle = (result: Awaited<ReturnType<Compiled['validate']>>): Prepared =>
    result.ok ? ready(result.value) : { kind: 'refused', problem: describe(result.problems) }
  const result = input.validate(args)
  return result instanceof Promise ? result.then(settle) : settle(result)
}

function ready(handler: AnyHandler, uri = ''): (args: unknown) => Prepared {
  return (args) => ({ kind: 'ready', run: (ctx) => handler(args as never, ctx, uri) })
}

interface ToolParts {
  readonly version?: string
  readonly input?: Compiled
  readonly output?: Compiled
  readonly task: TaskTerms
  readonly once?: boolean
}

export function toolTarget(
  name: string,
  handler: AnyHandler,
  { version, input, output, task, once }: ToolParts,
): Target {
  return {
    method: 'tools/call',
    name,
    version,
    task,
    once,
    prepare: (args) => prepare(input, args, ready(handler)),
    finish: (value) => toToolResult(value, output),
    fail: (message) => ({ result: errorResult(message) }),
  }
}

function failHandler(message: string): { error: RondoError } {
  return { error: new RondoError('SERVER_HANDLER', message) }
}

export function promptTarget(
  name: string,
  handler: AnyHandler,
  { version, input, description }: { version?: string; input?: Compiled; description?: string },
): Target {
  return {
    method: 'prompts/get',
    name,
    version,
    task: NO_TASK,
    prepare: (args) => prepare(input, args, ready(handler)),
    finish: (value) => toPromptResult(value, description),
    fail: failHandler,
  }
}

function toPromptResult(value: unknown, description: string | undefined): Finished {
  assertNoLiteral(value)
  const common = description === undefined ? {} : { description }
  if (typeof value === 'string') {
    return { ...common, messages: [{ role: 'user', content: { type: 'text', text: value } }] }
  }
  if (Array.isArray(value)) return { ...common, messages: value }
  if (typeof value === 'object' && value !== null && 'messages' in value) return { ...common, ...value }
  throw misuse('A prompt returns a string, a list of messages, or { description, messages }.')
}

export function resourceTarget(
  uri: string,
  handler: AnyHandler,
  args: unknown,
  { version, mimeType, cache }: { version?: string; mimeType?: string; cache: CachePolicy },
): Target {
  return {
    method: 'resources/read',
    name: uri,
    version,
    task: NO_TASK,
    prepare: () => ready(handler, uri)(args),
    finish: (value) => ({
      contents: toContents(value, uri, mimeType),
      ttlMs: cache.ttlMs,
      cacheScope: cache.scope,
    }),
    fail: failHandler,
  }
}

function toContents(value: unknown, uri: string, mimeType: string | undefined): readonly ResourceContents[] {
  assertNoLiteral(value)
  const common = mimeType === undefined ? { uri } : { uri, mimeType }
  if (typeof value === 'string') return [{ ...common, text: value }]
  if (value instanceof Uint8Array) return [{ ...common, blob: toBase64(value) }]
  const list: readonly unknown[] = Array.isArray(value) ? value : [value]
  if (list.length > 0 && list.every(isContents)) return list
  throw misuse('A resource returns a string, bytes, or contents with a uri and either text or blob.')
}

function isContents(value: unknown): value is ResourceContents {
  return typeof value === 'object' && value !== null && 'uri' in value && ('text' in value || 'blob' in value)
}

function toBase64(bytes: Uint8Array): string {
  let binary = ''
  for (let i = 0; i < bytes.length; i += 0x8000)
    binary += String.fromCharCode(...bytes.subarray(i, i + 0x8000))
  return btoa(binary)
}
