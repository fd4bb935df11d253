/**
 * The target of a call: a tool, a prompt or a resource, with its schemas compiled once. A carrier needs nothing else to run it:
 * `prepare` checks the arguments, and `finish` turns what the handler returned into the result of the method.
 *
 * In the manual form a handler returns `inputRequired(…)` instead of awaiting a question, and reads `ctx.inputResponses` and
 * `ctx.requestState` itself in the next round. Its `requestState` is sealed like any journal.
 */

import { misuse, RondoError } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import type { FlowMethod, Principal } from '../protocol/call.ts'
import type { InputRequests, ResourceContents } from '../protocol/wire.ts'
import type { Concurrency, KeyOf } from './concurrency.ts'
import type { Context } from './context.ts'
import type { AcceptEvent, CachePolicy, Scopes } from './definition.ts'
import { HOOK_MS, inTime } from './hook.ts'
import { describeArguments, describeProblems } from './schema/schema.ts'
import type { Compiled } from './schema/standard.ts'

type Prepared =
  | { readonly kind: 'ready'; run(ctx: Context): unknown }
  /** The arguments do not fit the schema. */
  | { readonly kind: 'refused'; readonly problem: string }

export type Finished = Readonly<Record<string, unknown>>

/** Whether and how a call may continue as a task. */
export interface TaskTerms {
  /** `late`: once the handler asks for it, or the call outgrows its rounds. */
  readonly mode: 'never' | 'late' | 'auto' | 'always'
  readonly ttlMs?: number
  readonly pollMs?: number
}

const NO_TASK: TaskTerms = { mode: 'never' }

export interface Target {
  readonly method: FlowMethod
  readonly name: string
  /** Its name in the log, where `name` contains what a caller chose. */
  readonly label?: string
  readonly version?: string
  readonly task: TaskTerms
  /** Each state of a call may be used once (B8). */
  readonly once?: boolean
  /** How many calls may run at once. */
  readonly concurrency?: Concurrency
  /** The key by which identical calls of one caller are found. */
  readonly dedupe?: KeyOf
  /** The tool has an output schema. */
  readonly structured?: boolean
  /** Checks the events of hooks, by their names. */
  readonly accept?: Readonly<Record<string, AcceptEvent>>
  /** Its result depends on when it runs, so development mode does not compare two runs. */
  readonly live?: boolean
  /** The server that really runs it, and the revision that it speaks, for the log. Absent: this one. */
  upstream?(): { readonly name: string; readonly revision?: string }
  /** Returns the scopes that a caller's token needs. Absent: none. */
  scopes?(args: Readonly<Record<string, unknown>>): RequiredScopes | Promise<RequiredScopes>
  /**
   * Reports changes of another server's resource to one caller, never before it returns. Returns a function that ends this, or
   * undefined if the resource cannot be watched. Throws if the caller watches too much.
   */
  watch?(principal: Principal | undefined, changed: () => void): (() => void) | undefined
  prepare(args: Readonly<Record<string, unknown>>): Prepared | Promise<Prepared>
  /** Makes a result of what the handler returned. Throws a TypeError if that is not possible. */
  finish(value: unknown): Finished | Promise<Finished>
  /** A failure that the caller may read: an `isError` result for a tool, an error for the other methods. */
  fail(message: string): { readonly result: Finished } | { readonly error: RondoError }
}

/** The check for the events of a hook. A hook with a longer name (`approval:7`) has that of the name before the colon. */
export function acceptOf({ accept }: Pick<Target, 'accept'>, key: string): AcceptEvent | undefined {
  const names = [key, key.split(':')[0] ?? '']
  const name = accept && names.find((one) => Object.hasOwn(accept, one))
  return name === undefined ? undefined : accept?.[name]
}

/** Throws if `accept` is not an object of functions. */
export function assertAccept(of: string, accept: unknown): void {
  if (accept === undefined) return
  if (typeof accept === 'object' && accept !== null && Object.values(accept).every(isFunction)) return
  throw misuse(`accept of ${of} must be an object of functions, by the names of hooks.`)
}

const isFunction = (value: unknown): boolean => typeof value === 'function'

/** The scopes of a call, or why its arguments do not fit. */
export type RequiredScopes =
  | { readonly kind: 'scopes'; readonly scopes: readonly string[] }
  | { readonly kind: 'refused'; readonly problem: string }

type AnyHandler = (args: never, ctx: Context, uri: string) => unknown

interface ToolParts {
  readonly version?: string
  readonly input?: Compiled
  readonly output?: Compiled
  readonly task: TaskTerms
  readonly once?: boolean
  readonly live?: boolean
  readonly scopes?: Scopes<never>
  readonly accept?: Target['accept']
  readonly concurrency?: Concurrency
  readonly dedupe?: KeyOf
}

