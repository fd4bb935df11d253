/**
 * Turns definitions and handlers into targets: schemas compiled once, results brought into form.
 */

import { misuse, RondoError } from '../errors.ts'
import type { ResourceContents } from '../protocol/wire.ts'
import type { Context } from './context.ts'
import type { CacheHint } from './definition.ts'
import type { Compiled, Problem } from './schema.ts'
import { type Finished, NO_TASK, type Prepared, type Target, type TaskTerms } from './target.ts'
import { errorResult, toToolResult } from './tool-result.ts'

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
  { version, mimeType, cache }: { version?: string; mimeType?: string; cache: CacheHint },
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