export function toolTarget(
  name: string,
  handler: AnyHandler,
  { version, input, output, task, once, live, scopes, accept, concurrency, dedupe }: ToolParts,
): Target {
  return {
    method: 'tools/call',
    name,
    version,
    task,
    once,
    live,
    accept,
    concurrency,
    dedupe,
    structured: output !== undefined,
    scopes: scopesOf(scopes, input),
    prepare: (args) => prepare(input, args, ready(handler)),
    finish: (value) => toToolResult(value, output),
    fail: (message) => ({ result: errorResult(message) }),
  }
}

export function promptTarget(
  name: string,
  handler: AnyHandler,
  {
    version,
    input,
    description,
    scopes,
  }: { version?: string; input?: Compiled; description?: string; scopes?: Scopes<never> },
): Target {
  return {
    method: 'prompts/get',
    name,
    version,
    task: NO_TASK,
    scopes: scopesOf(scopes, input),
    prepare: (args) => prepare(input, args, ready(handler)),
    finish: (value) => toPromptResult(value, description),
    fail: failHandler,
  }
}

export function resourceTarget(
  uri: string,
  handler: AnyHandler,
  args: unknown,
  {
    label,
    version,
    mimeType,
    cache,
    scopes,
  }: { label?: string; version?: string; mimeType?: string; cache: CachePolicy; scopes?: Scopes<never> },
): Target {
  const ask = scopesOf(scopes, undefined)
  return {
    method: 'resources/read',
    name: uri,
    label,
    version,
    task: NO_TASK,
    scopes: ask && (() => ask(args as never)),
    prepare: () => ready(handler, uri)(args),
    finish: (value) => ({
      contents: toContents(value, uri, mimeType),
      ttlMs: cache.ttlMs,
      cacheScope: cache.scope,
    }),
    fail: failHandler,
  }
}

/** The characters of a scope (RFC 6749, 3.3): it stands in a quoted string, and blanks separate scopes. */
const SCOPE = /^[\x21\x23-\x5b\x5d-\x7e]{1,256}$/

export function isScope(text: unknown): text is string {
  return typeof text === 'string' && SCOPE.test(text)
}

/** Throws unless this is a list of scopes. */
export function assertScopes(what: string, scopes: unknown): asserts scopes is readonly string[] {
  if (Array.isArray(scopes) && scopes.every(isScope)) return
  throw misuse(
    `${what} must be a list of OAuth scopes: strings without blanks, quotes and backslashes; got ${JSON.stringify(scopes)}.`,
  )
}

/** The id of a task holds its scopes, and ids have a limit. */
const MAX_TASK_SCOPES = 360

/** Throws if the scopes of a call that may become a task are too long together. */
export function assertTaskScopes(what: string, scopes: readonly string[]): void {
  const { length } = scopes.join(' ')
  if (length <= MAX_TASK_SCOPES) return
  throw misuse(
    `The scopes of ${what} have ${length} characters together, and the id of a task holds ${MAX_TASK_SCOPES}. ` +
      "Ask for fewer or shorter ones, or declare the tool with task: 'never'.",
  )
}

/** Checks a list once, here; checks the arguments before a function sees them. */
export function scopesOf(
  scopes: Scopes<never> | undefined,
  input: Compiled | undefined,
): Target['scopes'] | undefined {
  if (scopes === undefined) return undefined
  if (typeof scopes !== 'function') {
    assertScopes('scopes', scopes)
    const required: RequiredScopes = { kind: 'scopes', scopes }
    return () => required
  }
  const of = async (args: unknown): Promise<RequiredScopes> => {
    const given: unknown = await inTime(
      Promise.resolve(scopes(args as never)),
      HOOK_MS,
      'A function given as scopes',
    )
    assertScopes('What the function scopes returns', given)
    return { kind: 'scopes', scopes: given }
  }
  if (!input) return of
  return async (args) => {
    const checked = await input.validate(args)
    if (checked.ok) return of(checked.value)
    return { kind: 'refused', problem: describeArguments(input, args, checked.problems) }
  }
}

function failHandler(message: string): { error: RondoError } {
  return { error: new RondoError('SERVER_HANDLER', message) }
}

async function prepare(
  input: Compiled | undefined,
  args: unknown,
  ready: (args: unknown) => Prepared,
): Promise<Prepared> {
  if (!input) return ready(args)
  const result = await input.validate(args)
  return result.ok
    ? ready(result.value)
    : { kind: 'refused', problem: describeArguments(input, args, result.problems) }
}

function ready(handler: AnyHandler, uri = ''): (args: unknown) => Prepared {
  return (args) => ({ kind: 'ready', run: (ctx) => handler(args as never, ctx, uri) })
}

export function errorResult(message: string): Finished {
  return { content: [text(message)], isError: true }
}

function toToolResult(value: unknown, output: Compiled | undefined): Finished | Promise<Finished> {
  assertNoLiteral(value)
  if (output)
    return isRecord(value) && isResult(value) ? checkedResult(output, value) : structured(output, value)
  if (value === undefined) return { content: [] }
  if (typeof value === 'string') return { content: [text(value)] }
  if (Array.isArray(value) && isContent(value)) return { content: value }
  if (isRecord(value) && isResult(value)) return { content: [], ...value }
  if (isRecord(value) || Array.isArray(value)) {
    return { content: [text(JSON.stringify(value))], structuredContent: value }
  }
  throw misuse(
    `A tool returns a string, content blocks, a result or an object; this one returned a ${typeof value}.`,
  )
}

/** True if the handler built the whole result by hand. */
function isResult(value: Record<string, unknown>): boolean {
  return Array.isArray(value.content) || value.isError === true || 'structuredContent' in value
}

function isContent(value: readonly unknown[]): boolean {
  return value.every((item) => isRecord(item) && typeof item.type === 'string')
}

async function checkedResult(output: Compiled, value: Record<string, unknown>): Promise<Finished> {
  if (value.isError === true) return { content: [], ...value }
  return {
    ...value,
    ...(await structured(output, value.structuredContent)),
    ...(value.content ? { content: value.content } : {}),
  }
}

async function structured(output: Compiled, value: unknown): Promise<Finished> {
  const checked = await output.validate(value)
  if (checked.ok) return { content: [text(JSON.stringify(checked.value))], structuredContent: checked.value }
  throw new TypeError(
    `The handler returned a value that does not match the tool's output schema: ${describeProblems(checked.problems)}`,
  )
}

function text(value: string): { type: 'text'; text: string } {
  return { type: 'text', text: value }
}

function toPromptResult(value: unknown, description: string | undefined): Finished {
  assertNoLiteral(value)
  const common = description === undefined ? {} : { description }
  if (typeof value === 'string') return { ...common, messages: [{ role: 'user', content: text(value) }] }
  if (Array.isArray(value)) return { ...common, messages: value }
  if (typeof value === 'object' && value !== null && 'messages' in value) return { ...common, ...value }
  throw misuse('A prompt returns a string, a list of messages, or { description, messages }.')
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

/** Refuses the wire form of a result that asks: written by hand, its state would not be sealed. */
function assertNoLiteral(value: unknown): void {
  if (!isRecord(value) || value.resultType !== 'input_required') return
  throw misuse(
    "The handler returned a literal { resultType: 'input_required' }. Return inputRequired({ inputRequests, requestState }) from rondo instead.",
  )
}

const MANUAL: unique symbol = Symbol('rondo.input-required')

export interface InputRequired {
  readonly [MANUAL]: true
  readonly inputRequests?: InputRequests
  readonly requestState?: string
}

/**
 * Creates the value that a handler returns to end a round by hand: with input requests, with a state of its own, or with both.
 *
 * @example
 * ```ts
 * const params: ElicitFormParams = {
 *   mode: 'form',
 *   message: 'Who are you?',
 *   requestedSchema: { type: 'object', properties: { name: { type: 'string' } } },
 * }
 * if (!name) return inputRequired({ inputRequests: { name: { method: 'elicitation/create', params } } })
 * ```
 */
export function inputRequired(needs: {
  inputRequests?: InputRequests
  requestState?: string
}): InputRequired {
  const { inputRequests, requestState } = needs
  if (inputRequests === undefined && requestState === undefined) {
    throw misuse('inputRequired() takes inputRequests, requestState, or both.')
  }
  if (inputRequests !== undefined && Object.keys(inputRequests).length === 0) {
    throw misuse('The inputRequests of inputRequired() are empty: leave them out, or add a request.')
  }
  for (const [key, request] of Object.entries(inputRequests ?? {})) {
    if (isRequest(request)) continue
    throw misuse(
      `"${key}" in the inputRequests of inputRequired() is not an input request. It takes a method, one of ${METHODS.join(', ')}, and its params.`,
    )
  }
  if (requestState !== undefined && typeof requestState !== 'string') {
    throw misuse('The requestState of inputRequired() must be a string: use JSON.stringify.')
  }
  return { [MANUAL]: true, inputRequests, requestState }
}

const METHODS: readonly unknown[] = ['elicitation/create', 'sampling/createMessage', 'roots/list']

function isRequest(value: unknown): boolean {
  if (!isRecord(value) || !METHODS.includes(value.method)) return false
  return isRecord(value.params) || (value.method === 'roots/list' && value.params === undefined)
}

export function isInputRequired(value: unknown): value is InputRequired {
  return typeof value === 'object' && value !== null && MANUAL in value
}
